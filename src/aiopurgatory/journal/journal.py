"""The observer that fills the buffer, and the task that has it written."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from hashlib import blake2b
from math import inf
from pathlib import Path
from random import random
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.observer import Observer
from ..core.outcome import Outcome
from ..purgatory import Purgatory
from .records import NONE, OUTCOMES, Records
from .schema import SCHEMA_VERSION, STATISTICS

logger = logging.getLogger("aiopurgatory.journal")

#: Keys whose hash is remembered.
KEYS_REMEMBERED = 10_000


class Journal(Observer):
    """Writes a row for each operation that ends, and a look at each purgatory now and then, as Parquet files.

        async with Journal("/var/log/purgatory") as journal, Purgatory("fetch", observers=[journal]) as purgatory:
            ...

    What is in a file stays; what is in memory is lost with the process: as much as one file holds, or two while one
    is being written. Nothing waits for the disk: rows for which there is no room are dropped, counted in
    ``dropped_rows`` and in the next snapshot, and reported to the logger ``aiopurgatory.journal``.

    Args:
        folder: made if it is not there; any number of journals may share it. For its layout see journal.schema.
        share: of the operations to keep, chosen at random; the rows' weight makes up for the others.
        failed_share: the same for those that FAILED.
        keep_keys: write the repr of the first key, too, and not only its hash.
        salt: makes the hashes those of nobody else; give all instances the same.
        rows_per_file: most rows of a file, 66 bytes of memory each, twice.
        seconds_per_file: a file is finished after so long.
        snapshot_seconds: between two looks at statistics().

    Raises: ValueError: an argument out of its range.

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
        rows_per_file: int = 200_000,
        seconds_per_file: float = 60.0,
        snapshot_seconds: float = 10.0,
    ) -> None:
        for name, value in (("share", share), ("failed_share", failed_share)):
            if not 0.0 < value <= 1.0:
                raise ValueError(f"{name} must be > 0 and <= 1, got {value!r}")
        for name, value in (("seconds_per_file", seconds_per_file), ("snapshot_seconds", snapshot_seconds)):
            if not 0.0 < value < inf:
                raise ValueError(f"{name} must be > 0 s, got {value!r}")
        if rows_per_file < 1:
            raise ValueError(f"rows_per_file must be >= 1, got {rows_per_file!r}")
        if len(salt) > 64:
            raise ValueError(f"salt must be of 64 bytes at most, got {len(salt)}")
        self.folder = Path(folder)
        #: Names this run of this process, in every row and file.
        self.instance = ""
        #: Rows that could not be kept.
        self.dropped_rows = 0
        self._shares = [failed_share if outcome is Outcome.FAILED else share for outcome in OUTCOMES]
        self._keep_keys = keep_keys
        self._salt = salt
        self._seconds_per_file = seconds_per_file
        self._snapshot_seconds = snapshot_seconds
        self._series: list[tuple[str, str]] = []
        self._open: dict[Purgatory, dict[type, int]] = {}
        self._hashes: dict[Any, int] = {}
        self._sequence = 0
        self._filling, self._spare = (Records(rows_per_file, self._series) for _ in range(2))
        self._snapshots: list[dict[str, Any]] = []
        self._files = 0
        self._reported = 0
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    # life

    async def __aenter__(self) -> Self:
        self.instance = f"{socket.gethostname()}-{os.getpid()}-{token_hex(4)}"  # in the process that runs it
        await anyio.to_thread.run_sync(lambda: self.folder.mkdir(parents=True, exist_ok=True))
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aiopurgatory-journal")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Write what there is; what ends later is dropped."""
        task, self._task = self._task, None
        if task is not None:
            self._wake.set()
            await asyncio.wait([task])

    # the observer

    def opened(self, purgatory: Purgatory) -> None:
        self._open[purgatory] = {}

    def closed(self, purgatory: Purgatory) -> None:
        if self._open.pop(purgatory, None) is not None:
            self._snapshot(purgatory)

    def ended(self, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        code = OUTCOMES.index(outcome)
        sequence = self._sequence
        self._sequence += 1
        share = self._shares[code]
        if share < 1.0 and random() >= share:
            return
        records = self._filling
        if self._task is None or records.is_full():
            self.dropped_rows += 1
            return
        keys = op.keys
        try:
            key_hash = self._hashes[keys[0]]
        except KeyError:
            key_hash = self._hash(keys[0])
        if self._keep_keys:
            records.add_key(repr(keys[0]))
        try:
            series = self._open[op._op_owner][type(op)]
        except KeyError:
            series = self._number(op)
        now = time.time()
        if not records.count:
            records.begun_at = now
        records.add(
            sequence,
            key_hash,
            now,
            waited,
            op._op_timeout,
            NONE if lateness is None else lateness,
            1.0 / share,
            series,
            len(keys),
            code,
            op._op_due and outcome is Outcome.COMPLETED,
        )
        if records.is_full():
            self._wake.set()

    def _hash(self, key: Any) -> int:
        if len(self._hashes) >= KEYS_REMEMBERED:
            self._hashes.clear()
        digest = blake2b(repr(key).encode(errors="surrogatepass"), digest_size=8, key=self._salt).digest()
        found = self._hashes[key] = int.from_bytes(digest, "little", signed=True)
        return found

    def _number(self, op: Any) -> int:
        names = (op._op_owner.statistics().name, type(op).__qualname__)
        self._series.append(names)
        self._open.setdefault(op._op_owner, {})[type(op)] = len(self._series) - 1
        return len(self._series) - 1

    # the writer

    def _snapshot(self, purgatory: Purgatory) -> None:
        statistics = purgatory.statistics()
        row = {name: getattr(statistics, name, None) for name in STATISTICS.names}
        row |= {"schema_version": SCHEMA_VERSION, "purgatory": statistics.name, "instance": self.instance}
        self._snapshots.append(row | {"at": int(time.time() * 1e6), "dropped_rows": self.dropped_rows})

    async def _run(self) -> None:
        limiter = anyio.CapacityLimiter(1)  # not one of the app's threads
        snapshot_at = file_at = time.monotonic()
        file_at += self._seconds_per_file
        while True:
            self._wake.clear()
            running = self._task is not None
            now = time.monotonic()
            if now >= snapshot_at:
                snapshot_at = now + self._snapshot_seconds
                for purgatory in self._open:
                    self._snapshot(purgatory)
            if now >= file_at or self._filling.is_full() or not running:
                file_at = now + self._seconds_per_file
                await self._write_all(limiter)
            if not running:
                return
            with anyio.move_on_after(min(snapshot_at, file_at) - now):
                await self._wake.wait()

    async def _write_all(self, limiter: anyio.CapacityLimiter) -> None:
        """Hand the buffer to a thread, and go on with the other one."""
        records, self._filling = self._filling, self._spare
        self._spare = records
        snapshots, self._snapshots = self._snapshots, []
        begun_at = records.begun_at if records.count else time.time()
        self._files += 1
        try:
            await anyio.to_thread.run_sync(self._write, records, snapshots, begun_at, limiter=limiter)
        except Exception:
            self.dropped_rows += records.count
            logger.exception("%d rows could not be written to %s", records.count, self.folder)
        records.clear()
        if self.dropped_rows > self._reported:
            logger.warning("%d rows dropped: the disk is too slow, or full", self.dropped_rows - self._reported)
            self._reported = self.dropped_rows

    def _write(self, records: Records, snapshots: list[dict[str, Any]], begun_at: float) -> None:
        if records.count:
            self._write_table("operations", records.table(self.instance), begun_at)
        if snapshots:
            self._write_table("statistics", pa.Table.from_pylist(snapshots, STATISTICS), begun_at)

    def _write_table(self, kind: str, table: pa.Table, begun_at: float) -> None:
        """Under a temporary name until it is whole: no reader sees half a file."""
        folder = self.folder / kind / time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(begun_at))
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.instance}-{self._files:06}.parquet"
        unfinished = folder / f".{name}.unfinished"
        try:
            pq.write_table(table, unfinished, compression="zstd")
            unfinished.rename(folder / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
