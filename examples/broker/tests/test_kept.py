"""What a broker keeps for groups is bounded in all: members, plans, offsets. So are answers, and requests that wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from ..groups import GroupSettings
from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import batch, create, fetch_values, join_values, named, produce_values
from .conftest import Start
from .parking import LONG, PREPARED
from .served import Served
from .waits import until
from .wires import KEYS, VERSIONS, Wire

KIB: Final = 1 << 10
MIB: Final = 1 << 20
FULL: Final = ErrorCode.group_max_size_reached


@pytest.fixture
async def narrow(start: Start) -> Broker:
    """A broker that keeps 100 KiB for groups."""
    return await start(BrokerSettings(max_kept=100 * KIB, group=GroupSettings(initial_delay=0.0)))


@pytest.fixture
async def wire(narrow: Broker) -> AsyncIterator[Wire]:
    async with await Wire.open(narrow.port) as wire:
        await create(wire, "t", partitions=2)
        yield wire


def member_of(group: str, name: str = "", size: int = 0, **values: Any) -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": bytes(size)}]
    return join_values(group, name) | {"protocols": protocols} | values


async def join(wire: Wire, group: str, size: int, name: str = "") -> Any:
    """The answer to a member with *size* bytes of metadata."""
    return await wire.call("join_group", **member_of(group, name or await named(wire, group), size))


async def sync(wire: Wire, group: str, joined: Any, plan: dict[str, bytes]) -> Any:
    plans = [{"member_id": name, "assignment": part} for name, part in plan.items()]
    who = {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}
    return await wire.call("sync_group", assignments=plans, **who)


async def leave(wire: Wire, group: str, name: str) -> None:
    answer = await wire.call("leave_group", group_id=group, members=[{"member_id": name}])
    assert answer.members[0].error_code == ErrorCode.none


async def commit(wire: Wire, group: str, *metadata: str) -> list[ErrorCode]:
    """Commit an offset with *metadata* for partition 0, 1 and so on."""
    parts = [
        {"partition_index": number, "committed_offset": 5, "committed_metadata": text}
        for number, text in enumerate(metadata)
    ]
    topics = [{"name": "t", "partitions": parts}]
    answer = await wire.call("offset_commit", group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    return [each.error_code for each in answer.topics[0].partitions]


async def committed(wire: Wire, group: str) -> dict[int, str]:
    """The metadata of each partition."""
    answer = await wire.call("offset_fetch", group_id=group, topics=None)
    return {part.partition_index: part.metadata for topic in answer.topics for part in topic.partitions}


# offsets


async def test_commit_with_too_much_metadata_is_refused_alone(wire: Wire) -> None:
    assert await commit(wire, "g", "x" * 4_097, "y" * 4_096) == [ErrorCode.offset_metadata_too_large, ErrorCode.none]
    assert await committed(wire, "g") == {1: "y" * 4_096}


async def test_commit_of_partitions_that_do_not_exist_keeps_nothing(wire: Wire, narrow: Broker) -> None:
    before = narrow.budget.free
    for number in range(3):
        topics = [{"name": name, "partitions": [{"partition_index": 7 + number}]} for name in ("t", f"no-{number}")]
        await wire.call("offset_commit", group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    assert narrow.groups["g"].is_unused
    await wire.call("delete_groups", groups_names=("g",))
    assert narrow.budget.free == before


@pytest.mark.parametrize("end", ["group", "topic"])
async def test_commits_beyond_the_bound_are_refused_until_others_go(wire: Wire, narrow: Broker, end: str) -> None:
    fits = 0
    while await commit(wire, f"g{fits}", "x" * 4_000, "y" * 4_000) == [ErrorCode.none] * 2:
        fits += 1
    assert 5 <= fits <= 12
    assert await commit(wire, f"g{fits}", "x" * 4_000, "y" * 4_000) == [ErrorCode.invalid_commit_offset_size] * 2
    assert await committed(wire, f"g{fits}") == {}  # neither of the two
    assert await commit(wire, "g0", "z" * 4_000, "z" * 4_000) == [ErrorCode.none] * 2  # in place of the older ones
    if end == "group":
        await wire.call("delete_groups", groups_names=("g0",))
    else:
        await wire.call("delete_topics", topic_names=["t"])
        await create(wire, "t", partitions=2)
    assert await commit(wire, f"g{fits}", "x" * 4_000, "y" * 4_000) == [ErrorCode.none] * 2


# members


async def test_member_beyond_the_bound_is_refused_until_another_leaves(wire: Wire, narrow: Broker) -> None:
    first = await join(wire, "one", 40 * KIB)
    assert (await join(wire, "two", 40 * KIB)).error_code == ErrorCode.none
    refused = await join(wire, "three", 40 * KIB)
    assert refused.error_code == FULL
    assert narrow.groups["three"].members == ()  # no member waits for it
    await leave(wire, "one", first.member_id)
    assert (await join(wire, "three", 40 * KIB)).error_code == ErrorCode.none


async def test_names_without_members_are_bounded(wire: Wire, narrow: Broker) -> None:
    codes = [(await wire.call("join_group", **member_of(f"g{number % 3}"))).error_code for number in range(200)]
    assert set(codes) == {ErrorCode.member_id_required, FULL}
    assert sum(len(group.members) for group in narrow.groups.values()) == codes.index(FULL) < 100


async def test_restart_beyond_the_bound_leaves_the_older_member(wire: Wire, narrow: Broker) -> None:
    static: dict[str, Any] = {"group_instance_id": "a"}
    older = await wire.call("join_group", **member_of("g", size=40 * KIB, **static))
    await sync(wire, "g", older, {older.member_id: b"plan"})
    assert (await wire.call("join_group", **member_of("g", size=80 * KIB, **static))).error_code == FULL
    who = {"group_id": "g", "generation_id": older.generation_id, "member_id": older.member_id}
    assert (await wire.call("heartbeat", **who, **static)).error_code == ErrorCode.none
    newer = await wire.call("join_group", **member_of("g", size=20 * KIB, **static))
    assert (newer.error_code, newer.generation_id) == (ErrorCode.none, older.generation_id)


async def test_plan_beyond_the_bound_is_refused(wire: Wire, narrow: Broker) -> None:
    joined = await join(wire, "g", 40 * KIB)
    strangers = {f"nobody {number}": bytes(MIB) for number in range(3)}
    refused = await sync(wire, "g", joined, {joined.member_id: bytes(80 * KIB)})
    assert refused.error_code == FULL
    answer = await sync(wire, "g", joined, {joined.member_id: bytes(20 * KIB)} | strangers)
    assert (answer.error_code, len(answer.assignment)) == (ErrorCode.none, 20 * KIB)
    assert narrow.budget.free > 30 * KIB


async def test_protocol_type_is_a_short_word(wire: Wire) -> None:
    for kind, code in (("", ErrorCode.inconsistent_group_protocol), ("k" * 255, ErrorCode.none)):
        name = await named(wire, "g")
        answer = await wire.call("join_group", **member_of("g", name, protocol_type=kind))
        assert answer.error_code == code
    name = await named(wire, "h")
    answer = await wire.call("join_group", **member_of("h", name, protocol_type="k" * 256))
    assert answer.error_code == ErrorCode.inconsistent_group_protocol


async def test_all_room_is_free_when_all_are_gone(wire: Wire, narrow: Broker) -> None:
    before = narrow.budget.free
    static: dict[str, Any] = {"group_instance_id": "a"}
    for _ in range(3):
        joined = await wire.call("join_group", **member_of("g", size=KIB, **static))
    await sync(wire, "g", joined, {joined.member_id: bytes(KIB)})
    await wire.call("join_group", **member_of("g", size=2 * KIB, **static))
    one = await join(wire, "h", KIB)
    assert (await join(wire, "h", 2 * KIB, one.member_id)).error_code == ErrorCode.none
    await named(wire, "h", session=0.1)
    await commit(wire, "i", "x", "y")
    await commit(wire, "i", "longer", "y")
    assert narrow.budget.free < before - 5 * KIB
    await wire.call("leave_group", group_id="g", members=[{"member_id": "", **static}])
    await leave(wire, "h", one.member_id)
    await until(lambda: not narrow.groups["h"].members, "the one that has only a name is removed")
    answer = await wire.call("delete_groups", groups_names=("g", "h", "i"))
    assert [each.error_code for each in answer.results] == [ErrorCode.none] * 3
    assert narrow.budget.free == before


async def test_members_with_much_metadata_leave_the_memory_alone(own_served: Served) -> None:
    memory = own_served.memory()
    codes: set[ErrorCode] = set()
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(await Wire.open(own_served.port)) for _ in range(10)]
        for number in range(0, 300, len(wires)):
            answers = await asyncio.gather(*[join(wire, f"g{number}-{at}", MIB) for at, wire in enumerate(wires)])
            codes |= {each.error_code for each in answers}
        assert own_served.memory() < memory + 150 * MIB
    assert codes == {ErrorCode.none, FULL}


# answers


async def test_group_named_again_and_again_is_described_once(wire: Wire) -> None:
    await join(wire, "g", 10 * KIB)
    await commit(wire, "h", "x" * KIB)
    described = await wire.call("describe_groups", groups=("g", "h") * 1_000)
    assert [each.group_id for each in described.groups] == ["g", "h"]
    groups = [{"group_id": "h", "topics": None}] * 1_000
    fetched = await wire.call("offset_fetch", version=8, groups=groups)
    assert [(each.group_id, len(each.topics)) for each in fetched.groups] == [("h", 1)]


async def test_topic_named_again_and_again_is_described_once(wire: Wire) -> None:
    answer = await wire.call("metadata", topics=[{"name": "t"}] * 1_000)
    assert [each.name for each in answer.topics] == ["t"]
    asked = [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}] * 1_000
    assert len((await wire.call("describe_configs", resources=asked)).results) == 1


# requests


def kept(api: str) -> int:
    """How many requests and plans there are in memory."""
    gc.collect()
    kind = load_request_schema(KEYS[api], VERSIONS[api])
    plans = [each for each in gc.get_objects() if type(each) is dict and "a stranger" in each]
    return len(plans) + sum(isinstance(each, kind) for each in gc.get_objects())


@pytest.mark.parametrize("api", PREPARED)
async def test_request_that_waits_is_not_kept(start: Start, api: str) -> None:
    broker = await start(BrokerSettings(partition=Settings(lag=LONG)))
    purgatory, prepare = next(each for each in broker.purgatories if each.name == PREPARED[api][0]), PREPARED[api][1]
    async with await Wire.open(broker.port) as wire, await Wire.open(broker.port) as helper:
        values = await prepare(wire, helper)
        before, pending = kept(api), purgatory.statistics().pending
        large = {"rack_id": "r" * 3_000}  # small ones are kept on purpose
        await wire.send(api, **values | large | {"assignments": [{"member_id": "a stranger"}]})
        await until(lambda: purgatory.statistics().pending > pending, "it waits")
        assert kept(api) == before


#: Modules of the broker with objects of a request.
OF_BROKER: Final = ("broker_example.errors", "broker_example.wire")
REFUSED: dict[str, dict[str, Any]] = {
    "produce": produce_values("nothing", batch(b"x")),
    "fetch": fetch_values("nothing", 0, wait=60.0),
    "delete_records": {"topics": [{"name": "nothing", "partitions": [{"partition_index": 0}]}]},
    "list_offsets": {"topics": [{"name": "nothing", "partitions": [{"partition_index": 0}]}]},
    "offset_commit": {"topics": [{"name": "nothing", "partitions": [{"partition_index": 0}]}]},
    "delete_topics": {"topic_names": ["nothing"]},
    "join_group": join_values(""),
    "sync_group": {"group_id": "nothing"},
    "heartbeat": {"group_id": "nothing"},
}


@pytest.mark.parametrize("api", REFUSED)
async def test_refused_request_leaves_nothing_for_the_garbage_collector(wire: Wire, api: str) -> None:
    await wire.call(api, **REFUSED[api])
    gc.collect()
    gc.disable()
    try:
        await wire.call(api, **REFUSED[api])
        left = [each for each in map(type, gc.get_objects()) if each.__module__ in OF_BROKER]
    finally:
        gc.enable()
    assert left == []
