"""Metrics of real purgatories, scraped as Prometheus does, of one process and of several."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import shutil
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from streams.faulty import FaultyStore  # type: ignore[import-not-found]
from web.polls import Given, until  # type: ignore[import-not-found]

from aiopurgatory import DelayedOperation, Purgatory, PurgatoryFullError, Statistics
from aiopurgatory.metrics import Metrics
from aiopurgatory.metrics.collector import MAX_KINDS
from aiopurgatory.streams import EventLog, MemoryLog, StoreDownError
from aiopurgatory.testing import ManualClock, MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling

ROOT = Path(__file__).parents[1]


class Fetch(DelayedOperation[str]):
    ready = False

    def __init__(self, timeout: float | None = None) -> None:
        super().__init__(timeout)

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()


class Produce(Fetch):
    pass


Samples = dict[str, float]


def scraped(registry: CollectorRegistry) -> Samples:
    """Every sample by its name and its sorted labels, without the zeros."""
    return samples(generate_latest(registry).decode())


def samples(text: str) -> Samples:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            if sample.value and not sample.name.endswith(("_created", "_bucket")):
                found[f"{sample.name.removeprefix('aiopurgatory_')}{{{labels}}}"] = sample.value
    return found


def open_now(registry: CollectorRegistry) -> Samples:
    """The samples of what is open: without counters and histograms, which stay."""
    return {name: value for name, value in scraped(registry).items() if not re.search(r"_(total|sum|count)\{", name)}


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Processes share their metrics. It is too late for prometheus_client to write there, but not for us."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry)


async def test_scrape_shows_what_statistics_say(
    metrics: Metrics, registry: CollectorRegistry, clock: ManualClock
) -> None:
    async with Purgatory("fetch", max_pending=6, purge_interval=1000, clock=clock, observers=[metrics]) as purgatory:
        await clock.advance(0)
        ops = [
            purgatory.watch(Fetch(timeout), ["key", n]) for n, timeout in enumerate([1.0, 1.0, None, 9.0, 0.005, 9.0])
        ]
        with pytest.raises(PurgatoryFullError):
            purgatory.watch(Fetch(1.0), ["key"])
        purgatory.check_and_complete("key")
        purgatory.check_and_complete("3")
        await clock.advance(0.01)
        ops[0].ready = ops[3].ready = True
        purgatory.check_and_complete(3)
        rows = [None, None, "row"]  # the first read counts for nothing, the second for a miss

        async def read() -> str | None:
            return rows.pop(0)

        reading = asyncio.create_task(purgatory.wait_for(read, ["table"], timeout=None))
        for _ in range(2):
            await clock.settle()
            purgatory.check_and_complete("table")
        assert await reading == "row"
        await clock.advance(1.0)
        ops[2].cancel()
        purgatory.purge()
        found = scraped(registry)
    found.pop("longest_turn_seconds{purgatory=fetch}")
    assert found.pop("wakeups_total{purgatory=fetch}") > 0
    assert found.pop("worker_pid{}") == os.getpid()
    assert found.pop("cascaded_operations_total{purgatory=fetch}") > 0
    assert found.pop("wait_seconds_sum{kind=Fetch,outcome=completed,purgatory=fetch}") == pytest.approx(1.01)
    assert found.pop("wait_seconds_sum{kind=Fetch,outcome=expired,purgatory=fetch}") == pytest.approx(1.005)
    assert found.pop("wait_seconds_sum{kind=Fetch,outcome=cancelled,purgatory=fetch}") == pytest.approx(1.01)
    assert found == {
        "pending_operations{purgatory=fetch}": 1,
        "watched_entries{purgatory=fetch}": 2,
        "watch_keys{purgatory=fetch}": 2,
        "level_operations{level=3,purgatory=fetch}": 1,
        "operations_total{outcome=completed,purgatory=fetch}": 3,
        "operations_total{outcome=expired,purgatory=fetch}": 2,
        "operations_total{outcome=cancelled,purgatory=fetch}": 1,
        "missed_triggers_total{purgatory=fetch}": 1,
        "missed_kinds_total{key=str,kind=Fetch,purgatory=fetch}": 1,
        "refused_operations_total{purgatory=fetch}": 1,
        "checks_total{purgatory=fetch,result=hit}": 3,
        "checks_total{purgatory=fetch,result=miss}": 1,
        "reads_total{purgatory=fetch,result=hit}": 1,
        "reads_total{purgatory=fetch,result=miss}": 1,
        "checks_of_twins_total{purgatory=fetch}": 1,
        "purges_total{purgatory=fetch}": 1,
        "purged_entries_total{purgatory=fetch}": 8,
        "wait_seconds_count{kind=Fetch,outcome=completed,purgatory=fetch}": 2,
        "wait_seconds_count{kind=ConditionWait,outcome=completed,purgatory=fetch}": 1,
        "wait_seconds_count{kind=Fetch,outcome=expired,purgatory=fetch}": 2,
        "wait_seconds_count{kind=Fetch,outcome=cancelled,purgatory=fetch}": 1,
        "lateness_seconds_count{kind=Fetch,purgatory=fetch}": 2,
    }


async def test_histograms_count_each_wait_in_its_bucket(
    metrics: Metrics, registry: CollectorRegistry, clock: ManualClock
) -> None:
    async with Purgatory("fetch", clock=clock, observers=[metrics]) as purgatory:
        for wait in (0.0, 0.001, 0.0011, 0.5, 600.0, 601.0):
            op = purgatory.watch(Fetch(), ["key"])
            await clock.advance(wait)
            op.force_complete()
        text = generate_latest(registry).decode()
    found = re.findall(r'aiopurgatory_wait_seconds_bucket{.*le="(.*?)".*} (.*)', text)
    expected = {"0.001": 2, "0.0025": 3, "0.5": 4, "600.0": 5, "+Inf": 6}
    assert {bound: float(count) for bound, count in found if bound in expected} == expected


async def test_labels_separate_kinds_and_names_of_purgatories(metrics: Metrics, registry: CollectorRegistry) -> None:
    ended = "wait_seconds_count{{kind={},outcome=completed,purgatory={}}}".format
    async with (
        Purgatory("a", observers=[metrics]) as first,
        Purgatory("a", observers=[metrics]) as second,
        Purgatory("b", observers=[metrics]) as other,
    ):
        for purgatory, kind in [(first, Fetch), (second, Fetch), (second, Produce), (other, Produce)]:
            purgatory.watch(kind(), ["key"]).force_complete()
            purgatory.watch(kind(), ["key"])
        found = scraped(registry)
        assert found["pending_operations{purgatory=a}"] == 3
        assert (found[ended("Fetch", "a")], found[ended("Produce", "a")], found[ended("Produce", "b")]) == (2, 1, 1)


async def test_counters_of_a_name_go_on_when_one_of_two_closes(metrics: Metrics, registry: CollectorRegistry) -> None:
    async with Purgatory("fetch", observers=[metrics]) as going_on:
        for number in range(3):
            async with Purgatory("fetch", observers=[metrics]) as purgatory:
                purgatory.watch(Fetch(), ["key"]).force_complete()
            found = scraped(registry)
            assert found["operations_total{outcome=completed,purgatory=fetch}"] == number + 1
            assert found["wait_seconds_count{kind=Fetch,outcome=completed,purgatory=fetch}"] == number + 1
        going_on.watch(Fetch(), ["key"]).force_complete()
        assert scraped(registry)["operations_total{outcome=completed,purgatory=fetch}"] == 4
    Purgatory("never started", observers=[metrics]).close()
    assert open_now(registry) == {}
    assert "_operations{" not in generate_latest(registry).decode()  # no gauge, not even 0
    async with going_on:
        going_on.watch(Fetch(), ["key"]).force_complete()
        assert scraped(registry)["operations_total{outcome=completed,purgatory=fetch}"] == 5


async def test_scrape_in_another_thread_while_purgatories_come_and_go(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    over = False

    def scrape() -> int:
        scrapes = 0
        while not over:
            generate_latest(registry)
            scrapes += 1
        return scrapes

    scraping = asyncio.create_task(asyncio.to_thread(scrape))
    for number in range(300):
        async with Purgatory(f"{number % 7}", observers=[metrics]) as purgatory:
            for kind in range(5):
                purgatory.watch(type(f"Kind{kind}", (Fetch,), {})(), ["key"]).force_complete()
            await asyncio.sleep(0.001)
    over = True
    assert await scraping > 3


async def test_kinds_are_bounded(metrics: Metrics, registry: CollectorRegistry) -> None:
    async with Purgatory("fetch", observers=[metrics]) as purgatory:
        for number in range(MAX_KINDS + 5):
            purgatory.watch(type(f"Kind{number}", (Fetch,), {})(), ["key"]).force_complete()
        found = scraped(registry)
    assert found["wait_seconds_count{kind=other,outcome=completed,purgatory=fetch}"] == 5
    assert len([name for name in found if name.startswith("wait_seconds_count")]) == MAX_KINDS + 1


# one Metrics for each registry


def test_metrics_of_what_is_no_registry_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^registry must be a CollectorRegistry, got 'fetch'$"):
        Metrics("fetch")  # type: ignore[arg-type]


async def test_metrics_of_other_registries_are_apart(metrics: Metrics, registry: CollectorRegistry) -> None:
    other = CollectorRegistry()
    async with Purgatory("a", observers=[metrics]) as a, Purgatory("b", observers=[Metrics(other), metrics]) as b:
        for purgatory in (a, b):
            purgatory.watch(Fetch(), ["key"])
        assert [str(scraped(each)).count("pending_operations") for each in (registry, other)] == [2, 1]


def test_metrics_in_many_threads_are_one(registry: CollectorRegistry) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: Metrics(registry), range(100)))
    assert len({id(metrics) for metrics in made}) == 1


async def test_metrics_unregistered_are_registered_anew(metrics: Metrics, registry: CollectorRegistry) -> None:
    registry.unregister(metrics)
    async with Purgatory("fetch", observers=[Metrics(registry)]) as purgatory:
        purgatory.watch(Fetch(), ["key"])
        assert scraped(registry)["pending_operations{purgatory=fetch}"] == 1


def test_metrics_with_taken_names_are_refused_each_time(registry: CollectorRegistry) -> None:
    taken = Counter("aiopurgatory_checks", "Of somebody else", registry=registry)
    for _ in range(2):
        with pytest.raises(ValueError, match="Duplicated"):
            Metrics(registry)
    registry.unregister(taken)
    assert "aiopurgatory_checks" in [metric.name for metric in Metrics(registry).describe()]


@pytest.mark.parametrize("form", ["metrics", "shared"])
async def test_registry_that_is_gone_is_not_kept(form: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(form)
    registry = CollectorRegistry()
    gone = weakref.ref(registry)
    async with Purgatory("fetch", observers=[Metrics(registry), Metrics(registry)]) as purgatory:
        purgatory.watch(Fetch(), ["key"]).force_complete()
        scraped(registry)
        del registry
        gc.collect()
        assert gone() is None


@pytest.mark.usefixtures("shared")
async def test_shared_metrics_go_on_after_a_failure_until_it_closes(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, reported: list[dict[str, Any]]
) -> None:
    class Failing(Purgatory):
        fails = False

        def statistics(self) -> Statistics:
            if self.fails:
                self.fails = False
                raise OSError("the disk is full")
            return super().statistics()

    monkeypatch.setattr("aiopurgatory.metrics.collector.PUBLISH_INTERVAL", 0.01)
    purgatory = Failing("fetch", observers=[Metrics(registry)])
    async with purgatory:
        purgatory.fails = True
        await asyncio.sleep(0.05)
        purgatory.watch(Fetch(), ["key"])
        await asyncio.sleep(0.05)
        assert [str(context["exception"]) for context in reported] == ["the disk is full"]
        assert scraped(registry)["pending_operations{purgatory=fetch}"] == 1
    purgatory.fails = True
    await asyncio.sleep(0.05)
    assert purgatory.fails  # once it has closed, nobody asks it


@pytest.mark.usefixtures("shared")
async def test_shared_greatest_value_of_one_stays_when_another_closes(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.metrics.collector.PUBLISH_INTERVAL", 0.1)
    async with Purgatory("fetch", observers=[Metrics(registry)]) as purgatory:
        await purgatory.watch(Fetch(0.001), ["key"])
        monkeypatch.setattr("aiopurgatory.metrics.collector.PUBLISH_INTERVAL", 1000.0)
        await until(lambda: "longest_turn_seconds{purgatory=fetch}" in scraped(registry))
        async with Purgatory("fetch", observers=[Metrics(registry)]):
            pass
        assert "longest_turn_seconds{purgatory=fetch}" in scraped(registry)
    assert "longest_turn_seconds{purgatory=fetch}" not in scraped(registry)


@pytest.mark.usefixtures("shared")
async def test_shared_metrics_opened_in_a_request_do_not_keep_its_session(
    registry: CollectorRegistry, requests: Any
) -> None:
    metrics = Metrics(registry)
    async with Purgatory("fetch") as purgatory:

        async def begin() -> None:
            metrics.opened(purgatory)

        session = await requests.handle(begin)
        assert requests.are_over(session)
        metrics.closed(purgatory)


# buses


async def test_scrape_shows_what_a_bus_says(metrics: Metrics, registry: CollectorRegistry) -> None:
    server = MemoryServer()
    async with MemoryBus(server, [], observers=[metrics]) as bus, MemoryBus(server, []) as other:
        bus.publish("key")
        await bus.flush()
        other.publish("key")
        await other.flush()
        server.deliver(["["])
        await asyncio.sleep(0)
        await bus.gap()
        found = scraped(registry)
        assert found.pop("bus_since_echo_seconds{bus=aiopurgatory}", 0.0) < 30
        assert found.pop("worker_pid{}") == os.getpid()
        assert found == {
            "bus_connected{bus=aiopurgatory}": 1,
            "bus_gaps_total{bus=aiopurgatory}": 1,
            "bus_published_keys_total{bus=aiopurgatory}": 1,
            "bus_received_keys_total{bus=aiopurgatory}": 1,
            "bus_malformed_lines_total{bus=aiopurgatory}": 1,
        }
        server.is_down = True
        bus.publish("key")
        while bus.statistics().connected:  # noqa: ASYNC110 nothing announces it
            await asyncio.sleep(0.05)
        down = scraped(registry)
        assert down["bus_outbox_keys{bus=aiopurgatory}"] == 1
        assert down["bus_since_echo_seconds{bus=aiopurgatory}"] == math.inf
        assert 0.005 < down["bus_outbox_age_seconds{bus=aiopurgatory}"] < 30
        assert "bus_connected{bus=aiopurgatory}" not in down
    assert open_now(registry) == {}


async def test_bus_cancelled_by_others_stays_in_the_scrape(metrics: Metrics, registry: CollectorRegistry) -> None:
    """So that alerts see it."""
    async with MemoryBus(MemoryServer(), [], observers=[metrics]) as bus:
        for task in asyncio.all_tasks():
            if task.get_name() == "aiopurgatory bus":
                task.cancel()
        await until(lambda: not bus.statistics().connected)
        assert scraped(registry)["bus_since_echo_seconds{bus=aiopurgatory}"] == math.inf
    assert open_now(registry) == {}


# event logs


async def test_scrape_shows_what_a_log_says(metrics: Metrics, registry: CollectorRegistry) -> None:
    async with MemoryLog(name="runs", observers=[metrics]) as log:
        for data in ("one", "two"):
            await log.append("chat", data)
        listener = log.follow("chat")
        assert [(await anext(listener)).data for _ in range(2)] == ["one", "two"]
        found = scraped(registry)
        assert found["pending_operations{purgatory=runs}"] == 1
        assert {name: value for name, value in found.items() if "{log=" in name} == {
            "log_topics{log=runs}": 1,
            "log_listeners{log=runs}": 1,
            "log_window_bytes{log=runs}": log.statistics().window_bytes,
            "log_reads_total{log=runs}": log.statistics().reads,
            "log_appended_events_total{log=runs}": 2,
        }
        await listener.aclose()
    assert open_now(registry) == {}


async def test_scrape_shows_an_outage_to_writers_until_it_ends(metrics: Metrics, registry: CollectorRegistry) -> None:
    store = FaultyStore()
    async with EventLog(store, observers=[metrics]) as log:
        store.is_down = True
        with pytest.raises(StoreDownError):
            await log.append("chat", "one", timeout=0.0)
        assert scraped(registry)["log_store_down{log=events}"] == 1
        store.is_down = False
        await log.append("chat", "one")
        assert "log_store_down{log=events}" not in scraped(registry)


async def test_logs_of_one_name_are_added_up_and_go_on(metrics: Metrics, registry: CollectorRegistry) -> None:
    one, other = MemoryLog(observers=[metrics]), MemoryLog(observers=[metrics])
    for life in (1, 2):
        async with one, other:
            for log in (one, other):
                await log.append("chat", "one")
            assert scraped(registry)["log_appended_events_total{log=events}"] == 2 * life


# many processes


WORKER = """
import asyncio, sys
from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.metrics import Metrics
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import MemoryBus, MemoryServer

