"""Topics, records, configs and groups, as an administrator asks for them: confluent-kafka, and raw requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka import admin as admin_api
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from aiopurgatory.testing import check_invariants

from ..replication import Partition, Settings
from ..server import Broker, BrokerSettings
from .asks import EARLIEST, batch, create, fetch, fetch_values, named, offset_at, produce, values_in
from .served import PATIENCE, Served
from .waits import until
from .wires import Wire

BOTH = ("quick", "slow")
# The package exports neither, as a type checker sees it.
ConfigResource: Any = vars(admin_api)["ConfigResource"]
NewPartitions: Any = vars(admin_api)["NewPartitions"]
NewTopic: Any = vars(admin_api)["NewTopic"]


class Stalling(Broker):
    """The followers of each topic named "slow" do not fetch."""

    def make_partition(self, topic: str, number: int, settings: Settings) -> Partition:
        partition = super().make_partition(topic, number, settings)
        for follower in partition.followers:
            follower.stall(topic == "slow")
        return partition


@pytest.fixture
async def stalling() -> AsyncIterator[Broker]:
    broker = Stalling()
    await broker.start()
    yield broker
    check_invariants(broker.admin)
    await broker.close()
    assert broker.admin.statistics().pending == 0


@pytest.fixture
def admin(served: Served) -> AdminClient:
    return AdminClient({"bootstrap.servers": served.address})


def codes(futures: dict[Any, Any]) -> dict[Any, str | None]:
    """The name of each error, or None."""
    errors = {key: future.exception(PATIENCE) for key, future in futures.items()}
    return {key: error and error.args[0].name() for key, error in errors.items()}


def stall(broker: Broker, topic: str, stalled: bool) -> None:
    for partition in broker.topics[topic]:
        for follower in partition.followers:
            follower.stall(stalled)


async def create_both(wire: Wire, timeout: float) -> dict[str, ErrorCode]:
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in BOTH]
    answer = await wire.call("create_topics", topics=topics, timeout=timedelta(seconds=timeout))
    return {each.name: each.error_code for each in answer.topics}


# what a new topic may be


def test_create_with_bad_settings_is_refused_and_the_rest_created(admin: AdminClient) -> None:
    wanted = {
        "made": NewTopic("made"),
        "made-3": NewTopic("made-3", 3, config={"retention.bytes": "5000", "cleanup.policy": "compact"}),
        "copies": NewTopic("copies", 1, 9),
        "bogus": NewTopic("bogus", 1, 1, config={"no.such.config": "1"}),
        "number": NewTopic("number", 1, 1, config={"retention.ms": "long"}),
        "none": NewTopic("none", 0, 1),
    }
    assert codes(admin.create_topics(list(wanted.values()))) == {
        "made": None,
        "made-3": None,
        "copies": "INVALID_REPLICATION_FACTOR",
        "bogus": "INVALID_CONFIG",
        "number": "INVALID_CONFIG",
        "none": "INVALID_PARTITIONS",
    }
    assert codes(admin.create_topics([NewTopic("made")])) == {"made": "TOPIC_ALREADY_EXISTS"}
    topics = admin.list_topics(timeout=PATIENCE).topics
    assert {name: len(topics[name].partitions) for name in wanted if name in topics} == {"made": 2, "made-3": 3}


async def test_create_with_assigned_replicas_counts_them(wire: Wire) -> None:
    def assigned(name: str, *brokers: int, count: int = -1) -> dict[str, Any]:
        parts = [{"partition_index": number, "broker_ids": (node,)} for number, node in enumerate(brokers)]
        return {"name": name, "num_partitions": count, "replication_factor": -1, "assignments": parts}

    asked = [assigned("three", 0, 0, 0), assigned("elsewhere", 0, 7), assigned("both", 0, count=1)]
    answers = (await wire.call("create_topics", topics=asked, timeout=timedelta(seconds=5))).topics
    assert [(each.error_code, each.num_partitions) for each in answers] == [
        (ErrorCode.none, 3),
        (ErrorCode.invalid_replica_assignment, -1),
        (ErrorCode.invalid_request, -1),
    ]


async def test_topics_that_come_twice_in_a_request_are_refused(wire: Wire, broker: Broker) -> None:
    new = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in (("a", 1), ("b", 1))]
    await wire.call("create_topics", topics=[new[0]])
    created = (await wire.call("create_topics", topics=[new[1], new[0], new[1] | {"num_partitions": 3}])).topics
    assert [(each.name, each.error_code) for each in created] == [
        ("b", ErrorCode.invalid_request),
        ("a", ErrorCode.topic_already_exists),
    ]
    assert "b" not in broker.topics
    grown = (
        await wire.call("create_partitions", topics=[{"name": "a", "count": 5}, {"name": "a", "count": 9}])
    ).results
    assert [(each.name, each.error_code) for each in grown] == [("a", ErrorCode.invalid_request)]
    assert len(broker.topics["a"]) == 1


def test_validate_only_answers_and_creates_nothing(admin: AdminClient) -> None:
    asked = [NewTopic("checked"), NewTopic("checked-9", 1, 9)]
    found = codes(admin.create_topics(asked, validate_only=True))
    assert found == {"checked": None, "checked-9": "INVALID_REPLICATION_FACTOR"}
    assert "checked" not in admin.list_topics(timeout=PATIENCE).topics


@pytest.mark.parametrize("version", [5, 6, 7])
async def test_create_answers_the_numbers_behind_the_defaults(wire: Wire, broker: Broker, version: int) -> None:
    wanted = {"name": "t", "num_partitions": -1, "replication_factor": -1}
    answer = (await wire.call("create_topics", version=version, topics=[wanted])).topics[0]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.none, 2, 1)
    assert {each.name: each.value for each in answer.configs}["cleanup.policy"] == "delete"
    assert getattr(answer, "topic_id", broker.topics["t"].id) == broker.topics["t"].id
    refused = (await wire.call("create_topics", version=version, topics=[wanted])).topics[0]
    assert (refused.num_partitions, refused.replication_factor) == (-1, -1)


async def test_configs_of_a_topic_are_obeyed(wire: Wire, broker: Broker) -> None:
    configs = [{"name": "min.insync.replicas", "value": "3"}, {"name": "retention.bytes", "value": "400"}]
    await wire.call(
        "create_topics", topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}]
    )
    for _ in range(20):
        await produce(wire, "t", batch(b"x" * 100))
    assert broker.topics["t"][0].log.start > 10
    broker.topics["t"][0].replicas.drop(1)
    assert (await produce(wire, "t", batch(b"x"))).error_code == ErrorCode.not_enough_replicas


@pytest.mark.parametrize("version", [8, 9, 12])
async def test_metadata_names_no_replica_without_its_broker(wire: Wire, version: int) -> None:
    await create(wire, "t", 3)
    answer = await wire.call("metadata", version=version, topics=None)
    nodes = {each.node_id for each in answer.brokers}
    parts = answer.topics[0].partitions
    assert len(parts) == 3
    assert {node for part in parts for node in (part.leader_id, *part.replica_nodes, *part.isr_nodes)} == nodes


async def test_metadata_by_id_and_fetch_by_id(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"x"))
    topic_id = broker.topics["t"].id
    ids = [{"topic_id": topic_id, "name": None}, {"topic_id": uuid4(), "name": None}]
    found = (await wire.call("metadata", version=12, topics=ids)).topics
    assert [(each.name, each.error_code) for each in found] == [
        ("t", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]
    values = fetch_values("t", 0, wait=0.0)
    values["topics"][0] = {"topic_id": topic_id, "partitions": values["topics"][0]["partitions"]}
    (answer,) = (await wire.call("fetch", version=13, **values)).responses
    assert (answer.topic_id, values_in(answer.partitions[0].records)) == (topic_id, [b"x"])


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_id_in_a_version_without_is_answered(wire: Wire, version: int) -> None:
    await create(wire, "t")
    answer = await wire.call("metadata", version=version, topics=[{"topic_id": uuid4(), "name": None}, {"name": "t"}])
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("", ErrorCode.invalid_topic_exception),
        ("t", ErrorCode.none),
    ]


# each waits until the replicas know


async def test_create_that_is_late_for_one_topic_answers_for_both(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire:
        assert await create_both(wire, 0.2) == {"quick": ErrorCode.none, "slow": ErrorCode.request_timed_out}
        assert set(stalling.topics) == set(BOTH)  # as in Kafka: it is late, not refused


async def test_create_waits_for_the_followers(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire:
        task = asyncio.create_task(create_both(wire, 30.0))
        await until(lambda: stalling.admin.num_delayed, "the request waits")
        await asyncio.sleep(0.05)
        assert not task.done()
        stall(stalling, "slow", False)
        assert await task == dict.fromkeys(BOTH, ErrorCode.none)


async def test_create_partitions_waits_for_the_new_ones(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire:
        await create_both(wire, 0.1)
        stall(stalling, "slow", False)
        topics = [{"name": name, "count": count} for name, count in (("quick", 3), ("slow", 4), ("none", 1))]
        answer = await wire.call("create_partitions", topics=topics, timeout=timedelta(seconds=0.2))
        assert [each.error_code for each in answer.results] == [
            ErrorCode.none,
            ErrorCode.request_timed_out,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert [len(stalling.topics[name]) for name in BOTH] == [3, 4]


def test_create_partitions_of_a_client_are_there(admin: AdminClient) -> None:
    assert codes(admin.create_topics([NewTopic("grows", 2)])) == {"grows": None}
    asked = [NewPartitions("grows", 5), NewPartitions("unknown", 2)]
    assert codes(admin.create_partitions(asked)) == {"grows": None, "unknown": "UNKNOWN_TOPIC_OR_PART"}
    assert codes(admin.create_partitions([NewPartitions("grows", 4)])) == {"grows": "INVALID_PARTITIONS"}
    assert codes(admin.create_partitions([NewPartitions("grows", 9)], validate_only=True)) == {"grows": None}
    assert len(admin.list_topics("grows", PATIENCE).topics["grows"].partitions) == 5


async def test_delete_by_name_and_id_waits_for_the_followers(wire: Wire, broker: Broker) -> None:
    for name in ("a", "b"):
        await create(wire, name)
    followers = [follower for topic in broker.topics.values() for part in topic for follower in part.followers]
    topics = [{"name": "a"}, {"name": None, "topic_id": broker.topics["b"].id}, {"name": None, "topic_id": uuid4()}]
    timeout = timedelta(seconds=5)
    answer = await wire.call("delete_topics", version=6, topics=[{"name": "c"}, *topics], timeout=timeout)
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("c", ErrorCode.unknown_topic_or_partition),
        ("a", ErrorCode.none),
        ("b", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]
    assert all(follower.is_stopped for follower in followers)
    assert not broker.topics


async def test_delete_waits_until_the_followers_have_stopped(stalling: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await Wire.open(stalling.port) as wire:
        for timeout, code in ((0.2, ErrorCode.request_timed_out), (30.0, ErrorCode.none)):
            await create_both(wire, 0.1)
            followers = [follower for part in stalling.topics["slow"] for follower in part.followers]
            stops = [follower.stop for follower in followers]
            for follower in followers:
                monkeypatch.setattr(follower, "stop", lambda: None)
            deleted = wire.call("delete_topics", topic_names=BOTH, timeout=timedelta(seconds=timeout))
            task = asyncio.create_task(deleted)
            await until(lambda: stalling.admin.num_delayed, "the request waits")
            if code == ErrorCode.request_timed_out:
                await task
            for stop in stops:
                stop()
            answers = {each.name: each.error_code for each in (await task).responses}
            assert answers == {"quick": ErrorCode.none, "slow": code}


async def test_stop_answers_a_create_that_waits(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire:
        task = asyncio.create_task(create_both(wire, 30.0))
        await until(
            lambda: "quick" in stalling.topics and stalling.topics["quick"].created() is not None, "it is there"
        )
        assert stalling.admin.num_delayed == 1
        await stalling.close()
        assert await task == {"quick": ErrorCode.none, "slow": ErrorCode.request_timed_out}


def test_group_reads_a_topic_anew_that_was_deleted_and_created(admin: AdminClient, served: Served) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": served.address,
        "group.id": "anew",
        "auto.offset.reset": "earliest",
    }
    producer = confluent_kafka.Producer({"bootstrap.servers": served.address})
    for life in (b"old", b"new"):
        assert codes(admin.create_topics([NewTopic("anew", 1)])) == {"anew": None}
        for _ in range(3):
            producer.produce("anew", life, partition=0)
            assert producer.flush(PATIENCE) == 0
        consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe(["anew"])
        assert [message.value() for message in consumer.consume(3, PATIENCE)] == [life] * 3
        consumer.commit(asynchronous=False)
        consumer.close()
        assert codes(admin.delete_topics(["anew"])) == {"anew": None}


async def test_create_whose_topic_is_deleted_meanwhile_is_answered(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire, await Wire.open(stalling.port) as other:
        task = asyncio.create_task(create_both(wire, 30.0))
        await until(lambda: stalling.admin.num_delayed, "the request waits")
        await other.call("delete_topics", topic_names=["slow"], timeout=timedelta(seconds=5))
        async with asyncio.timeout(5):
            assert await task == {"quick": ErrorCode.none, "slow": ErrorCode.unknown_topic_or_partition}


def test_elect_leaders_is_not_needed(admin: AdminClient) -> None:
    assert codes(admin.create_topics([NewTopic("led", 1)])) == {"led": None}
    asked = [TopicPartition("led", 0), TopicPartition("led", 7)]
    found = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, asked).result(PATIENCE)
    assert sorted(error.name() for error in found.values()) == ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PART"]


async def elect(wire: Wire, timeout: float) -> dict[tuple[str, int], ErrorCode]:
    answer = await wire.call("elect_leaders", topic_partitions=None, timeout=timedelta(seconds=timeout))
    return {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


async def test_elect_leaders_waits_until_the_followers_follow(stalling: Broker) -> None:
    async with await Wire.open(stalling.port) as wire, await Wire.open(stalling.port) as other:
        await create_both(wire, 0.1)
        quick = {("quick", number): ErrorCode.election_not_needed for number in range(2)}
        slow = [("slow", number) for number in range(2)]
        assert await elect(wire, 0.2) == quick | dict.fromkeys(slow, ErrorCode.request_timed_out)
        task = asyncio.create_task(elect(wire, 30.0))
        await until(lambda: stalling.admin.num_delayed, "the request waits")
        for follower in stalling.topics["slow"][0].followers:
            follower.stall(False)
        await asyncio.sleep(0.05)
        assert not task.done()
        await other.call("delete_topics", topic_names=["slow"], timeout=timedelta(seconds=5))
        expected = {slow[0]: ErrorCode.election_not_needed, slow[1]: ErrorCode.unknown_topic_or_partition}
        assert await task == quick | expected


# records


def test_deleted_records_of_a_client_are_gone(admin: AdminClient, served: Served) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": served.address, "linger.ms": 0, "batch.num.messages": 3})
    for number in range(9):
        producer.produce("trimmed", b"%d" % number, partition=0)
    assert producer.flush(PATIENCE) == 0
    asked = [TopicPartition("trimmed", 0, 4), TopicPartition("trimmed", 1, 3)]
    found = {(key.partition): future for key, future in admin.delete_records(asked).items()}
    assert found[0].result(PATIENCE).low_watermark == 4
    del found[0]
    assert codes(found) == {1: "OFFSET_OUT_OF_RANGE"}
    settings = {"bootstrap.servers": served.address, "group.id": "trimmed", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    assert consumer.get_watermark_offsets(TopicPartition("trimmed", 0), PATIENCE) == (4, 9)
    consumer.assign([TopicPartition("trimmed", 0, 0)])  # which is gone: it begins at the start there is
    assert [message.value() for message in consumer.consume(5, PATIENCE)] == [b"4", b"5", b"6", b"7", b"8"]
    consumer.close()


async def delete_records(wire: Wire, offset: int, timeout: float = 5.0) -> tuple[ErrorCode, int]:
    parts = [{"partition_index": 0, "offset": offset}]
    topics = [{"name": "t", "partitions": parts}]
    answer = await wire.call("delete_records", topics=topics, timeout=timedelta(seconds=timeout))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


async def test_delete_records_waits_for_every_live_replica(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    for number in range(4):
        await produce(wire, "t", batch(b"%d" % number))
    assert await delete_records(wire, 1) == (ErrorCode.none, 1)
    partition = broker.topics["t"][0]
    partition.followers[1].stall(True)
    await produce(wire, "t", batch(b"4"), timeout=0.1)  # ends the fetch that it has begun
    assert await delete_records(wire, 3, 0.2) == (ErrorCode.request_timed_out, -1)
    assert (await fetch(wire, "t", 2, wait=0.0)).error_code == ErrorCode.offset_out_of_range  # the leader has done it
    task = asyncio.create_task(delete_records(wire, 4, 30.0))
    await until(lambda: broker.admin.num_delayed, "the request waits")
    partition.followers[1].stall(False)
    assert await task == (ErrorCode.none, 4)
    assert await delete_records(wire, -1) == (ErrorCode.none, 5)
    assert values_in((await fetch(wire, "t", 5, wait=0.0)).records) == []
    assert (await produce(wire, "t", batch(b"5"))).base_offset == 5


async def test_delete_records_answers_the_fetch_that_waits_there(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    for number in range(3):
        await produce(wire, "t", batch(b"%d" % number))
    async with await Wire.open(broker.port) as before, await Wire.open(broker.port) as behind:
        parked = broker.fetches.statistics().pending
        for each, offset in ((before, 0), (behind, 2)):
            await each.send("fetch", **fetch_values("t", offset, wait=60.0, min_bytes=10_000))
        await until(lambda: broker.fetches.statistics().pending == parked + 2, "both wait")
        assert await delete_records(wire, 2) == (ErrorCode.none, 2)
        answer = (await before.receive()).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.offset_out_of_range
        assert broker.fetches.statistics().pending == parked + 1


async def test_search_by_time_finds_no_deleted_record_of_a_batch(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"0", b"1", b"2", timestamp=1_000))
    assert await delete_records(wire, 2) == (ErrorCode.none, 2)
    for timestamp in (500, EARLIEST):
        found = await offset_at(wire, "t", timestamp)
        assert (found.error_code, found.offset) == (ErrorCode.none, 2)
    assert broker.topics["t"][0].log.offset_of_latest(3) == (2, 1_000)
    assert len(values_in((await fetch(wire, "t", 2, wait=0.0)).records)) == 3  # its client skips those before


async def test_delete_records_does_not_wait_for_a_dropped_replica(start: Any) -> None:
    broker = await start(BrokerSettings(partition=Settings(max_lag=0.3, min_in_sync=1)))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        partition = broker.topics["t"][0]
        stall(broker, "t", True)
        await produce(wire, "t", batch(b"0"), acks=1)
        await until(lambda: len(partition.replicas.in_sync) == 1, "both are dropped")
        assert await delete_records(wire, -1) == (ErrorCode.none, 1)
        stall(broker, "t", False)
        await until(lambda: len(partition.replicas.in_sync) == len(partition.starts.in_sync) == 3, "they are back")
        await produce(wire, "t", batch(b"1"))
        assert await delete_records(wire, 2) == (ErrorCode.none, 2)


async def test_delete_topic_ends_the_wait_to_delete_its_records(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    stall(broker, "t", True)
    for number in range(2):
        await produce(wire, "t", batch(b"%d" % number), acks=1)
    await until(lambda: broker.topics["t"][0].log.end == 2, "both are there")
    stall(broker, "t", False)
    await until(lambda: broker.topics["t"][0].replicas.high_watermark == 2, "both are committed")
    stall(broker, "t", True)
    await produce(wire, "t", batch(b"x"), acks=1)  # ends the fetches that have begun
    task = asyncio.create_task(delete_records(wire, 1, 30.0))
    await until(lambda: broker.admin.num_delayed, "the request waits")
    async with await Wire.open(broker.port) as other:
        await other.call("delete_topics", topic_names=["t"], timeout=timedelta(seconds=5))
    assert await task == (ErrorCode.unknown_topic_or_partition, -1)


# configs


def test_configs_of_topics_and_brokers_are_described(admin: AdminClient) -> None:
    config = {"retention.bytes": "5000"}
    assert codes(admin.create_topics([NewTopic("described", 1, config=config)])) == {"described": None}
    topic, broker = ConfigResource("topic", "described"), ConfigResource("broker", "0")
    found = {key: future.result(PATIENCE) for key, future in admin.describe_configs([topic, broker]).items()}
    assert (found[topic]["retention.bytes"].value, found[topic]["retention.bytes"].is_default) == ("5000", False)
    assert (found[topic]["cleanup.policy"].value, found[topic]["cleanup.policy"].is_default) == ("delete", True)
    assert (found[broker]["num.partitions"].value, found[broker]["num.partitions"].is_read_only) == ("2", True)
    assert list(codes(admin.describe_configs([ConfigResource("topic", "no")])).values()) == ["UNKNOWN_TOPIC_OR_PART"]


async def test_configs_by_name_are_those_alone(wire: Wire) -> None:
    await create(wire, "t")
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": ("retention.ms", "no.such")}
    other = {"resource_type": 4, "resource_name": "7"}
    result, refused = (await wire.call("describe_configs", resources=[asked, other])).results
    assert refused.error_code == ErrorCode.invalid_request
    assert [(each.name, each.value) for each in result.configs] == [("retention.ms", "604800000")]


@pytest.mark.parametrize("keys", [None, ()], ids=["null", "empty"])
async def test_configs_without_names_are_all(wire: Wire, keys: tuple[str, ...] | None) -> None:
    await create(wire, "t")
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
    (result,) = (await wire.call("describe_configs", resources=[asked])).results
    assert len(result.configs) > 20


# groups


def test_groups_of_a_client_are_listed_described_and_deleted(admin: AdminClient, served: Served) -> None:
    assert codes(admin.create_topics([NewTopic("listed", 2)])) == {"listed": None}
    settings = {"bootstrap.servers": served.address, "group.id": "listed", "client.id": "ann"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["listed"])
    while not consumer.assignment():
        consumer.poll(0.05)

    def states() -> dict[str, str]:
        return {each.group_id: each.state.name for each in admin.list_consumer_groups().result(PATIENCE).valid}

    assert states()["listed"] == "STABLE"
    found = admin.describe_consumer_groups(["listed", "unknown"])
    described = found["listed"].result(PATIENCE)
    (member,) = described.members
    assert (described.state.name, described.partition_assignor, member.client_id) == ("STABLE", "range", "ann")
    assert member.assignment.topic_partitions == [TopicPartition("listed", 0), TopicPartition("listed", 1)]
    assert found["unknown"].result(PATIENCE).state.name == "DEAD"
    refused = {"listed": "NON_EMPTY_GROUP", "unknown": "GROUP_ID_NOT_FOUND"}
    assert codes(admin.delete_consumer_groups(["listed", "unknown"])) == refused
    consumer.close()
    assert states()["listed"] == "EMPTY"
    assert codes(admin.delete_consumer_groups(["listed"])) == {"listed": None}
    assert "listed" not in states()


async def test_group_between_generations_is_preparing(wire: Wire, broker: Broker) -> None:
    await named(wire, "g")
    await wire.call("offset_commit", group_id="simple", generation_id_or_member_epoch=-1, topics=[])
    listed = (await wire.call("list_groups")).groups
    assert {each.group_id: each.group_state for each in listed} == {"g": "Empty", "simple": "Empty"}
    filtered = (await wire.call("list_groups", states_filter=("stable",))).groups
    assert filtered == ()
    assert broker.groups["g"].described() == {}


async def test_coordinators_and_offsets_of_several_groups_in_one_request(wire: Wire) -> None:
    await create(wire, "t")
    part = {"partition_index": 0, "committed_offset": 7}
    topics = [{"name": "t", "partitions": [part]}]
    await wire.call("offset_commit", group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    found = (await wire.call("find_coordinator", version=4, coordinator_keys=("g", "h"))).coordinators
    assert [(each.key, each.node_id, each.error_code) for each in found] == [
        ("g", 0, ErrorCode.none),
        ("h", 0, ErrorCode.none),
    ]
    groups = [{"group_id": name, "topics": [{"name": "t", "partition_indexes": (0,)}]} for name in ("g", "h")]
    answers = (await wire.call("offset_fetch", version=8, groups=groups)).groups
    offsets = {each.group_id: each.topics[0].partitions[0].committed_offset for each in answers}
    assert offsets == {"g": 7, "h": -1}
