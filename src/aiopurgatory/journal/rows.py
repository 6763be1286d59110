"""The rows of a journal, one per operation that ends, until they are written. Compiled: it runs for every operation.

A row is one number in each of eight lists and has no object of its own, which the garbage collector would visit.
"""

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import mypyc_attr

from ..arguments import described
from ..core.kit import AwaitableOperation, Observer, Outcome, is_missed, keys_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


OUTCOMES: Final = tuple(Outcome)
COMPLETED: Final = Outcome.COMPLETED
# A row's code holds, from the lowest bit: whether the operation missed its trigger; the outcome; the number of its
# purgatory and class; how many keys it had.
OUTCOME_UNIT: Final = 2
SERIES_UNIT: Final = 8
KEY_COUNT_UNIT: Final = 1 << 30


@final
class JournalRows:
    """Columns, in the order of the rows. Times are in seconds.

    Args:
        first: the sequence number of the first row.
        numbered: sequence numbers have gaps, so each row keeps its own.
    """

    __slots__ = (
        "codes",
        "ended_at",
        "first",
        "key_hashes",
        "keys",
        "lateness",
        "numbered",
        "sequences",
        "timeouts",
        "waited",
    )

    def __init__(self, first: int, numbered: bool) -> None:
        self.first = first
        self.numbered = numbered
        self.codes: list[int] = []
        self.key_hashes: list[int] = []
        self.ended_at: list[float] = []
        self.waited: list[float] = []
        self.timeouts: list[float] = []
        self.lateness: list[float] = []  # of expired operations only
        self.keys: list[str] = []  # only if the journal keeps keys
        self.sequences: list[int] = []  # only if numbered

    def __len__(self) -> int:
        return len(self.codes)

    def skip(self) -> None:
        """Leave a gap after the last row: from here on, each row keeps its sequence number."""
        if not self.numbered:
            self.numbered = True
            self.sequences = [self.first + i for i in range(len(self.codes))]


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder(Observer):
    """Buffers a row for each operation that ends, until take_rows().

    Args:
        capacity: rows in a full buffer. A full one is set aside; if the last one is still there, rows are dropped.
        shares: the share of operations to keep, by outcome.
        keep_keys: also keep the repr of the first key.
        time: tells the time of day.
        hash_key: hashes a key that is not in ``hashes``.
        new_number: numbers a class of operations that is new in a purgatory; called with the purgatory's name and the
            class.
        filled: called when a buffer is full.
        not_open: called when a row is dropped since nothing records.
    """

    def __init__(
        self,
        capacity: int,
        shares: list[float],
        keep_keys: bool,
        time: Callable[[], float],
        hash_key: Callable[[Any], int],
        new_number: Callable[[str, type], int],
        filled: Callable[[], object],
        not_open: Callable[[], object],
    ) -> None:
        self._is_recording = False
        #: Rows that were dropped.
        self._dropped = 0
        self._hashes: dict[Hashable, int] = {}
        #: For each open purgatory, the numbers of its classes of operations.
        self._open: dict[Any, dict[type, int]] = {}
        #: The buffer that was set aside.
        self._full: JournalRows | None = None
        self._capacity = capacity
        self._shares = shares
        self._samples = min(shares) < 1.0
        self._keep_keys = keep_keys
        self._time = time
        self._hash_key = hash_key
        self._new_number = new_number
        self._filled = filled
        self._not_open = not_open
        self._sequence = 0  # of the next operation that ends
        # Of the last operation that ended: the next one usually has the same.
        self._purgatory: Any = None
        self._kind: type | None = None
        self._number = 0
        self._rows = JournalRows(0, self._samples)

    def _start_recording(self) -> None:
        """Start with no rows. Earlier ones belong to another loop, or to the process from which this one was forked."""
        self._full = None
        self._rows = JournalRows(self._sequence, self._samples)
        for purgatory in list(self._open):
            if not purgatory.is_open:
                self._remove(purgatory)
        self._is_recording = True

    def _stop_recording(self) -> None:
        """Drop the rows of operations that end from now on."""
        self._is_recording = False

    def _count_dropped(self, rows: int) -> None:
        """Count rows that could not be written."""
        self._dropped += rows

    def _buffered(self) -> int:
        """Return how many rows are in memory."""
        return len(self._rows.codes) + (0 if self._full is None else len(self._full.codes))

    def _take_rows(self) -> JournalRows:
        """Return the full buffer if there is one, else the current one. A new one takes its place."""
        rows = self._full
        self._full = None
        if rows is None:
            return self._begin_rows()
        if len(self._rows.codes) >= self._capacity:
            self._set_aside()
        return rows

    def _begin_rows(self) -> JournalRows:
        rows = self._rows
        self._rows = JournalRows(self._sequence, self._samples)
        return rows

    def _set_aside(self) -> None:
        self._full = self._begin_rows()
        self._filled()

    def _add(self, purgatory: Any) -> None:
        """Note that *purgatory* has opened."""
        self._open[purgatory] = {}

    def _remove(self, purgatory: Any) -> None:
        """Drop all references to *purgatory*."""
        self._open.pop(purgatory, None)
        self._purgatory = self._kind = None

    def ended(
        self, purgatory: Any, op: AwaitableOperation, outcome: Outcome, waited: float, lateness: float | None
    ) -> None:
        sequence = self._sequence
        self._sequence = sequence + 1
        number = 0 if outcome is COMPLETED else OUTCOMES.index(outcome)  # by identity: hashing an Outcome is a call
        if self._samples and random() >= self._shares[number]:
            return
        rows = self._rows
        if not self._is_recording or len(rows.codes) >= self._capacity:
            self._dropped += 1
            if not self._is_recording:
                self._not_open()
            return
        keys = keys_of(op)
        kind = type(op)
        try:  # Everything that may raise comes first, so that no row is half there.
            try:
                key_hash = self._hashes[keys[0]]
            except Exception:  # it is new, or its own __eq__ raised
                key_hash = self._hash_key(keys[0])
            if kind is not self._kind or purgatory is not self._purgatory:
                self._find(purgatory, kind)
            if self._keep_keys:
                rows.keys.append(shown(keys[0]))
        except BaseException:
            self._dropped += 1
            rows.skip()
            raise
        if rows.numbered:
            rows.sequences.append(sequence)
        code = len(keys) * KEY_COUNT_UNIT + self._number * SERIES_UNIT + number * OUTCOME_UNIT
        rows.codes.append(code + 1 if is_missed(op) else code)
        rows.key_hashes.append(key_hash)
        rows.ended_at.append(self._time())
        rows.waited.append(waited)
        rows.timeouts.append(seconds_of(op))
        if lateness is not None:
            rows.lateness.append(lateness)
        if len(rows.codes) == self._capacity and self._full is None:
            self._set_aside()

    def _find(self, purgatory: Any, kind: type) -> None:
        """Set the number of *kind* in *purgatory*."""
        numbers = self._open.get(purgatory)
        if numbers is None:  # closed by a hook of this operation: keep no reference
            self._purgatory = self._kind = None
            self._number = self._new_number(purgatory.name, kind)
            return
        if kind not in numbers:
            numbers[kind] = self._new_number(purgatory.name, kind)
        self._purgatory, self._kind, self._number = purgatory, kind, numbers[kind]


def shown(key: object) -> str:
    """Return the repr of *key*, or a text in its place, as valid UTF-8; see described()."""
    return described(key).encode(errors="backslashreplace").decode()