class Fetch(DelayedOperation[None]):
    def try_complete(self): return False

async def main():
    Purgatory("never started", observers=[Metrics()])
    purgatory = Purgatory("fetch", observers=[Metrics()])
    await purgatory.start()
    for _ in range(int(sys.argv[1])):
        purgatory.watch(Fetch(60.0), ["key"])
    purgatory.watch(Fetch(None), ["key"]).force_complete()
    await purgatory.watch(Fetch(0.001), ["key"])
    async with MemoryBus(MemoryServer(), [purgatory], observers=[Metrics()]) as bus:
        async with MemoryLog(observers=[Metrics()]) as log:
            bus.publish("key")
            await log.append("chat", "one")
            listener = log.follow("chat")
            await anext(listener)
            await asyncio.sleep(1.3)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await log.append("news", "two")
            await anext(log.follow("news"))
    await purgatory.aclose()

asyncio.run(main())
"""
SCRAPE = """
from prometheus_client import CollectorRegistry, Counter, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def run(program: str) -> str:
    """What a process of its own prints, with the environment of this one."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_processes_that_share_a_folder_are_scraped_as_one() -> None:
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(n)], stdin=pipe, stdout=pipe, text=True) for n in (3, 4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    running = samples(run(SCRAPE))
    for worker in workers:
        worker.communicate("\n")
    stopped = samples(run(SCRAPE))
    assert running["pending_operations{purgatory=fetch}"] == 7
    assert running["wait_seconds_count{kind=Fetch,outcome=completed,purgatory=fetch}"] == 2
    assert running["lateness_seconds_count{kind=Fetch,purgatory=fetch}"] == 2
    assert running["operations_total{outcome=expired,purgatory=fetch}"] == 2
    assert "pending_operations{purgatory=fetch}" not in stopped
    assert (running["bus_connected{bus=aiopurgatory}"], running["bus_published_keys_total{bus=aiopurgatory}"]) == (2, 2)
    assert running["bus_since_echo_seconds{bus=aiopurgatory}"] < 30
    assert "bus_connected{bus=aiopurgatory}" not in stopped
    assert stopped["bus_published_keys_total{bus=aiopurgatory}"] == 2
    assert stopped["operations_total{outcome=failed,purgatory=fetch}"] == 7
    assert (running["log_listeners{log=events}"], running["log_appended_events_total{log=events}"]) == (2, 2)
    assert "log_listeners{log=events}" not in stopped
    assert stopped["log_appended_events_total{log=events}"] == 4
    assert stopped["log_reads_total{log=events}"] > running["log_reads_total{log=events}"]


#: Killed with an operation pending, once its metrics, which are up to a second old, tell so.
KILLED = """
import asyncio, os, signal
from aiopurgatory import Purgatory
from aiopurgatory.metrics import Metrics

