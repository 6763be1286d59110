"""The rows of a journal, one per operation that ends, until they are written. Compiled: it runs for every operation.

A row is one number in each of eight lists and has no object of its own, which the garbage collector would visit.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from contextlib import suppress
from hashlib import blake2b
from logging import getLogger
from random import random
from typing import Any, Final, final

from mypy_extensions import mypyc_attr

from ..arguments import described
from ..core.kit import AwaitableOperation, Observer, Outcome, is_missed, keys_of, seconds_of

logger = getLogger("aiopurgatory.journal")

OUTCOMES: Final = tuple(Outcome)
COMPLETED: Final = Outcome.COMPLETED
# A row's code holds, from the lowest bit: whether the operation missed its trigger; the outcome; the number of its
# purgatory and class; how many keys it had.
OUTCOME_UNIT: Final = 2
SERIES_UNIT: Final = 8
KEY_COUNT_UNIT: Final = 1 << 30
#: The most keys with a cached hash.
KEYS_REMEMBERED: Final = 10_000
#: Bytes of a key's repr above which its hash is not cached.
LONGEST_REMEMBERED: Final = 200


@final
class JournalRows:
    """Columns, in the order of the rows. Times are in seconds.

    Args: first: the sequence number of the first row.
    """

    __slots__ = ("codes", "ended_at", "first", "key_hashes", "keys", "lateness", "sequences", "timeouts", "waited")

    def __init__(self, first: int) -> None:
        self.first = first
        self.codes: list[int] = []
        self.key_hashes: list[int] = []
        self.ended_at: list[float] = []
        self.waited: list[float] = []
        self.timeouts: list[float] = []
        self.lateness: list[float] = []  # of expired operations only
        self.keys: list[str] = []  # only if the journal keeps keys
        self.sequences: list[int] = []  # only if it samples: otherwise there are no gaps

    def __len__(self) -> int:
        return len(self.codes)


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder(Observer):
    """Buffers a row for each operation that ends, until take_rows().

    Args:
        name: the journal's name, for its log.
        capacity: rows in a full buffer. If another full one has not been taken yet, further rows are dropped.
        shares: the share of operations to keep, by outcome.
        keep_keys: also keep the repr of the first key.
        salt: keys the hashes.
    """

    def __init__(self, name: str, capacity: int, shares: list[float], keep_keys: bool, salt: bytes) -> None:
        self.name: Final = name
        self._is_recording = False
        self._warned = False
        #: Rows that were dropped.
        self._dropped = 0
        self._hashes: dict[Hashable, int] = {}
        #: For each open purgatory, the numbers of its classes of operations.
        self._open: dict[Any, dict[type, int]] = {}
        #: The names behind these numbers: a purgatory that opens again gets no new ones.
        self._series: dict[tuple[str, str], int] = {}
        self._capacity = capacity
        self._shares = shares
        self._samples = min(shares) < 1.0
        self._keep_keys = keep_keys
        self._salt = salt
        self._time = time.time
        self._sequence = 0  # of the next operation that ends
        #: The buffers with rows, oldest first; and the last of them, which takes new rows.
        self._buffers: list[JournalRows] = []
        self._rows = JournalRows(0)
        #: The asyncio.Event that wakes the writer.
        self._wake: Any = None

    def _begin_rows(self) -> None:
        """Begin a new buffer. An older one is full: wake the writer."""
        self._rows = JournalRows(self._sequence)
        self._buffers.append(self._rows)
        if len(self._buffers) > 1:
            self._wake.set()

    def _take_rows(self) -> JournalRows:
        """Return the oldest buffer, which may not be full."""
        rows = self._buffers.pop(0)
        if not self._buffers or len(self._rows.codes) >= self._capacity:
            self._begin_rows()
        return rows

    def ended(
        self, purgatory: Any, op: AwaitableOperation, outcome: Outcome, waited: float, lateness: float | None
    ) -> None:
        number = 0 if outcome is COMPLETED else OUTCOMES.index(outcome)  # by identity: hashing an Outcome is a call
        if self._samples and random() >= self._shares[number]:
            self._sequence += 1
            return
        if not self._is_recording or len(self._rows.codes) >= self._capacity:
            self._sequence += 1
            self._drop()
            return
        keys = keys_of(op)
        kind = type(op)
        try:  # Everything that may raise comes first: a row is there as a whole, or takes no number.
            try:
                key_hash = self._hashes[keys[0]]
            except Exception:  # it is new, or its own __eq__ raised
                key_hash = self._hash_of(keys[0])
            numbers = self._open.get(purgatory)
            series = None if numbers is None else numbers.get(kind)
            if series is None:
                series = self._number_of(purgatory, kind)
            key = shown(keys[0]) if self._keep_keys else ""
        except BaseException:
            self._drop()
            raise
        rows = self._rows  # now: the key's own methods may have ended other operations
        if self._keep_keys:
            rows.keys.append(key)
        if self._samples:
            rows.sequences.append(self._sequence)
        self._sequence += 1
        code = len(keys) * KEY_COUNT_UNIT + series * SERIES_UNIT + number * OUTCOME_UNIT
        rows.codes.append(code + 1 if is_missed(op) else code)
        rows.key_hashes.append(key_hash)
        rows.ended_at.append(self._time())
        rows.waited.append(waited)
        rows.timeouts.append(seconds_of(op))
        if lateness is not None:
            rows.lateness.append(lateness)
        if len(rows.codes) == self._capacity and len(self._buffers) == 1:
            self._begin_rows()

    def _drop(self) -> None:
        """Count a row that is dropped."""
        self._dropped += 1
        if not self._is_recording and not self._warned:
            self._warned = True
            logger.warning(
                "journal %r is not open, so rows are dropped; start it before its purgatories, and close it after them",
                self.name,
            )

    def _hash_of(self, key: Any) -> int:
        encoded = shown(key).encode()
        found = int.from_bytes(blake2b(encoded, digest_size=8, key=self._salt).digest(), "little", signed=True)
        if len(encoded) <= LONGEST_REMEMBERED:  # the cache must not keep large keys alive
            if len(self._hashes) >= KEYS_REMEMBERED:
                self._hashes.clear()
            with suppress(Exception):  # of its own __eq__
                self._hashes[key] = found
        return found

    def _number_of(self, purgatory: Any, kind: type) -> int:
        number = self._series.setdefault((purgatory.name, printable(kind.__qualname__)), len(self._series))
        if purgatory in self._open:  # not closed by a hook of this operation
            self._open[purgatory][kind] = number
        return number


def shown(key: object) -> str:
    """Return the repr of *key*, or a text in its place; see described()."""
    return printable(described(key))


def printable(text: str) -> str:
    """Return *text* without surrogates, which would fail the whole file."""
    return text.encode(errors="backslashreplace").decode()
