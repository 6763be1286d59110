"""The observer that buffers rows, and the task that has them written."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any, Final

import anyio
import anyio.to_thread
import pyarrow as pa
import pyarrow.parquet as pq

from ..arguments import require, require_int, require_name, require_number, require_seconds
from ..clock import running_loop
from ..core.kit import Outcome, core_of
from ..lifecycle import Starting
from ..purgatory import Purgatory
from .rows import OUTCOMES, Recorder, logger, printable
from .schema import SCHEMA_VERSION, STATISTICS, operations_table

#: Snapshots kept while the disk hangs.
MOST_SNAPSHOTS: Final = 10_000
#: The encodings of columns. Columns with few values are dictionaries. Columns that grow by little from row to row are
#: written as differences. The defaults take twice the bytes and the time.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "operations": {
        "use_dictionary": [
            *("schema_version", "purgatory", "instance", "kind", "key_count"),
            *("key_hash", "key", "timeout_us", "outcome", "weight"),
        ],
        "column_encoding": dict.fromkeys(["sequence", "watched_at", "waited_us", "lateness_us"], "DELTA_BINARY_PACKED"),
    },
    "statistics": {},
}

#: Seconds after which an unfinished file is a killed process': to write one takes less than a minute. (A process id
#: tells nothing: on one host, each container has its own.)
LEFT_UNFINISHED: Final = 3600.0
#: Seconds in all collections since the first journal started; and when the last one began.
_COLLECTING: Final = {"spent": 0.0, "begun": 0.0}


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    """A snapshot of a journal. Counts are since it was created.

    Args:
        name: the journal's name.
        written: rows of operations that were written to files.
        buffered: rows in memory.
        dropped: rows that were not written: the buffer was full, the disk refused them, or the journal was not open.
        files: files that were written, including snapshots.
    """

    name: str
    written: int
    buffered: int
    dropped: int
    files: int


class Journal(Recorder, Starting):
    """Writes a row for each operation that ends, and regular snapshots of each purgatory, as Parquet files.

        async with Journal("/var/log/purgatory") as journal, Purgatory("fetch", observers=[journal]) as purgatory:
            ...

    Files are written atomically. A killed process loses the rows in memory: at most one file of them, or three while a
    file is being written. Journals that start there an hour later delete its unfinished file. The loop never waits for
    the disk. When the buffer is full, rows are dropped, counted in statistics() and in the next snapshot, and logged by
    ``aiopurgatory.journal``.

    Open it before its purgatories, and close it after them, as here. While it is not open, rows are dropped, which is
    logged once.

    It belongs to the event loop it was started in. A closed journal can be started again, in any loop.

    Args:
        folder: a local path, made if it is missing; any number of journals may share it. journal.schema describes its
            layout.
        share: the share of operations to keep, chosen at random (default: 1, all). Each row's weight makes up for
            those left out. Lower it if the files grow too large.
        failed_share: the same for operations that failed (default: 1).
        keep_keys: write the repr of the first key as well as its hash (default: no). If that raises, the name of the
            key's class is written, and its hash: such keys count as one.
        salt: keys the hashes, so that nobody without it can recompute them; at most 64 bytes (default:
            none). Give all instances the same.
        rows_per_file: maximum rows in a file (default: 100,000). Each takes about 250 bytes of memory until it is
            written.
        seconds_per_file: maximum time until a file is written, in seconds (default: 60).
        snapshot_seconds: time between two snapshots of statistics(), in seconds (default: 10).
        name: shown in messages and in statistics(): 1 to 255 bytes of UTF-8 (default: "journal").

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.

    Cost: about 0.7 us per operation, a third of it in a thread.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        share: float = 1.0,
        failed_share: float = 1.0,
        keep_keys: bool = False,
        salt: bytes = b"",
        rows_per_file: int = 100_000,
        seconds_per_file: float = 60.0,
        snapshot_seconds: float = 10.0,
        name: str = "journal",
    ) -> None:
        for parameter, value in (("share", share), ("failed_share", failed_share)):
            require(0.0 < require_number(parameter, value) <= 1.0, parameter, "> 0 and <= 1", value)
        require_int("rows_per_file", rows_per_file, 1)
        require(isinstance(salt, bytes), "salt", "bytes", salt, TypeError)
        require(len(salt) <= 64, "salt", "<= 64 bytes", len(salt))
        require_name("name", name)
        shares = [failed_share if outcome is Outcome.FAILED else share for outcome in OUTCOMES]
        super().__init__(name, rows_per_file, shares, keep_keys, salt)
        self.folder: Final = Path(folder)
        require("://" not in str(folder), "folder", "a local path; copy its files to other stores", folder)
        #: The name of this run of this process, in every row and file.
        self.instance = ""
        self._seconds_per_file = require_seconds("seconds_per_file", seconds_per_file, 0.001, 1e9)
        self._snapshot_seconds = require_seconds("snapshot_seconds", snapshot_seconds, 0.001, 1e9)
        self._snapshots: deque[dict[str, Any]] = deque(maxlen=MOST_SNAPSHOTS)
        self._last_file = 0  # its number
        self._files = 0
        self._written = 0
        self._reported = 0
        self._task: asyncio.Task[None] | None = None
        self._limiter: anyio.CapacityLimiter | None = None

    def __repr__(self) -> str:
        state = "open" if self._is_recording else "closed"
        return f"<Journal {self.name!r} {state} buffered={self._buffered()} dropped={self._dropped}>"

    # life

    async def start(self) -> None:
        """Make the folder, and start to record in the running loop. A second call does nothing.

        Raises:
            RuntimeError: it runs in another loop.
            OSError: the folder cannot be made.
        """
        loop = running_loop()
        if self._task is not None and self._task.get_loop() is loop and not (self._is_recording or self._task.done()):
            await asyncio.wait([self._task])  # an aclose() still writes
        if self._is_recording and self._task is not None and not self._task.get_loop().is_closed():
            if self._task.get_loop() is not loop:
                raise RuntimeError(f"journal {self.name!r} runs in another event loop; make one for each loop")
            return
        self._begin(loop)  # now: an aclose() may come during the next line
        try:
            await anyio.to_thread.run_sync(self._prepare)
        except BaseException:
            self._snapshots.clear()
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Write all buffered rows, and stop. Later rows are dropped, and counted. A second call does nothing."""
        self._is_recording = False
        if self._task is None or self._task.get_loop() is not asyncio.get_running_loop():
            return
        self._wake.set()
        await asyncio.wait([self._task])
        await self._write_rest()  # the task may have been cancelled, with everything else that ran

    def _buffered(self) -> int:
        return sum(map(len, self._buffers))

    def statistics(self) -> JournalStatistics:
        """Return a snapshot with counts of rows written and dropped. May be called at any time."""
        return JournalStatistics(
            name=self.name, written=self._written, buffered=self._buffered(), dropped=self._dropped, files=self._files
        )

    def _prepare(self) -> None:
        """Make the folder, and delete the files that killed processes have left unfinished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*/date=*/hour=*/.*.parquet.unfinished"):
            with suppress(OSError):  # it is finished, deleted by another journal, or of another user
                if path.stat().st_mtime < time.time() - LEFT_UNFINISHED:
                    path.unlink()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.instance = f"{socket.gethostname()}-{os.getpid()}-{token_hex(4)}"  # in the process that runs it
        # These may belong to another loop, or to the process from which this one was forked.
        self._snapshots.clear()
        self._buffers.clear()
        self._open = {purgatory: {} for purgatory in self._open if purgatory.is_open}
        self._wake = asyncio.Event()
        self._begin_rows()
        self._limiter = anyio.CapacityLimiter(1)  # not one of the app's threads
        # In an empty context: a request may call this, and the journal lives longer.
        self._task = Context().run(loop.create_task, self._run(), name="aiopurgatory-journal")
        self._task.add_done_callback(self._ended, context=Context())
        self._is_recording = True
        if _count_collection not in gc.callbacks:  # never removed: it costs less than a microsecond per collection
            gc.callbacks.append(_count_collection)
        for purgatory in self._open:
            self._snapshot(purgatory)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._is_recording:
            self._is_recording = False
            logger.error("journal %r has stopped: its task %r ended unexpectedly", self.name, task)

    # the observer

    def opened(self, what: object) -> None:
        if isinstance(what, Purgatory):
            self._open[what] = {}
            if self._is_recording:
                self._snapshot(what)  # the first values of its counters

    def closed(self, what: Any) -> None:
        if self._open.pop(what, None) is not None and self._is_recording:
            self._snapshot(what)

    # the writer

    async def _run(self) -> None:
        snapshot_at = time.monotonic()
        file_at = snapshot_at + self._seconds_per_file
        while self._is_recording:
            with anyio.move_on_after(min(snapshot_at, file_at) - time.monotonic()):
                await self._wake.wait()
            self._wake.clear()
            now = time.monotonic()
            if now >= snapshot_at:
                snapshot_at = now + self._snapshot_seconds
                for purgatory in self._open:
                    self._snapshot(purgatory)
            if now >= file_at or len(self._buffers) > 1:
                file_at = now + self._seconds_per_file
                await self._write_some()
        await self._write_rest()

    async def _write_rest(self) -> None:
        while self._buffered() > 0 or self._snapshots:
            await self._write_some()

    async def _write_some(self) -> None:
        """Hand the buffered rows to a thread that writes them; new rows go to another buffer."""
        rows = self._take_rows()
        snapshots = list(self._snapshots)
        self._snapshots.clear()
        if rows:
            make = partial(operations_table, rows, self.instance, list(self._series), self._shares)
            await self._in_thread("operations", rows.ended_at[0], make, len(rows))
        if snapshots:
            make = partial(pa.Table.from_pylist, snapshots, STATISTICS)
            await self._in_thread("statistics", snapshots[0]["at"] / 1e6, make, len(snapshots))
        if self._dropped > self._reported:
            logger.warning(
                "journal %r: %d rows dropped since the last report", self.name, self._dropped - self._reported
            )
            self._reported = self._dropped

    def _snapshot(self, purgatory: Purgatory) -> None:
        statistics, core = purgatory.statistics(), core_of(purgatory)
        finest = core.deadlines.timer.wheels[0]
        missed = [(printable(kind), printable(key), count) for kind, key, count in statistics.missed_kinds]
        more = {
            "schema_version": SCHEMA_VERSION,
            "purgatory": statistics.name,
            "instance": self.instance,
            "at": int(time.time() * 1e6),
            "dropped_rows": self._dropped,
            "tick_ns": finest.tick,
            "wheel_size": finest.size,
            "purge_interval": core.purging.interval,
            "collector_us": int(_COLLECTING["spent"] * 1e6),
            "missed_kinds": missed,
        }
        self._snapshots.append(asdict(statistics) | more)

    async def _in_thread(self, kind: str, begun_at: float, make: Callable[[], pa.Table], rows: int) -> None:
        try:
            await anyio.to_thread.run_sync(self._write, kind, begun_at, make, limiter=self._limiter)
        except Exception:
            self._dropped += rows if kind == "operations" else 0
            logger.exception("journal %r: %d rows of %s could not be written to %s", self.name, rows, kind, self.folder)
        else:
            self._files += 1
            self._written += rows if kind == "operations" else 0

    def _write(self, kind: str, begun_at: float, make: Callable[[], pa.Table]) -> None:
        """Write a file under a temporary name, then rename it: no reader sees half a file."""
        table = make()
        folder = self.folder / kind / time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(begun_at))
        folder.mkdir(parents=True, exist_ok=True)
        self._last_file += 1
        name = f"{self.instance}-{self._last_file:06}.parquet"
        unfinished = folder / f".{name}.unfinished"
        try:
            pq.write_table(table, unfinished, compression="lz4", store_schema=False, **_OPTIONS[kind])
            unfinished.rename(folder / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _count_collection(phase: str, _: dict[str, Any]) -> None:
    """Count the time that this process spends in Python's garbage collector: the loop stands still meanwhile."""
    if phase == "start":
        _COLLECTING["begun"] = perf_counter()
    else:
        _COLLECTING["spent"] += perf_counter() - _COLLECTING["begun"]
