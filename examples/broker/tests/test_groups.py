"""Groups of real consumers share the partitions of a topic; raw members are told their mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiokafka
import pytest
from kio.schema.errors import ErrorCode

from ..groups import GroupSettings
from ..server import Broker, BrokerSettings
from .asks import batch, create, join_values, named, produce
from .conftest import Start
from .waits import until
from .wires import Wire

BEAT = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000, "auto_offset_reset": "earliest"}

# real consumers


def member(broker: Broker, group: str = "g", **settings: Any) -> aiokafka.AIOKafkaConsumer:
    address = f"127.0.0.1:{broker.port}"
    return aiokafka.AIOKafkaConsumer("t", bootstrap_servers=address, group_id=group, **BEAT | settings)


def shares(*members: aiokafka.AIOKafkaConsumer) -> list[list[int]]:
    """The partitions of each, and all of them in order."""
    return sorted(sorted(partition.partition for partition in each.assignment()) for each in members)


async def test_group_of_two_splits_and_the_rest_takes_over(broker: Broker, wire: Wire) -> None:
    await create(wire, "t", partitions=2)
    first, second = member(broker), member(broker)
    async with first:
        await until(lambda: shares(first) == [[0, 1]], "the first has all")
        async with second:
            await until(lambda: shares(first, second) == [[0], [1]], "they share")
        await until(lambda: shares(first) == [[0, 1]], "the second has left")
    assert broker.groups["g"].members == ()


async def test_group_goes_on_where_it_committed(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    for number in range(4):
        await produce(wire, "t", batch(b"%d" % number))
    async with member(broker, enable_auto_commit=False) as first:
        assert [(await first.getone()).value for _ in range(2)] == [b"0", b"1"]
        await first.commit()
        assert (await first.getone()).value == b"2"  # read, and not committed
    async with member(broker, enable_auto_commit=False) as second:
        assert (await second.getone()).value == b"2"
    async with member(broker, "another group", enable_auto_commit=False) as other:
        assert (await other.getone()).value == b"0"


async def test_group_whose_member_is_silent_goes_on_without_it(broker: Broker, wire: Wire) -> None:
    await create(wire, "t", partitions=2)
    silent = await named(wire, "g", protocol="roundrobin")
    answer = await wire.call("join_group", **join_values("g", silent, protocol="roundrobin", session=0.3))
    assert (answer.error_code, answer.leader) == (ErrorCode.none, silent)
    async with member(broker) as alive:
        await until(lambda: shares(alive) == [[0, 1]], "it has all")
        assert len(broker.groups["g"].members) == 1


# answers to raw members


async def joined(wire: Wire, group: str, **values: Any) -> tuple[str, int]:
    """Name and generation of a new member."""
    name = await named(wire, group, **values)
    answer = await wire.call("join_group", **join_values(group, name, **values))
    assert answer.error_code == ErrorCode.none
    return name, int(answer.generation_id)


async def synced(wire: Wire, group: str, name: str, generation: int, plan: bytes = b"plan") -> Any:
    plans = [{"member_id": name, "assignment": plan}]
    return await wire.call("sync_group", group_id=group, member_id=name, generation_id=generation, assignments=plans)


async def beaten(wire: Wire, group: str, name: str, generation: int) -> ErrorCode:
    answer = await wire.call("heartbeat", group_id=group, member_id=name, generation_id=generation)
    code: ErrorCode = answer.error_code
    return code


async def test_group_of_one_joins_syncs_beats_and_leaves(wire: Wire) -> None:
    name, generation = await joined(wire, "g")
    answer = await synced(wire, "g", name, generation)
    assert (answer.error_code, answer.assignment) == (ErrorCode.none, b"plan")
    assert await beaten(wire, "g", name, generation) == ErrorCode.none
    left = await wire.call("leave_group", group_id="g", members=[{"member_id": name}])
    assert [each.error_code for each in left.members] == [ErrorCode.none]
    assert await beaten(wire, "g", name, generation) == ErrorCode.unknown_member_id


async def test_group_tells_a_stranger_that_it_is_unknown(wire: Wire) -> None:
    _, generation = await joined(wire, "g")
    assert await beaten(wire, "g", "nobody", generation) == ErrorCode.unknown_member_id
    assert (await synced(wire, "g", "nobody", generation)).error_code == ErrorCode.unknown_member_id
    answer = await wire.call("join_group", **join_values("g", "nobody"))
    assert answer.error_code == ErrorCode.unknown_member_id
    left = await wire.call("leave_group", group_id="g", members=[{"member_id": "nobody"}])
    assert [each.error_code for each in left.members] == [ErrorCode.unknown_member_id]
    assert await committed(wire, "g", "nobody", generation) == ErrorCode.unknown_member_id


async def committed(wire: Wire, group: str, name: str, generation: int) -> ErrorCode:
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "note"}]
    topics = [{"name": "t", "partitions": parts}]
    answer = await wire.call(
        "offset_commit", group_id=group, member_id=name, generation_id_or_member_epoch=generation, topics=topics
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


async def test_group_refuses_another_generation(wire: Wire) -> None:
    await create(wire, "t")
    name, generation = await joined(wire, "g")
    for other in (generation - 1, generation + 1):
        assert await beaten(wire, "g", name, other) == ErrorCode.illegal_generation
        assert (await synced(wire, "g", name, other)).error_code == ErrorCode.illegal_generation
    assert await committed(wire, "g", name, generation + 1) == ErrorCode.illegal_generation
    assert await committed(wire, "g", name, generation) == ErrorCode.rebalance_in_progress  # there is no plan yet
    await synced(wire, "g", name, generation)
    assert await committed(wire, "g", name, generation) == ErrorCode.none
    found = await wire.call("offset_fetch", group_id="g", topics=None)
    part = found.topics[0].partitions[0]
    assert (part.partition_index, part.committed_offset, part.metadata) == (0, 5, "note")


async def test_group_that_is_full_refuses_one_more(start: Start) -> None:
    broker = await start(BrokerSettings(group=GroupSettings(max_members=1)))
    async with await Wire.open(broker.port) as wire:
        name, generation = await joined(wire, "g")
        refused = await wire.call("join_group", **join_values("g"))
        assert refused.error_code == ErrorCode.group_max_size_reached
        assert await beaten(wire, "g", name, generation) == ErrorCode.none
        await wire.call("leave_group", group_id="g", members=[{"member_id": name}])
        assert (await joined(wire, "g"))[0] != name


@pytest.mark.parametrize("values", [{"protocol": "sticky"}, {"kind": "connect"}], ids=["protocol", "kind"])
async def test_group_refuses_who_has_nothing_in_common(broker: Broker, wire: Wire, values: dict[str, Any]) -> None:
    name, generation = await joined(wire, "g")
    other = await named(wire, "g", **values)
    refused = await wire.call("join_group", **join_values("g", other, **values))
    assert refused.error_code == ErrorCode.inconsistent_group_protocol
    assert broker.groups["g"].members == (name,)  # which waits for nobody
    assert await beaten(wire, "g", name, generation) == ErrorCode.none


@pytest.mark.parametrize("name", ["", "g" * 256], ids=["none", "long"])
async def test_group_with_a_strange_name_is_refused(wire: Wire, name: str) -> None:
    assert (await wire.call("join_group", **join_values(name))).error_code == ErrorCode.invalid_group_id


async def test_group_member_waits_for_the_plan_of_its_leader(broker: Broker, wire: Wire) -> None:
    async with await Wire.open(broker.port) as other:
        names = [await named(wire, "g"), await named(other, "g")]
        for each, name in zip((wire, other), names, strict=True):
            await each.send("join_group", **join_values("g", name))
        answers = [await each.receive() for each in (wire, other)]
        assert answers[0].leader == answers[1].leader
        order = [wire, other] if answers[0].leader == names[0] else [other, wire]
        leads, follows = (names[0], names[1]) if order[0] is wire else (names[1], names[0])
        values = {"group_id": "g", "generation_id": answers[0].generation_id}
        await order[1].send("sync_group", member_id=follows, assignments=[], **values)
        plan = [{"member_id": leads, "assignment": b"mine"}, {"member_id": follows, "assignment": b"yours"}]
        await asyncio.sleep(0.05)
        assert (await order[0].call("sync_group", member_id=leads, assignments=plan, **values)).assignment == b"mine"
        assert (await order[1].receive()).assignment == b"yours"
        # a member that joins anew ends the generation for the other
        await order[0].send("join_group", **join_values("g", leads))
        await until(lambda: broker.rebalances.statistics().pending > 3, "it waits for the other")
        beat = await order[1].call("heartbeat", member_id=follows, **values)
        assert beat.error_code == ErrorCode.rebalance_in_progress


@pytest.mark.parametrize("version", [1, 4, 7])
@pytest.mark.parametrize("session", [-1.0, 0.0, 100_000.0])
async def test_group_names_nobody_with_a_strange_session_timeout(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, version: int, session: float
) -> None:
    answer = await wire.call("join_group", version=version, **join_values("g", session=session))
    assert answer.error_code == ErrorCode.invalid_session_timeout
    assert broker.rebalances.statistics().pending == 0
    assert caplog.records == []


class Two:
    """Two members of a group, each on a connection of its own. The first leads; it has made no plan yet."""

    def __init__(self, leads: Wire, follows: Wire) -> None:
        self.leads = leads
        self.follows = follows
        self.names: list[str] = []
        self.values: dict[str, Any] = {"group_id": "g"}

    async def begin(self, *, session: float, **of_follower: Any) -> None:
        wires = (self.leads, self.follows)
        self.names = [await named(wire, "g", session=session) for wire in wires]
        for wire, name, more in zip(wires, self.names, ({}, of_follower), strict=True):
            await wire.send("join_group", **join_values("g", name, session=session) | more)
        answers = [await wire.receive() for wire in wires]
        assert [each.leader for each in answers] == self.names[:1] * 2
        self.values["generation_id"] = answers[0].generation_id
        await self.follows.send("sync_group", member_id=self.names[1], assignments=[], **self.values)

    async def plan(self) -> Any:
        """The answer to the follower."""
        plan = [{"member_id": name, "assignment": b"plan"} for name in self.names]
        answer = await self.leads.call("sync_group", member_id=self.names[0], assignments=plan, **self.values)
        assert answer.error_code == ErrorCode.none
        return await self.follows.receive()


@pytest.fixture
async def two(broker: Broker) -> AsyncIterator[Two]:
    async with await Wire.open(broker.port) as leads, await Wire.open(broker.port) as follows:
        yield Two(leads, follows)


async def test_group_member_may_wait_for_a_plan_longer_than_its_session(two: Two, wire: Wire) -> None:
    await two.begin(session=10.0, session_timeout=timedelta(seconds=2.5))
    for _ in range(12):
        await asyncio.sleep(0.25)
        beat = await wire.call("heartbeat", member_id=two.names[0], **two.values)
        assert beat.error_code == ErrorCode.none
    assert (await two.plan()).assignment == b"plan"


async def test_group_member_that_is_gone_while_it_waits_for_a_plan_is_removed(two: Two, broker: Broker) -> None:
    await two.begin(session=10.0, session_timeout=timedelta(seconds=0.5))
    two.follows.writer.transport.abort()
    await until(lambda: two.names[1] not in broker.groups["g"].members, "it is removed")


async def test_group_waits_for_a_plan_as_long_as_its_most_patient_member(two: Two) -> None:
    await two.begin(session=10.0, rebalance_timeout=timedelta())
    await asyncio.sleep(0.1)
    assert (await two.plan()).assignment == b"plan"


async def test_group_member_with_a_negative_rebalance_timeout_has_none(wire: Wire) -> None:
    name = await named(wire, "g")
    values = join_values("g", name) | {"rebalance_timeout": timedelta(seconds=-1)}
    assert (await wire.call("join_group", **values)).error_code == ErrorCode.none


async def test_groups_without_members_and_offsets_make_room(start: Start) -> None:
    broker = await start(BrokerSettings(most_groups=3))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        name, generation = await joined(wire, "offsets")
        await synced(wire, "offsets", name, generation)
        assert await committed(wire, "offsets", name, generation) == ErrorCode.none
        await wire.call("leave_group", group_id="offsets", members=[{"member_id": name}])
        left, _ = await joined(wire, "left")
        await joined(wire, "members")
        refused = await wire.call("join_group", **join_values("new"))
        assert refused.error_code == ErrorCode.policy_violation
        await wire.call("leave_group", group_id="left", members=[{"member_id": left}])
        await joined(wire, "new")
        assert set(broker.groups) == {"offsets", "members", "new"}
