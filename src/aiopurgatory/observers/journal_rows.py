"""What a journal writes down of every operation that ends, on the way of each: compiled.

A row is a number in each of eight lists, and no object of its own: nothing for the garbage collector to visit.
"""

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import mypyc_attr

from ..core.kit import Observer, Operation, Outcome, Owner, is_due, keys_of, owner_of, parking_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


OUTCOMES: Final = tuple(Outcome)
COMPLETED: Final = Outcome.COMPLETED
# One number says, from the right: whether it completed at its deadline only; the outcome; which series; how many keys.
OUTCOME_UNIT: Final = 2
SERIES_UNIT: Final = 8
KEY_COUNT_UNIT: Final = 1 << 30


@final
class JournalRows:
    """Columns, in the order of the rows. Times are in seconds.

    Args: first: the sequence number of the first row. numbered: there are gaps, so each row has its own.
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
        self.lateness: list[float] = []  # of those that expired
        self.keys: list[str] = []  # only where they are kept
        self.sequences: list[int] = []  # only if numbered

    def __len__(self) -> int:
        return len(self.codes)

    def number(self) -> None:
        """There is a gap behind the last row."""
        if not self.numbered:
            self.numbered = True
            self.sequences = [self.first + i for i in range(len(self.codes))]


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder(Observer):
    """Keeps a row of each operation that ends, until they are taken away.

    Args:
        capacity: rows until a batch is full; others are begun if the last full ones have been taken.
        shares: of the operations of each outcome that are kept.
        keep_keys: the repr of the first key, too.
        time: tells the time of day.
        hash_key: the hash of a key that is not among the hashes.
        number: called with a purgatory's name and a class of operations that is new there; its number.
        filled: called when there are full rows to be taken.
    """

    def __init__(
        self,
        capacity: int,
        shares: list[float],
        keep_keys: bool,
        time: Callable[[], float],
        hash_key: Callable[[Any], int],
        number: Callable[[str, type], int],
        filled: Callable[[], object],
    ) -> None:
        self.is_recording = False
        #: Rows that could not be kept.
        self.dropped_rows = 0
        self.hashes: dict[Hashable, int] = {}
        #: The numbers of the classes of operations in each open purgatory.
        self.open: dict[Any, dict[type, int]] = {}
        self._purgatories: dict[Owner | None, Any] = {}
        self.full: JournalRows | None = None
        self._capacity = capacity
        self._shares = shares
        self._samples = min(shares) < 1.0
        self._keep_keys = keep_keys
        self._time = time
        self._hash_key = hash_key
        self._new_number = number
        self._filled = filled
        self._sequence = 0  # of what ends next
        # What ended last: mostly, what ends next is of the same.
        self._owner: Owner | None = None
        self._kind: type | None = None
        self._number = 0
        self._filling = JournalRows(0, self._samples)

    def start_recording(self) -> None:
        """Begin with no rows: those of another loop, or of the process that this was forked from, are forgotten."""
        self.full = None
        self._filling = JournalRows(self._sequence, self._samples)
        for purgatory in list(self.open):
            if not purgatory.is_open:
                self.closed(purgatory)
        self.is_recording = True

    def stop_recording(self) -> None:
        """Drop what ends from now on."""
        self.is_recording = False

    def count_dropped(self, rows: int) -> None:
        """So many rows could not be written."""
        self.dropped_rows += rows

    def has_rows(self) -> bool:
        """Are there rows that are not full yet?"""
        return len(self._filling.codes) > 0

    def take_rows(self) -> JournalRows:
        """The full ones, else what there is; new ones are begun."""
        rows = self.full
        self.full = None
        if rows is None:
            return self._begin_rows()
        if len(self._filling.codes) >= self._capacity:
            self._put_aside()
        return rows

    def _begin_rows(self) -> JournalRows:
        rows = self._filling
        self._filling = JournalRows(self._sequence, self._samples)
        return rows

    def _put_aside(self) -> None:
        self.full = self._begin_rows()
        self._filled()

    def opened(self, purgatory: Any) -> None:
        self.open[purgatory] = {}
        self._purgatories[parking_of(purgatory)] = purgatory

    def closed(self, purgatory: Any) -> None:
        self.open.pop(purgatory, None)
        self._purgatories.pop(parking_of(purgatory), None)
        self._owner = self._kind = None

    def ended(self, op: Operation, outcome: Outcome, waited: float, lateness: float | None) -> None:
        sequence = self._sequence
        self._sequence = sequence + 1
        number = 0 if outcome is COMPLETED else OUTCOMES.index(outcome)  # the hash of an Outcome is a call
        if self._samples and random() >= self._shares[number]:
            return
        rows = self._filling
        if not self.is_recording or len(rows.codes) >= self._capacity:
            self.dropped_rows += 1
            return
        owner = owner_of(op)
        keys = keys_of(op)
        kind = type(op)
        try:  # what may raise comes first: a row is whole or not there
            try:
                key_hash = self.hashes[keys[0]]
            except KeyError:
                key_hash = self._hash_key(keys[0])
            if kind is not self._kind or owner is not self._owner:
                self._find(owner, kind)
            if self._keep_keys:
                rows.keys.append(shown(keys[0]))
        except BaseException:
            self.dropped_rows += 1
            rows.number()
            raise
        if rows.numbered:
            rows.sequences.append(sequence)
        code = len(keys) * KEY_COUNT_UNIT + self._number * SERIES_UNIT + number * OUTCOME_UNIT
        missed = number == 0 and is_due(op) and owner is not None and owner.missed_trigger(op)
        rows.codes.append(code + 1 if missed else code)
        rows.key_hashes.append(key_hash)
        rows.ended_at.append(self._time())
        rows.waited.append(waited)
        rows.timeouts.append(seconds_of(op))
        if lateness is not None:
            rows.lateness.append(lateness)
        if len(rows.codes) == self._capacity and self.full is None:
            self._put_aside()

    def _find(self, owner: Owner | None, kind: type) -> None:
        purgatory = self._purgatories.get(owner)
        if purgatory is not None and kind in self.open[purgatory]:
            number = self.open[purgatory][kind]
        else:
            assert owner is not None
            number = self._new_number(owner.loop.name, kind)
            if purgatory is not None:
                self.open[purgatory][kind] = number
        is_open = purgatory is not None  # one that is closed is not kept alive
        self._owner, self._kind = (owner, kind) if is_open else (None, None)
        self._number = number


def shown(key: object) -> str:
    """The repr of *key*, as valid UTF-8."""
    return repr(key).encode(errors="backslashreplace").decode()
