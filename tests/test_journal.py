"""The journal of real purgatories, read back with pyarrow."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from socket import gethostname
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from web.polls import until  # type: ignore[import-not-found]

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.journal import Journal, JournalStatistics
from aiopurgatory.journal.schema import OPERATIONS, SCHEMA_VERSION, STATISTICS
from aiopurgatory.testing import ManualClock

Row = dict[str, Any]


class Fetch(DelayedOperation[None]):
    def __init__(self, timeout: float | None = None, *, ready: bool = False) -> None:
        super().__init__(timeout)
        self.ready = ready

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()


class Produce(Fetch):
    pass


def complete(purgatory: Purgatory, count: int = 1, key: Any = "key") -> None:
    for _ in range(count):
        purgatory.watch(Fetch(), [key]).force_complete()


def rows(folder: Path, kind: str = "operations") -> list[Row]:
    """Everything in the journal, as it was written."""
    if not any((folder / kind).rglob("*.parquet")):
        return []
    schema = OPERATIONS if kind == "operations" else STATISTICS
    table = ds.dataset(folder / kind, format="parquet", partitioning="hive").to_table(columns=schema.names)
    assert table.schema.remove_metadata() == schema.remove_metadata()
    table.validate(full=True)
    return sorted(table.to_pylist(), key=lambda row: row.get("sequence", 0))


def unfinished(folder: Path) -> list[Path]:
    return [file for file in folder.rglob(".*") if file.is_file()]


async def ended(folder: Path, count: int = 1, key: Any = "key", **settings: Any) -> Journal:
    """A journal of so many operations that completed."""
    async with Journal(folder, **settings) as journal, Purgatory("fetch", observers=[journal]) as purgatory:
        complete(purgatory, count, key)
    return journal


async def test_row_for_each_ending(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        Journal(tmp_path) as journal,
        Purgatory("fetch", clock=clock, observers=[journal]) as fetch,
        Purgatory("produce", clock=clock, observers=[journal]) as produce,
    ):
        before = datetime.now(UTC)
        fetch.watch(Fetch(ready=True), ["key"])
        fetch.watch(Fetch(60.0), ["key", "other"])
        fetch.watch(Fetch(1.5), ["key"])
        missed = fetch.watch(Fetch(1.5), ["key"])
        cancelled = fetch.watch(Fetch(inf), ["key"])
        produce.watch(Produce(0.25), [("orders", 0)])
        await clock.advance(0.2504)
        missed.ready = True
        await clock.advance(2.0)
        cancelled.cancel()
        failed = produce.watch(Produce(3.0), ["key"])
        failed.fail(ValueError())
        failed.exception()
    found = rows(tmp_path)
    shown = ("purgatory", "kind", "outcome", "waited_us", "timeout_us", "lateness_us", "key_count", "missed_trigger")
    assert [tuple(row[name] for name in shown) for row in found] == [
        ("fetch", "Fetch", "completed", 0, None, None, 1, False),
        ("produce", "Produce", "expired", 250_000, 250_000, 0, 1, False),
        ("fetch", "Fetch", "expired", 1_500_000, 1_500_000, 0, 1, False),
        ("fetch", "Fetch", "completed", 1_500_000, 1_500_000, None, 1, True),
        ("fetch", "Fetch", "cancelled", 2_250_400, None, None, 1, False),
        ("produce", "Produce", "failed", 0, 3_000_000, None, 1, False),
        ("fetch", "Fetch", "failed", 2_250_400, 60_000_000, None, 2, False),
    ]
    assert [row["sequence"] for row in found] == list(range(7))
    assert {row["instance"] for row in found} == {journal.instance}
    assert {(row["weight"], row["schema_version"], row["key"]) for row in found} == {(1.0, SCHEMA_VERSION, None)}
    assert all(abs((row["watched_at"] - before).total_seconds()) < 60 for row in found)


async def test_key_hash_is_the_same_for_equal_salts(tmp_path: Path) -> None:
    hashes = []
    for number, (key, salt) in enumerate([("a", b""), ("a", b""), ("b", b""), ("a", b"salt")]):
        await ended(tmp_path / str(number), key=key, salt=salt)
        hashes.append(rows(tmp_path / str(number))[0]["key_hash"])
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


class Hostile:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("closed", [False, True])
async def test_rows_beside_a_journal_that_is_not_open_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: bool
) -> None:
    journal = Journal(tmp_path)
    if closed:
        async with journal:
            pass
    async with Purgatory("fetch", observers=[journal]) as purgatory:
        complete(purgatory, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "journal 'journal' is not open, so rows are dropped; start it before its purgatories, and close it after them"
    ]
    assert journal.statistics().dropped == 2


class Surrogate:
    def __repr__(self) -> str:
        return "name \udcff"


@pytest.mark.parametrize("keep_keys", [True, False])
async def test_key_or_kind_that_cannot_be_shown_keeps_its_row(
    tmp_path: Path, keep_keys: bool, reported: list[dict[str, Any]]
) -> None:
    keys = ["a", Hostile(), ("orders", Hostile()), Hostile(), "x" * 1_000_000, Surrogate()]
    async with Journal(tmp_path, keep_keys=keep_keys) as journal, Purgatory(observers=[journal]) as purgatory:
        for key in keys:
            assert purgatory.watch(Fetch(), [key]).force_complete()
        purgatory.watch(type("Kind", (Fetch,), {"__qualname__": "a\ud800"})(), ["a"]).force_complete()
    written = rows(tmp_path)
    assert [(row["sequence"], row["kind"]) for row in written] == [*((n, "Fetch") for n in range(6)), (6, r"a\ud800")]
    if keep_keys:
        shown = ["'a'", "<Hostile>", "('orders', <Hostile>)", "<Hostile>", repr("x" * 1_000_000), r"name \udcff"]
        assert [row["key"] for row in written] == [*shown, "'a'"]
    assert written[1]["key_hash"] == written[3]["key_hash"]
    assert len({row["key_hash"] for row in written}) == 5
    assert (journal.statistics().dropped, reported) == (0, [])


class Fragile:
    """Equal to none of the others, until it breaks."""

    broken = False

    def __repr__(self) -> str:
        return "Fragile()"

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        if Fragile.broken:
            raise ValueError("broken")
        return self is other


async def test_key_that_cannot_be_compared_keeps_its_row(tmp_path: Path) -> None:
    async with Journal(tmp_path, keep_keys=True) as journal, Purgatory(observers=[journal]) as purgatory:
        first, other = Fragile(), Fragile()
        assert purgatory.watch(Fetch(), [first]).force_complete()
        op = purgatory.watch(Fetch(), [other])
        Fragile.broken = True
        try:
            assert op.force_complete()
        finally:
            Fragile.broken = False
    assert [row["key"] for row in rows(tmp_path)] == ["Fragile()"] * 2
    assert journal.statistics().dropped == 0


async def test_operation_that_closes_its_purgatory_keeps_its_row(tmp_path: Path) -> None:
    class Closing(Fetch):
        def on_complete(self) -> None:
            purgatory.close()

    async with Journal(tmp_path) as journal, Purgatory(observers=[journal]) as purgatory:
        assert purgatory.watch(Closing(), ["key"]).force_complete()
    assert [row["outcome"] for row in rows(tmp_path)] == ["completed"]


async def test_files_are_cut_by_rows_and_lie_by_hour(tmp_path: Path) -> None:
    async with Journal(tmp_path, rows_per_file=5) as journal, Purgatory(observers=[journal]) as purgatory:
        for _ in range(13):
            complete(purgatory)
            await asyncio.sleep(0.02)
    files = sorted((tmp_path / "operations").rglob("*"))
    parquet = [file for file in files if file.is_file()]
    assert [pq.read_metadata(file).num_rows for file in parquet] == [5, 5, 3]
    assert all(file.name.startswith(journal.instance) and file.suffix == ".parquet" for file in parquet)
    hours = {time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(time.time() - ago)) for ago in (0, 60)}
    assert parquet[0].parent.relative_to(tmp_path / "operations").as_posix() in hours


async def test_files_are_cut_by_time(tmp_path: Path) -> None:
    async with Journal(tmp_path, seconds_per_file=0.05) as journal, Purgatory(observers=[journal]) as purgatory:
        complete(purgatory)
        await until(lambda: rows(tmp_path))
        assert len(rows(tmp_path)) == 1


async def test_burst_beyond_the_buffer_is_dropped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = await ended(tmp_path, 30, rows_per_file=10)
    assert (len(rows(tmp_path)), journal.statistics().dropped) == (20, 10)
    assert "10 rows dropped since" in caplog.text
    assert rows(tmp_path, "statistics")[-1]["dropped_rows"] == 10


async def test_task_that_is_cancelled_costs_no_row_that_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Journal(tmp_path) as journal, Purgatory(observers=[journal]) as purgatory:
        complete(purgatory)
        await asyncio.sleep(0.01)
        next(task for task in asyncio.all_tasks() if task.get_name() == "aiopurgatory-journal").cancel()
        await until(lambda: "has stopped" in caplog.text)
        complete(purgatory)
    assert ([row["sequence"] for row in rows(tmp_path)], journal.statistics().dropped) == ([0], 1)


def test_journal_runs_again_in_another_loop(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    async def run() -> None:
        async with journal, Purgatory(observers=[journal]) as purgatory:
            instance = journal.instance
            complete(purgatory)
            await journal.start()  # does nothing
            assert journal.instance == instance
            with pytest.raises(RuntimeError, match="journal 'journal' runs in another event loop"):
                await asyncio.to_thread(asyncio.run, journal.start())
        await journal.aclose()

    for _ in range(2):
        asyncio.run(run())
    found = rows(tmp_path)
    assert [row["sequence"] for row in found] == [0, 1]
    assert len({row["instance"] for row in found}) == 2


async def test_disk_that_refuses_costs_rows_and_no_operation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "operations").write_text("in the way")
    journal = await ended(tmp_path, 7)
    assert journal.statistics().dropped == 7
    assert "journal 'journal': 7 rows of operations could not be written" in caplog.text
    (tmp_path / "operations").unlink()
    await ended(tmp_path, 2)
    assert len(rows(tmp_path)) == 2


async def test_disk_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    async with Journal(tmp_path, rows_per_file=1000) as journal, Purgatory(observers=[journal]) as purgatory:
        complete(purgatory, 1000)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # bytes: the disk is full
        try:
            await until(lambda: journal.statistics().dropped)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)
        complete(purgatory)
    assert journal.statistics().dropped == 1000
    assert [row["sequence"] for row in rows(tmp_path)] == [1000]
    assert unfinished(tmp_path) == []


async def test_share_keeps_a_sample_that_weighs_as_much(tmp_path: Path) -> None:
    async with Journal(tmp_path, share=0.25) as journal, Purgatory(observers=[journal]) as purgatory:
        complete(purgatory, 4000)
        for _ in range(50):
            op = purgatory.watch(Fetch(), ["key"])
            op.fail(ValueError())
            op.exception()
    found = rows(tmp_path)
    completed = [row["weight"] for row in found if row["outcome"] == "completed"]
    assert set(completed) == {4.0}
    assert sum(completed) == pytest.approx(4000, abs=5 * 4 * (4000 * 0.25 * 0.75) ** 0.5)
    assert [row["weight"] for row in found if row["outcome"] == "failed"] == [1.0] * 50
    assert max(row["sequence"] for row in found) == 4049


async def test_snapshots_hold_the_statistics(tmp_path: Path) -> None:
    async with (
        Journal(tmp_path, snapshot_seconds=0.02, seconds_per_file=0.02) as journal,
        Purgatory("fetch", observers=[journal]) as purgatory,
    ):
        purgatory.watch(Fetch(), ["a", "b"])
        await until(lambda: any(row["pending"] for row in rows(tmp_path, "statistics")))
    found = sorted(rows(tmp_path, "statistics"), key=lambda row: row["at"])
    assert len(found) >= 3
    assert (found[0]["pending"], found[0]["wheel_size"]) == (0, 20)
    assert (found[-2]["pending"], found[-2]["watched_entries"], found[-2]["keys"]) == (1, 2, 2)
    assert (found[-1]["pending"], found[-1]["failed"]) == (0, 1)
    assert {(row["purgatory"], row["instance"]) for row in found} == {("fetch", journal.instance)}


async def test_snapshots_tell_the_time_in_the_garbage_collector(tmp_path: Path) -> None:
    async with Journal(tmp_path) as journal:
        async with Purgatory("before", observers=[journal]):
            pass
        for _ in range(20):
            gc.collect()
        async with Purgatory("after", observers=[journal]):
            pass
    found = sorted(rows(tmp_path, "statistics"), key=lambda row: row["at"])
    spent = [row["collector_us"] for row in found]
    assert spent == sorted(spent)
    assert spent[-1] > spent[0] >= 0


async def test_snapshots_begin_with_what_counters_grow_from(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    async with Purgatory("fetch", tick=0.01, wheel_size=8, purge_interval=7, observers=[journal]) as purgatory:
        purgatory.watch(Fetch(), ["a"]).force_complete()
        async with journal:
            purgatory.watch(Fetch(), ["a"]).force_complete()
            async with Purgatory("other", observers=[journal]):
                pass
    found = sorted(rows(tmp_path, "statistics"), key=lambda row: row["at"])
    first = {row["purgatory"]: row["completed"] for row in reversed(found)}
    assert first == {"fetch": 1, "other": 0}
    assert (found[0]["tick_ns"], found[0]["wheel_size"], found[0]["purge_interval"]) == (10_000_000, 8, 7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folder": "s3://bucket/journal"}, "folder must be a local path; copy .*, got 's3://bucket/journal'"),
        ({"share": 0.0}, "share must be > 0 and <= 1, got 0.0"),
        ({"share": nan}, "share must be"),
        ({"failed_share": 1.5}, "failed_share must be > 0 and <= 1, got 1.5"),
        ({"seconds_per_file": 0.0}, "seconds_per_file must be from 0.001 to 1e\\+09 s, got 0.0"),
        ({"snapshot_seconds": inf}, "snapshot_seconds must be from 0.001 to 1e\\+09 s, got inf"),
        ({"rows_per_file": 0}, "rows_per_file must be >= 1, got 0"),
        ({"salt": b"x" * 65}, "salt must be <= 64 bytes, got 65"),
        ({"share": "all"}, "share must be a number, got 'all'"),
        ({"rows_per_file": 1.5}, "rows_per_file must be an int, got 1.5"),
        ({"salt": "x"}, "salt must be bytes, got 'x'"),
        ({"name": None}, "name must be a str, got None"),
        ({"name": ""}, "name must have 1 to 255 bytes of UTF-8, got ''; leave it out for a default"),
        ({"name": "\ud800"}, "name must be text without surrogates, got '.ud800'"),
    ],
)
def test_bad_argument_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Journal(**{"folder": tmp_path, **settings})


async def test_snapshots_name_the_kinds_of_missed_checks(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "aiopurgatory")  # pytest-xdist cannot pass on a surrogate of a captured log
    hostile = type("Hostile", (Fetch,), {"__qualname__": "a\ud800"})
    async with Journal(tmp_path) as journal, Purgatory("fetch", clock=clock, observers=[journal]) as purgatory:
        for op, key in ((Fetch(1.0), ("orders", 7)), (Fetch(1.0), ("orders", 8)), (hostile(1.0), "key")):
            purgatory.watch(op, [key])
            op.ready = True
        await clock.advance(1.0)
    first, *_, last = sorted(rows(tmp_path, "statistics"), key=lambda row: row["at"])
    assert (first["missed_kinds"], last["missed_triggers"]) == ([], 3)
    assert last["missed_kinds"] == [
        {"kind": "Fetch", "key": "('orders', int)", "operations": 2},
        {"kind": r"a\ud800", "key": "str", "operations": 1},
    ]


async def test_statistics_count_rows_and_files(tmp_path: Path) -> None:
    async with (
        Journal(tmp_path, rows_per_file=10, name="audit") as journal,
        Purgatory(observers=[journal]) as purgatory,
    ):
        complete(purgatory, 25)
        assert journal.statistics() == JournalStatistics("audit", written=0, buffered=20, dropped=5, files=0)
    assert journal.statistics() == JournalStatistics("audit", written=20, buffered=0, dropped=5, files=3)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3  # noqa: ASYNC240


async def test_loop_that_vanished_does_not_keep_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await asyncio.to_thread(vanish, journal)
    async with journal, Purgatory(observers=[journal]) as purgatory:
        complete(purgatory)
    assert [row["purgatory"] for row in rows(tmp_path)] == ["default"]


def vanish(journal: Journal) -> None:
    """Start *journal*, with a row, in an event loop that is closed without ending its tasks."""

    async def begin() -> None:
        await journal.start()
        purgatory = Purgatory("lost", observers=[journal])
        await purgatory.start()
        complete(purgatory)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()


async def test_start_during_a_close_or_another_start_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table = pq.write_table

    def slow(*args: Any, **options: Any) -> None:
        time.sleep(0.1)
        write_table(*args, **options)

    monkeypatch.setattr(pq, "write_table", slow)
    journal = Journal(tmp_path, rows_per_file=4)
    await asyncio.gather(journal.start(), journal.start())
    purgatory = Purgatory(observers=[journal])
    await purgatory.start()
    complete(purgatory, 7)
    async with asyncio.timeout(10.0):
        await asyncio.gather(journal.aclose(), journal.start())
        complete(purgatory, 2)
        await purgatory.aclose()
        await journal.aclose()
    assert (journal.statistics().written, journal.statistics().dropped) == (9, 0)
    assert "aiopurgatory-journal" not in [task.get_name() for task in asyncio.all_tasks()]


async def test_close_during_a_start_closes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(2):
        await asyncio.gather(journal.start(), journal.aclose())
        assert "closed" in repr(journal)


async def test_start_without_a_folder_raises_and_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "file")
    async with Purgatory(observers=[journal]):
        with pytest.raises(FileExistsError):
            await journal.start()
        assert "closed" in repr(journal)
    assert not caplog.records


WRITER = """
import asyncio, sys
from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.journal import Journal