async def main():
    async with Purgatory("jobs", observers=[Metrics()]) as purgatory:
        waiting = asyncio.create_task(purgatory.wait_for(lambda: False, ["key"], timeout=None))
        await asyncio.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_gauges_of_a_killed_worker_go_by_the_rule_of_the_page() -> None:
    text = (ROOT / "docs" / "fastapi.md").read_text("utf-8")
    (rule,) = re.findall(r'^```python title="metrics.py"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    run(KILLED)
    assert samples(run(SCRAPE))["pending_operations{purgatory=jobs}"] == 1
    run(f"{rule}\nforget_dead_workers()")
    assert "pending_operations{purgatory=jobs}" not in samples(run(SCRAPE))


# shipped with it


async def test_dashboard_and_alerts_find_their_metrics_and_labels(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    board, alerts = [(ROOT / "examples/monitoring" / name).read_text() for name in ("grafana.json", "alerts.yml")]
    queries = [target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]]
    polls = Purgatory("polls", observers=[metrics])
    async with (
        Purgatory("fetch", observers=[metrics]) as purgatory,
        LongPolling(polls, Given()) as polling,
        MemoryLog(observers=[metrics]),
        MemoryBus(MemoryServer(), [], observers=[metrics]),
    ):
        ops: list[Any] = [purgatory.watch(Fetch(0.01), ["a"]), purgatory.watch(Fetch(0.02), ["b"])]
        ops[0].ready = True  # and nobody checks its key
        await asyncio.wait(ops)
        polls.close()
        assert (await polling.answer("a", since="1")).status == 503
        found = {
            sample.name: set(sample.labels)
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
        }
    assert len(queries) > 30
    for query in queries:
        (name,) = re.findall(r"aiopurgatory_\w+", query)
        grouped = re.findall(r"by \((.*?)\)", query)
        wanted = {*(", ".join(grouped).split(", ") if grouped else ()), *re.findall(r"[{,](\w+)=", query)}
        assert wanted <= found.get(name, set()), query
    of_alerts = set(re.findall(r"aiopurgatory_\w+", alerts))
    assert len(of_alerts) > 3
    assert of_alerts <= found.keys()
    assert {name for name in found if "_log_" in name} <= set(re.findall(r"aiopurgatory_\w+", board))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: make programs")
def test_promtool_has_nothing_to_say(metrics: Metrics, registry: CollectorRegistry) -> None:
    def promtool(*args: str, text: bytes = b"") -> None:
        done = subprocess.run(["promtool", "check", *args], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")

    promtool("metrics", text=generate_latest(registry))
    promtool("rules", str(ROOT / "examples/monitoring/alerts.yml"))
