"""What a journal writes down of every operation that ends, on the way of each: compiled.

A row is a number in each of eight lists, and no object of its own: nothing for the garbage collector to visit.
"""

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import mypyc_attr

from .endings import COMPLETED, missed_trigger
from .observer import Observer
from .outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .operation import Operation
    from .rules import Rules

OUTCOMES: Final = tuple(Outcome)
# One number says, from the right: whether it completed at its deadline only; the outcome; which series; how many keys.
OUTCOME_UNIT: Final = 2
SERIES_UNIT: Final = 8
KEY_COUNT_UNIT: Final = 1 << 30


@final
class Records:
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
    """Keeps records of what ends, for who takes them away.

    Args:
        capacity: rows until records are full; others are begun if the last full ones have been taken.
        shares: of the operations of each outcome that are kept.
        keep_keys: the repr of the first key, too.
        time: tells the time of day.
        hash_key: the hash of a key that is not among the hashes.
        number: the number of a class of operations that is new in a purgatory.
        filled: called when there are full records to be taken.
    """

    def __init__(
        self,
        capacity: int,
        shares: list[float],
        keep_keys: bool,
        time: Callable[[], float],
        hash_key: Callable[[Any], int],
        number: Callable[[Any, type], int],
        filled: Callable[[], object],
    ) -> None:
        self.is_recording = False
        #: Rows that could not be kept.
        self.dropped_rows = 0
        self.hashes: dict[Hashable, int] = {}
        self.open: dict[Rules | None, dict[type, int]] = {}
        self.full: Records | None = None
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
        self._owner: Rules | None = None
        self._kind: type | None = None
        self._number = 0
        self._filling = Records(0, self._samples)

    def take_records(self) -> Records:
        """The full ones, else what there is; new ones are begun."""
        records = self.full
        self.full = None
        if records is None:
            return self._begin_records()
        if len(self._filling.codes) >= self._capacity:
            self._put_aside()
        return records

    def _begin_records(self) -> Records:
        records = self._filling
        self._filling = Records(self._sequence, self._samples)
        return records

    def _put_aside(self) -> None:
        self.full = self._begin_records()
        self._filled()

    def opened(self, purgatory: Any) -> None:
        self.open[purgatory] = {}

    def closed(self, purgatory: Any) -> None:
        self.open.pop(purgatory, None)
        self._owner = self._kind = None

    def ended(self, op: Operation, outcome: Outcome, waited: float, lateness: float | None) -> None:
        sequence = self._sequence
        self._sequence = sequence + 1
        number = 0 if outcome is COMPLETED else OUTCOMES.index(outcome)  # the hash of an Outcome is a call
        if self._samples and random() >= self._shares[number]:
            return
        records = self._filling
        if not self.is_recording or len(records.codes) >= self._capacity:
            self.dropped_rows += 1
            return
        owner = op._op_owner
        keys = op._op_keys
        kind = type(op)
        try:  # what may raise comes first: a row is whole or not there
            try:
                key_hash = self.hashes[keys[0]]
            except KeyError:
                key_hash = self._hash_key(keys[0])
            if kind is not self._kind or owner is not self._owner:
                self._find(owner, kind)
            if self._keep_keys:
                records.keys.append(shown(keys[0]))
        except BaseException:
            self.dropped_rows += 1
            records.number()
            raise
        if records.numbered:
            records.sequences.append(sequence)
        code = len(keys) * KEY_COUNT_UNIT + self._number * SERIES_UNIT + number * OUTCOME_UNIT
        records.codes.append(code + 1 if number == 0 and op._op_due and missed_trigger(op) else code)
        records.key_hashes.append(key_hash)
        records.ended_at.append(self._time())
        records.waited.append(waited)
        records.timeouts.append(op._op_timeout)
        if lateness is not None:
            records.lateness.append(lateness)
        if len(records.codes) == self._capacity and self.full is None:
            self._put_aside()

    def _find(self, owner: Rules | None, kind: type) -> None:
        try:
            number = self.open[owner][kind]
        except KeyError:
            number = self._new_number(owner, kind)
        is_open = owner in self.open  # one that is closed is not kept alive
        self._owner, self._kind = (owner, kind) if is_open else (None, None)
        self._number = number


def shown(key: object) -> str:
    """The repr of *key*, as valid UTF-8."""
    return repr(key).encode(errors="backslashreplace").decode()