class Fetch(DelayedOperation[None]):
    def try_complete(self): return False

async def main():
    async with Journal(sys.argv[1], rows_per_file=2000) as journal, Purgatory(observers=[journal]) as purgatory:
        print("writing", flush=True)
        while True:
            for _ in range(500):
                purgatory.watch(Fetch(None), ["key"]).force_complete()
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.mark.slow
def test_kill_loses_no_finished_file(tmp_path: Path) -> None:
    for number in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        while len(list((tmp_path / "operations").rglob("*.parquet"))) < 3 * (number + 1):
            time.sleep(0.01)
        time.sleep(0.003 * number)
        process.kill()
        process.communicate()
    found = rows(tmp_path)
    assert len(found) >= 8 * 2000
    assert len(found) % 2000 == 0
    assert len({(row["instance"], row["sequence"]) for row in found}) == len(found)


async def test_journal_started_in_a_request_does_not_keep_its_session(tmp_path: Path, requests: Any) -> None:
    journal = Journal(tmp_path, snapshot_seconds=0.01)
    session = await requests.handle(journal.start)
    await asyncio.sleep(0.03)
    assert requests.are_over(session)
    await journal.aclose()


def test_start_deletes_files_unfinished_for_an_hour(tmp_path: Path) -> None:
    folder = tmp_path / "operations" / "date=2026-11-29" / "hour=06"
    folder.mkdir(parents=True)
    # Of processes that live, perhaps: a process id tells nothing in another container of this host.
    files = {minutes: folder / f".{gethostname()}-{minutes}-0123abcd-000001.parquet.unfinished" for minutes in (59, 61)}
    files[90] = folder / ".of-another-user-1-0123abcd-000001.parquet.unfinished"
    files[90].mkdir()  # not even root may unlink it
    for minutes, file in files.items():
        file.touch()
        at = time.time() - 60 * minutes
        os.utime(file, (at, at))

    async def start() -> None:
        async with Journal(tmp_path):
            pass

    asyncio.run(start())
    assert unfinished(tmp_path) == [files[59]]
