"""Which messages a gap has swallowed, if the server keeps the newest ones (R10 of exchange.py). No I/O.

The server keeps each message with keys in a stream, under an id that rises. Each message is heard with the id of the
kept one before it, and with its own id, if it is kept. So a message that was missed shows in the next one, or in the
next probe:

    heard            ids                            what is missing
    "a"              before -,  own 1               nothing: it is the first
    "b"              before 1,  own 2               nothing
    (a gap)
    a probe          before 5,  own -               3 to 5: read on from 2, up to 5 at least

Reading begins with the last message seen. If the stream has another one under its id, or none, then it was trimmed
beyond it, or the server has lost data: check everything.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, TypeAlias

#: An id, and the text: the head, and the keys on the lines after it.
Entry: TypeAlias = tuple[str, str]

#: In place of the id: there is none.
NO_ID: Final = "-"


class Missed:
    """Follows the ids of one process, over all its links.

    Args:
        lasts: seconds of one link without a message that the server does not keep, after which no process sends any.
        warn: called once, with the reason why gaps check everything nevertheless.
    """

    def __init__(self, lasts: float, warn: Callable[[str], object]) -> None:
        self._lasts: Final = lasts
        self._warn: Final = warn
        #: Whether a message was heard that the server does not keep: a gap may have swallowed more of them; and when
        #: that is over.
        self._are_unkept_heard = False
        self._unkept_until = -inf
        #: The id and the head of the message up to which all were seen, or everything was checked since.
        self._seen: tuple[str, str] | None = None
        #: On this link, everything was heard after the id _start and up to _tail. None: nothing was heard yet.
        self._start = self._tail = ""
        self._tail_head: str | None = None
        #: Whether messages between _seen and _start have to be read.
        self._is_reading = False

    def confirmed(self, now: float) -> bool:
        """Start over for a new link. Returns: False: more may be missing than can be read, so check everything."""
        if self._are_unkept_heard:
            self._unkept_until = max(self._unkept_until, now + self._lasts)
        self._start = self._tail = ""
        self._tail_head = None
        self._is_reading = False
        return self._seen is not None and not self._are_unkept_heard

    def is_new(self) -> bool:
        """Whether nothing was heard on this link yet."""
        return not self._tail

    def hear_unkept(self, now: float, for_ever: bool) -> bool:
        """Note a message that the server does not keep. Returns: whether it is the first, for some time."""
        if self._unkept_until == -inf:
            self._warn("a gap checks everything, as some messages come without replay=: pass it in all processes")
        self._unkept_until = max(self._unkept_until, inf if for_ever else now + self._lasts)
        was_heard, self._are_unkept_heard = self._are_unkept_heard, True
        return not was_heard

    def hear(self, head: str, before: str, own: str, now: float) -> bool:
        """Note a message. Returns: False: something was missed that cannot be read, so everything must be checked."""
        self._are_unkept_heard = self._are_unkept_heard and now < self._unkept_until
        is_known = True
        if before != self._tail:
            is_known = self._seen is not None or not self._tail
            self._is_reading = self._seen is not None or before != NO_ID
            self._start = self._tail = before
            self._tail_head = None
        if own != NO_ID:
            self._tail, self._tail_head = own, head
            if not self._is_reading:
                self._seen = own, head
        return is_known

    def reads_from(self) -> str | None:
        """Return the id from which to read, inclusive; None: there is nothing to read."""
        if not self._is_reading:
            return None
        return self._start if self._seen is None else self._seen[0]

    def read(self, entries: list[Entry]) -> bool:
        """Note the *entries* that were read. Returns: False: some are lost, so everything must be checked."""
        if not self._is_followed_by(entries):
            was_seen = self._seen is not None
            self.skip()
            self._is_reading = self._is_reading and was_seen
            return not was_seen
        self._seen = entries[-1][0], _head(entries[-1][1])
        if _order(self._seen[0]) >= _order(self._start):
            self._is_reading = False
            if self._tail_head is not None and _order(self._tail) > _order(self._seen[0]):
                self._seen = self._tail, self._tail_head
        return True

    def skip(self) -> None:
        """Note that everything is checked: no missed message needs reading, but perhaps a head to go on from."""
        if self._is_reading:
            self._seen = None if self._tail_head is None else (self._tail, self._tail_head)
            self._is_reading = self._seen is None and self._start != NO_ID

    def _is_followed_by(self, entries: list[Entry]) -> bool:
        """Whether *entries* begin with the last one seen, and go on as far as they must."""
        if not entries or entries[0][0] != self.reads_from():
            return False
        if self._seen is not None and _head(entries[0][1]) != self._seen[1]:
            return False  # a server that has lost messages may use their ids again
        return len(entries) > 1 or _order(entries[0][0]) >= _order(self._start)


def split_ids(head: str) -> tuple[str, str, str]:
    """Return *head* without ids, and the two ids; empty ones if it has none."""
    match head.rsplit(" ", 2):
        case [bare, before, own] if "-" in before and "-" in own:
            return bare, before, own
    return head, "", ""


def _head(text: str) -> str:
    return text.partition("\n")[0]


def _order(id_: str) -> tuple[int, int]:
    milliseconds, _, number = id_.partition("-")
    return int(milliseconds or -1), int(number or -1)
