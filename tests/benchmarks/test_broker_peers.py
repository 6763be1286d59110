"""The benchmark of the broker: both forms of it give the same answers, and each measurement runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("aiokafka")
from brokers import frames
from brokers.processes import python_path, serving
from kio.schema.errors import ErrorCode

import aiopurgatory

ROOT = Path(__file__).parents[2]
LIBRARY = str(Path(aiopurgatory.__file__).parents[1])
SMALL = frames.batch(b"value")
KEY = ("topic", 0)
OTHER = ("topic", 1)
UNKNOWN = ("unknown", 0)
BROKERS = ("ours", "event")


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> Any:
        """The answer, as kio has it."""
        self.writer.write(request)
        api = {0: "produce", 1: "fetch", 19: "create_topics", 20: "delete_topics"}[int.from_bytes(request[4:6])]
        async with asyncio.timeout(10):
            size = int.from_bytes(await self.reader.readexactly(4))
            return frames.answer(api, await self.reader.readexactly(size))


class Client:
    """Opens connections to a broker that has one topic of two partitions."""

    def __init__(self, port: int, close: Callable[[], None]) -> None:
        self.close = close
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return Wire(reader, writer)

    async def ask(self, request: bytes) -> Any:
        return await (await self.open()).ask(request)

    async def asking(self, request: bytes) -> asyncio.Task[Any]:
        """A request that is at the broker, most probably, and waits there."""
        task = asyncio.create_task(self.ask(request))
        await asyncio.sleep(0.15)
        assert not task.done(), task
        return task

    async def leave(self) -> None:
        for writer in self._writers:
            writer.close()


Scenario = Callable[[Client], Coroutine[Any, Any, list[Any]]]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path(LIBRARY))


async def answers_of(broker: str, scenario: Scenario, **settings: Any) -> list[Any]:
    with serving(broker, **settings) as (process, port):
        client = Client(port, process.close)
        await client.ask(frames.create_topic("topic", 2))
        await asyncio.sleep(0.1)  # followers have made their first fetch
        answers = await scenario(client)
        await client.leave()
        return answers


async def produce_and_fetch(client: Client) -> list[Any]:
    return [
        await client.ask(frames.produce({KEY: SMALL})),
        await client.ask(frames.produce({KEY: SMALL, OTHER: SMALL, UNKNOWN: SMALL})),
        await client.ask(frames.produce({KEY: b"no batch"})),
        await client.ask(frames.produce({KEY: SMALL}, timeout=0)),
        await client.ask(frames.produce({KEY: SMALL}, acks=1)),
        await client.ask(frames.fetch({KEY: 0}, wait=5)),
        await client.ask(frames.fetch({KEY: 1, OTHER: 0}, wait=5, max_bytes=len(SMALL))),
        await client.ask(frames.fetch({KEY: 0, UNKNOWN: 0}, wait=5, min_bytes=10_000)),
        await client.ask(frames.fetch({KEY: 99}, wait=5)),
        await client.ask(frames.fetch({OTHER: 1}, wait=0)),
        await client.ask(frames.fetch({OTHER: 1}, wait=0.2)),
        await client.ask(frames.fetch({OTHER: 0}, wait=0.2, min_bytes=10_000)),
    ]


async def fetch_that_waits(client: Client) -> list[Any]:
    waiting = await client.asking(frames.fetch({KEY: 0, OTHER: 0}, wait=5, min_bytes=2 * len(SMALL)))
    longer = await client.asking(frames.fetch({KEY: 0}, wait=5, min_bytes=10_000))
    answers = [await client.ask(frames.produce({KEY: SMALL}))]
    assert not waiting.done()
    answers += [await client.ask(frames.produce({OTHER: SMALL})), await waiting]
    answers.append(await client.ask(frames.delete_topic("topic")))
    return [*answers, await longer]


async def produce_that_waits(client: Client) -> list[Any]:
    """Followers fetch after 0.5 s."""
    late = await client.ask(frames.produce({KEY: SMALL}, timeout=0.1))
    in_time = await client.ask(frames.produce({KEY: SMALL, OTHER: SMALL, UNKNOWN: SMALL}))
    read = await client.ask(frames.fetch({KEY: 0}, wait=1))
    waiting = await client.asking(frames.produce({KEY: SMALL}))
    return [late, in_time, read, await client.ask(frames.delete_topic("topic")), await waiting]


async def closing(client: Client) -> list[Any]:
    waiting = await client.asking(frames.fetch({KEY: 0}, wait=9))
    acked = await client.asking(frames.produce({OTHER: SMALL}, timeout=9))
    closed = asyncio.create_task(asyncio.to_thread(client.close))
    async with asyncio.timeout(4):
        answers = [await waiting, await acked]
    await closed
    return answers


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        (produce_and_fetch, {}),
        (fetch_that_waits, {}),
        (produce_that_waits, {"lag": 0.5}),
        (closing, {"lag": 30.0}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_brokers_answer_alike(scenario: Scenario, settings: dict[str, Any]) -> None:
    ours, theirs = [asyncio.run(answers_of(broker, scenario, **settings)) for broker in BROKERS]
    assert ours == theirs
    expected = {
        "produce_that_waits": {"request_timed_out", "unknown_topic_or_partition"},
        "fetch_that_waits": {"unknown_topic_or_partition"},
        "closing": {"request_timed_out"},
        "produce_and_fetch": {"offset_out_of_range", "corrupt_message", "unknown_topic_or_partition"},
    }
    found = {code.name for code in ErrorCode if f"<ErrorCode.{code.name}: " in repr(ours)}
    assert found >= expected[scenario.__name__]


@pytest.mark.parametrize(
    "whats", [["parked"], pytest.param(["clients", "parked", "many", "idle"], marks=pytest.mark.slow)]
)
@pytest.mark.timeout(120)
def test_bench_broker_smoke_measures_both(whats: list[str]) -> None:
    pytest.importorskip("confluent_kafka")
    options = [f"--only={what}" for what in whats]
    command = [sys.executable, "benchmarks/bench_broker.py", "--smoke", "--compiled", LIBRARY, *options]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stderr) == (0, "")
    texts = run.stdout.splitlines()
    lines = [json.loads(line) for line in texts if line.startswith("{")][1:]
    assert [(line["what"], line["broker"]) for line in lines] == [
        (each, broker)
        for what in whats
        for broker in BROKERS
        for each in ([what, "grouped"] if what == "idle" else [what])
    ]
    for line in lines:
        if line["what"] == "clients":
            assert ("parked" in line) == (line["broker"] == "ours")
            assert line["p50_ms"] > 0
        elif line["what"] == "grouped":
            assert line["broker_cpu_percent"] > 0
        else:
            assert line["broker_cpu_us_per_answer"] > 0
            assert (line["expired_share"] == 1.0) == (line["what"] == "idle")
    assert any("broker's CPU per answer, ours / Event" in line for line in texts)
