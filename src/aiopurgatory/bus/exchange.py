"""The rules of a bus: with them, no operation goes on waiting for a change that its process missed. No I/O.

R1 After every confirmed subscription, including the first, check everything: earlier messages were not received. That
   is the only check of everything that a gap costs.
R2 A key leaves the outbox when the server has acknowledged it. After a break, keys in flight are sent again. A key
   published while it is in flight is sent again.
R3 A process must receive its own messages, which it sends on the other connection, at least one per heartbeat. Each
   must be acknowledged and echoed within the timeout. Otherwise there is a gap: give up the link, and check everything.
   Messages are numbered, so that an echo is never taken for the echo of a later message. The bus is up after its first
   echo.
R4 The bus reconnects by itself, after partly random pauses. They grow with each break, and shrink with the time that
   links stay up.
R5 The outbox is a bounded dict of keys, so a repeated key is sent once, and the limits of its publishes add up. Above
   its bound it collapses into `*`, which makes every process check everything.
R6 A number missing among the messages of another process is also a gap: check everything. A link's numbers begin after
   the last acknowledged number of the link before.
R7 Each message from the channel costs a bounded time. Checks of everything caused by messages are at least SPACING
   apart.
R8 The numbers of a process begin at 1. If the first message heard of a process has a higher number, earlier ones may be
   lost: that is a gap. All such gaps together cause one check of everything, at the time within which a gap must be
   noticed, counted from the subscription.
R9 Each message carries the age of its sender's last acknowledged keys. If they are older than our last check of
   everything, that check covered whatever we lost. In the same way, a process that moves to another server has
   everything checked there that its former server acknowledged.
R10 If the server keeps the newest messages, a gap costs a check of the keys that were missed (see missed.py). It costs
   a check of everything only if some of them are no longer there, or if a message was heard that the server does not
   keep: in the gap, there may have been more of this kind. A process that sends such messages has ended if none comes
   for long on one link. Another program may send the next one at any time.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

from .gaps import Arrivals, Echo, Everything, Pace
from .keys import DATA, EVERY_KEY, MAX_MESSAGE, MalformedError, decode, decode_all, lines_of, milliseconds, pack
from .missed import Entry, Missed, split_ids
from .outbox import Outbox
from .targets import Targets

#: Malformed lines after which the rest of a message is skipped.
MAX_MALFORMED: Final = 10
#: The most characters that the ids of a kept message add to it.
MAX_IDS: Final = 80


class Exchange:
    """The side of one process, from one start of its bus to the close.

    Args:
        origin: an id unique to this process and this start, also among forks.
        targets: check keys here, and hear the messages with data, which are neither numbered nor kept.
        pace: heartbeat, timeout and spread of the bus.
        missed: finds what a gap has swallowed. None: the server keeps no messages.
        listens: whether the link receives messages. If not, an acknowledgement counts as the echo.
    """

    def __init__(
        self,
        origin: str,
        targets: Targets,
        pace: Pace,
        missed: Missed | None = None,
        listens: bool = True,
    ) -> None:
        self._origin: Final = origin
        self._targets: Final = targets
        self._missed: Final = missed
        self._listens: Final = listens
        self.outbox: Final = Outbox()
        self.echo: Final = Echo(pace)
        self._arrivals: Final = Arrivals(pace.noticed())
        self._everything: Final = Everything(self._check_all, pace.spread)
        self._link = 0
        #: Whether the subscription is confirmed, and whether its first echo has arrived.
        self._confirmed = False
        self.connected = False
        #: The time of the last acknowledgement of keys.
        self._keys_acknowledged_at = -inf
        self.gaps = self.published = self.received = self.replayed = self.malformed = 0

    def publish(self, key: Hashable, line: str, now: float, limit: int | None = None) -> None:
        self.published += 1
        self.outbox.put(key, line, now, inf if limit is None else limit)
        self._targets.check((key,), limit)

    def confirmed(self, now: float) -> None:
        """Note that the server has confirmed the subscription of a new link (R1)."""
        self._confirmed = True
        self._link += 1
        self.echo.reset()
        self._arrivals.reset(self._origin, self._link, self.echo.number, now)
        if self._missed is None or not self._missed.confirmed(now):
            self._everything.check_after_gap(now, self._link == 1)

    def messages(self, now: float) -> list[str]:
        """Return the messages to send now: none while the last batch is unacknowledged."""
        if self.echo.is_unacknowledged():
            return []
        lines = self.outbox.take()
        if not lines and now < self.echo.probe_at():
            return []
        age = milliseconds(now - self._keys_acknowledged_at)
        messages = pack(f"@{self._origin} {self._link}", self.echo.number + 1, lines, age)
        self.echo.sent(len(messages), now)
        return messages

    def acknowledged(self, now: float) -> None:
        """Note that the server has the last messages()."""
        if self.outbox.acknowledge():
            self._keys_acknowledged_at = now
        self.echo.acknowledged()
        if not self._listens:
            self._hear_echo(self._link, self.echo.number)

    def hear(self, message: str, now: float) -> None:
        """Handle a message from the channel. Before the confirmation, it counts as one of the gap (R1)."""
        if not self._confirmed:
            return
        if len(message) > MAX_MESSAGE + MAX_IDS:  # not from a bus, and slow to read
            self.malformed += 1
        elif message.startswith("@"):
            head, _, body = message.partition("\n")
            head, before, own = split_ids(head)
            origin, link, number, age = _parse(head)
            if own and self._missed is not None:
                self._follow(self._missed, head, before, own, now)
            else:
                self._hear_unkept(now, False)
                if number:
                    self._notice(self._arrivals.gap_at(origin, link, number, now), now - age, now)
            if origin == self._origin:
                self._hear_echo(link, number)
            elif body:
                self._hear_body(body, now)
        elif message.startswith(DATA):
            self._targets.tell(message)
        else:
            self._hear_unkept(now, True)
            self._hear_lines(message, now, False)

    def reads_from(self) -> str | None:
        """Return the id of the first kept message to read; None: none is missing (R10)."""
        return None if self._missed is None else self._missed.reads_from()

    def replay(self, entries: list[Entry], now: float) -> None:
        """Handle *entries*, read after a gap: kept messages with rising ids. The first was seen before."""
        if self._missed is None or self._missed.reads_from() is None:  # everything was checked meanwhile
            return
        if not self._missed.read(entries):
            self._everything.check_after_gap(now, self._link == 1)
            return
        self._everything.is_owed = self._missed.reads_from() is not None
        lines: dict[str, None] = {}
        for _, text in entries[1:]:
            head, _, body = text.partition("\n")
            if body and _parse(head)[0] != self._origin:
                lines.update((line, None) for line, _ in lines_of(body))
        if lines:
            self.replayed += len(lines)
            self._hear_body("\n".join(lines), now)

    def next_at(self) -> float:
        """Return the latest time for the next tick(). Any other call may change it."""
        if not self._confirmed:
            return self._everything.due_at
        # No probe is sent while messages are read: the loop would wake again and again for it.
        probe_at = self.echo.probe_at() if self.reads_from() is None else inf
        return min(probe_at, self.echo.overdue_at(), self._everything.due_at)

    def tick(self, now: float) -> None:
        """Check everything if that is due. messages() sends probes, and Echo tells overdue answers."""
        self._everything.tick(now)

    def broken(self, now: float) -> None:
        """Note that the link is given up (R2, R3). Everything is checked when the next one is confirmed (R1)."""
        self._everything.broken(now)
        if self._confirmed:
            self.gaps += 1
            self._everything.is_owed = True
        self._give_up()

    def closed(self, now: float) -> None:
        """Note that the bus closes. This is not a gap, but checks that are still due are made. Idempotent."""
        self._give_up()
        self._everything.closed(now)

    def _give_up(self) -> None:
        self.outbox.put_back()
        self.connected = self._confirmed = False

    def _check_all(self) -> None:
        if self._missed is not None:
            self._missed.skip()
        self._targets.check_all()

    def _notice(self, gap_at: float, lost_at: float, now: float) -> None:
        """Check everything at *gap_at*, and count the gap if that time has come (R6, R8).

        Args: lost_at: the messages that may be lost were published at this time, or before (R9).
        """
        if lost_at < self._everything.checked_at:
            return
        if gap_at <= now:
            self.gaps += 1
            self._everything.ask(now)
        else:
            self._everything.check_at(gap_at)

    def _hear_echo(self, link: int, number: int) -> None:
        """Note an echo of this link, and ignore one of an earlier link. Its keys were checked when published."""
        if self._confirmed and link == self._link:
            self.echo.heard(number)
            self.connected = self.echo.echoed_at > -inf

    def _follow(self, missed: Missed, head: str, before: str, own: str, now: float) -> None:
        """Note the ids of a message. It is a gap if, on this link, messages before it are missing (R10)."""
        was_reading, is_first = missed.reads_from() is not None, missed.is_new()
        if not missed.hear(head, before, own, now):
            self._everything.check(now)
        if not is_first and not was_reading and missed.reads_from() is not None:
            self.gaps += 1

    def _hear_unkept(self, now: float, for_ever: bool) -> None:
        """Note a message that the server does not keep (R10). Earlier ones may have been lost in earlier gaps.

        Args: for_ever: it is of another program, which may send the next one at any time.
        """
        if self._missed is not None and self._missed.hear_unkept(now, for_ever) and self._link > 1:
            self._everything.check(now)

    def _hear_body(self, body: str, now: float) -> None:
        """Check the keys of a message of a bus: all at once if each line is a key without a limit."""
        try:
            keys = decode_all(body.split("\n"))
        except MalformedError:
            self._hear_lines(body, now, True)
        else:
            self.received += len(keys)
            self._targets.check(keys)

    def _hear_lines(self, text: str, now: float, is_of_a_bus: bool) -> None:
        """Check the keys in *text* line by line, because some have limits, or may not be keys."""
        malformed = 0
        for line, limit in lines_of(text):
            if line.startswith(EVERY_KEY) and (line[1:].isdecimal() or len(line) == 1):
                self.received += 1
                if now - int(line[1:13] or 0) / 1000 >= self._everything.checked_at:
                    self._everything.ask(now)
            elif line:
                try:
                    key = decode(line)
                except MalformedError:
                    malformed += 1
                    if malformed == MAX_MALFORMED:
                        if is_of_a_bus:  # it is of a newer version: the rest may hold keys
                            self._everything.ask(now)
                        break
                else:
                    self.received += 1
                    self._targets.check((key,), limit)
        self.malformed += malformed


def _parse(head: str) -> tuple[str, int, int, float]:
    """Return origin, link, number, and the age in seconds of the last keys before it. Each is 0 if *head* lacks it."""
    origin, *rest = head[1:].split(" ")
    match rest:
        case [link, number, *more] if len(head) < 100 and link.isdecimal() and number.isdecimal():
            age = int(more[0]) / 1000 if more and more[0].isdecimal() else 0.0
            return origin, int(link), int(number), age
    return origin, 0, 0, 0.0
