"""Static members: one that restarts takes its place again, and nobody else rejoins. Of two that live, one is fenced."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from ..server import Broker
from .asks import create, join_values
from .served import Served, wait_until
from .waits import until
from .wires import Wire

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # how it reads its schemas is deprecated
    pass

# raw members


async def join(wire: Wire, instance: str, name: str = "", *, version: int = 7, **values: Any) -> Any:
    return await wire.call(
        "join_group", version=version, **join_values("g", name, **values) | {"group_instance_id": instance}
    )


async def sync(wire: Wire, who: dict[str, Any], generation: int, **plan: bytes) -> Any:
    plans = [{"member_id": name, "assignment": part} for name, part in plan.items()]
    return await wire.call("sync_group", group_id="g", generation_id=generation, assignments=plans, **who)


async def beat(wire: Wire, who: dict[str, Any], generation: int) -> ErrorCode:
    code: ErrorCode = (await wire.call("heartbeat", group_id="g", generation_id=generation, **who)).error_code
    return code


async def commit(wire: Wire, who: dict[str, Any], generation: int) -> ErrorCode:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    answer = await wire.call(
        "offset_commit", group_id="g", generation_id_or_member_epoch=generation, topics=topics, **who
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


async def leave(wire: Wire, **who: str) -> ErrorCode:
    answer = await wire.call("leave_group", group_id="g", members=[who])
    assert answer.members[0].group_instance_id == who["group_instance_id"]
    code: ErrorCode = answer.members[0].error_code
    return code


class Pair:
    """Two static members, "a", which leads, and "b", with a plan."""

    def __init__(self, a: Wire, b: Wire) -> None:
        self.a = a
        self.b = b
        self.names: dict[str, str] = {}
        self.generation = 0

    def who(self, instance: str) -> dict[str, str]:
        return {"member_id": self.names[instance], "group_instance_id": instance}

    async def begin(self, **values: Any) -> None:
        for wire, instance in ((self.a, "a"), (self.b, "b")):
            await wire.send("join_group", **join_values("g", **values) | {"group_instance_id": instance})
        for wire, instance in ((self.a, "a"), (self.b, "b")):
            answer = await wire.receive()
            assert answer.error_code == ErrorCode.none
            self.names[instance], self.generation = answer.member_id, answer.generation_id
            if instance == "a":
                assert answer.leader == answer.member_id
                assert {each.group_instance_id for each in answer.members} == {"a", "b"}

    async def plan(self) -> None:
        plan = {self.names["a"]: b"of a", self.names["b"]: b"of b"}
        assert (await sync(self.a, self.who("a"), self.generation, **plan)).assignment == b"of a"
        assert (await sync(self.b, self.who("b"), self.generation)).assignment == b"of b"


@pytest.fixture
async def pair(broker: Broker, wire: Wire) -> Any:
    await create(wire, "t")
    async with await Wire.open(broker.port) as a, await Wire.open(broker.port) as b:
        yield Pair(a, b)


@pytest.mark.parametrize("instance", ["a", "b"], ids=["leader", "follower"])
async def test_restarted_member_takes_its_place_without_a_rebalance(pair: Pair, wire: Wire, instance: str) -> None:
    await pair.begin()
    await pair.plan()
    answer = await join(wire, instance)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.none, pair.generation)
    assert answer.member_id not in pair.names.values()
    assert (answer.leader, answer.members) == (pair.names["a"], ())  # the older name: it is to make no new plan
    restarted = {"member_id": answer.member_id, "group_instance_id": instance}
    assert (await sync(wire, restarted, pair.generation)).assignment == f"of {instance}".encode()
    other = pair.who("b" if instance == "a" else "a")
    for who in (restarted, other):
        assert await beat(wire, who, pair.generation) == ErrorCode.none
    assert await commit(wire, restarted, pair.generation) == ErrorCode.none


async def test_restarted_leader_is_told_to_skip_the_assignment(pair: Pair, wire: Wire) -> None:
    await pair.begin()
    await pair.plan()
    answer = await join(wire, "a", version=9)
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {each.group_instance_id: each.member_id for each in answer.members} == {
        "a": answer.member_id,
        "b": pair.names["b"],
    }
    follower = await join(wire, "b", version=9)
    assert (follower.leader, follower.skip_assignment, follower.members) == (answer.member_id, False, ())


async def test_older_name_of_a_restarted_member_is_fenced(pair: Pair, wire: Wire) -> None:
    await pair.begin()
    await pair.plan()
    name = (await join(wire, "b")).member_id
    older = pair.who("b")
    codes = [
        await beat(wire, older, pair.generation),
        await commit(wire, older, pair.generation),
        await leave(wire, **older),
        (await sync(wire, older, pair.generation)).error_code,
        (await join(wire, "b", older["member_id"])).error_code,
    ]
    assert codes == [ErrorCode.fenced_instance_id] * 5
    # Without its instance id it is just unknown.
    assert await beat(wire, {"member_id": older["member_id"]}, pair.generation) == ErrorCode.unknown_member_id
    assert await beat(wire, {"member_id": name, "group_instance_id": "b"}, pair.generation) == ErrorCode.none


async def test_restart_while_its_older_join_waits_fences_that(pair: Pair, broker: Broker, wire: Wire) -> None:
    await pair.begin()
    await pair.plan()
    await pair.a.send("join_group", **join_values("g", pair.names["a"]) | {"group_instance_id": "a"})  # it leads
    await until_rebalance(broker)
    await wire.send("join_group", **join_values("g") | {"group_instance_id": "a"})
    assert (await pair.a.receive()).error_code == ErrorCode.fenced_instance_id
    other = await join(pair.b, "b", pair.names["b"])
    answer = await wire.receive()
    assert answer.error_code == other.error_code == ErrorCode.none
    assert answer.generation_id == other.generation_id == pair.generation + 1
    assert (answer.leader, other.leader) == (answer.member_id, answer.member_id)


@pytest.mark.parametrize("change", ["protocol", "no plan"])
async def test_restart_that_changes_the_group_begins_a_rebalance(
    pair: Pair, broker: Broker, wire: Wire, change: str
) -> None:
    protocols = [{"name": name, "metadata": b""} for name in ("range", "sticky")]
    await pair.begin()
    for wire_of, instance in ((pair.a, "a"), (pair.b, "b")):  # both know two protocols now
        await wire_of.send("join_group", **join_with(pair.who(instance), protocols))
    pair.generation = (await pair.a.receive()).generation_id
    assert (await pair.b.receive()).protocol_name == "range"
    if change == "protocol":
        await pair.plan()
        protocols = protocols[1:]
    await wire.send("join_group", **join_with({"member_id": "", "group_instance_id": "b"}, protocols))
    await until_rebalance(broker)
    other = await pair.a.call("join_group", **join_with(pair.who("a"), protocols))
    answer = await wire.receive()
    assert (answer.error_code, answer.generation_id) == (ErrorCode.none, pair.generation + 1)
    assert other.protocol_name == ("sticky" if change == "protocol" else "range")


def join_with(who: dict[str, Any], protocols: list[dict[str, Any]]) -> dict[str, Any]:
    return join_values("g") | who | {"protocols": protocols}


async def until_rebalance(broker: Broker) -> None:
    await until(lambda: broker.groups["g"].state == "PreparingRebalance", "a rebalance begins")


async def test_restart_that_is_refused_leaves_the_older_member(pair: Pair, wire: Wire) -> None:
    await pair.begin()
    await pair.plan()
    assert (await join(wire, "b", protocol="sticky")).error_code == ErrorCode.inconsistent_group_protocol
    assert await beat(wire, pair.who("b"), pair.generation) == ErrorCode.none


async def test_static_member_leaves_by_its_instance(pair: Pair, wire: Wire) -> None:
    await pair.begin()
    await pair.plan()
    assert await leave(wire, member_id="", group_instance_id="nobody") == ErrorCode.unknown_member_id
    assert await leave(wire, member_id="", group_instance_id="b") == ErrorCode.none
    assert await beat(wire, pair.who("a"), pair.generation) == ErrorCode.rebalance_in_progress
    assert await beat(wire, pair.who("b"), pair.generation) == ErrorCode.unknown_member_id
    answer = await join(wire, "a", pair.names["a"])
    assert [each.group_instance_id for each in answer.members] == ["a"]


async def test_static_member_that_is_silent_is_removed(broker: Broker, pair: Pair, wire: Wire) -> None:
    await pair.begin(session=3.0)
    await pair.plan()
    restarted = (await join(wire, "b", session=10.0)).member_id
    await until(lambda: broker.groups["g"].members == (restarted,), "the silent one is gone")
    answer = await join(wire, "b", restarted)
    assert [each.group_instance_id for each in answer.members] == ["b"]


# real members

Settings = dict[str, Any]


class Consumer:
    """A static member of librdkafka that notes what is assigned to it."""

    def __init__(self, served: Served, topic: str, instance: str) -> None:
        settings: Settings = {"bootstrap.servers": served.address, "group.id": topic, "heartbeat.interval.ms": 100}
        settings |= {"group.instance.id": instance, "session.timeout.ms": 30_000, "log_level": 0}
        self.assigned: list[list[int]] = []
        self.errors: list[int] = []
        self._consumer = confluent_kafka.Consumer(
            settings | {"error_cb": lambda error: self.errors.append(error.code())}
        )
        self._consumer.subscribe([topic], on_assign=self._note)

    def _note(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned.append([each.partition for each in partitions])

    def poll(self) -> None:
        record = self._consumer.poll(0.02)
        error = record and record.error()
        if error:
            self.errors.append(error.code())

    def close(self) -> None:
        self._consumer.close()


def poll_until(condition: Callable[[], object], what: str, *consumers: Consumer) -> None:
    def polled() -> object:
        for consumer in consumers:
            consumer.poll()
        return condition()

    wait_until(polled, what)


async def test_member_of_librdkafka_restarts_and_stalls_nobody(served: Served) -> None:
    async with await Wire.open(served.port) as wire:
        await create(wire, "restart", partitions=2)
    one, two = (Consumer(served, "restart", instance) for instance in ("one", "two"))
    poll_until(
        lambda: one.assigned and two.assigned and len(one.assigned[-1] + two.assigned[-1]) == 2, "both", one, two
    )
    before, parts = list(one.assigned), two.assigned[-1]
    two.close()  # a static one does not leave the group
    two = Consumer(served, "restart", "two")
    poll_until(lambda: two.assigned, "it has its partitions again", one, two)
    assert two.assigned == [parts]
    assert one.assigned == before
    for consumer in (one, two):
        consumer.close()


async def test_older_of_two_members_of_librdkafka_is_fenced(served: Served) -> None:
    async with await Wire.open(served.port) as wire:
        await create(wire, "fenced", partitions=2)
    older = Consumer(served, "fenced", "the same")
    poll_until(lambda: older.assigned, "it has all", older)
    newer = Consumer(served, "fenced", "the same")
    poll_until(lambda: newer.assigned, "it has all, too", older, newer)
    fenced = (confluent_kafka.KafkaError.FENCED_INSTANCE_ID, confluent_kafka.KafkaError._FATAL)
    poll_until(lambda: set(older.errors).intersection(fenced), "the older one is told", older, newer)
    assert newer.errors == []
    for consumer in (older, newer):
        consumer.close()


def static(broker: Broker, instance: str) -> aiokafka.AIOKafkaConsumer:
    settings = {"group_id": "g", "group_instance_id": instance, "heartbeat_interval_ms": 50}
    return aiokafka.AIOKafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{broker.port}", **settings)


def parts_of(consumer: aiokafka.AIOKafkaConsumer) -> list[int]:
    return sorted(each.partition for each in consumer.assignment())


async def test_member_of_aiokafka_restarts_without_a_rebalance(broker: Broker, wire: Wire) -> None:
    await create(wire, "t", partitions=2)
    one, two = static(broker, "one"), static(broker, "two")
    async with one:
        await two.start()
        await until(lambda: sorted([parts_of(one), parts_of(two)]) == [[0], [1]], "they share")
        generation, parts = broker.groups["g"].generation, parts_of(two)
        await two.stop()
        async with static(broker, "two") as again:
            await until(lambda: parts_of(again) == parts, "it has its partitions again")
            assert broker.groups["g"].generation == generation
