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
R6 A number missing among the messages of another process is a gap, too: check everything. A link's numbers begin after
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

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from math import inf
from random import random
from typing import Final

from .keys import DATA, EVERY_KEY, MAX_MESSAGE, MalformedError, decode, decode_all, lines_of, milliseconds, pack
from .missed import Entry, Missed, split_ids
from .outbox import MAX_OUTBOX, Outbox

#: Malformed lines after which the rest of a message is skipped.
MAX_MALFORMED: Final = 10
#: Seconds between two checks of everything caused by messages.
SPACING: Final = 0.25
#: The most characters that the ids of a kept message add to it.
MAX_IDS: Final = 80
#: The most processes to remember, each with its last message.
MAX_ORIGINS: Final = 1_000


class Echo:
    """Tracks which acknowledgements and echoes the server owes (R3). Times are in seconds."""

    def __init__(self, heartbeat: float, timeout: float) -> None:
        self._heartbeat: Final = heartbeat
        self._timeout: Final = timeout
        #: For each batch without an echo: the number of its last message, and the time at which it was sent or due.
        self._unechoed: deque[tuple[int, float]] = deque()
        self._number = self._acknowledged = 0
        self.reset()

    def reset(self) -> None:
        """Start over for a new link: no answer is missing, and a probe is due at once."""
        self._unechoed.clear()
        #: Continues the last link's numbers. A process that its last messages did not reach sees a missing number.
        self._number = self._acknowledged
        self._sent_at = -inf
        self._unacknowledged_since = inf
        #: The time at which the newest echoed message was sent.
        self.echoed_at = -inf

    def next_number(self) -> int:
        """Return the number of the next message."""
        return self._number + 1

    def sent(self, count: int, now: float) -> None:
        self._number += count
        # A message may have waited for the last acknowledgement. It then counts from the time at which it was due, so
        # that a slow acknowledgement does not delay the detection of a gap. It gets at least 1.5 heartbeats: an
        # acknowledgement in time leaves as much, however late the loop reads it. The cost: with a heartbeat below the
        # timeout, acknowledgement and echo together get 1.5 * heartbeat + timeout, not twice the timeout.
        slack = 1.5 * self._heartbeat
        due = max(self._sent_at + slack, now - self._timeout + slack)
        self._unechoed.append((self._number, min(now, due) if self._sent_at > -inf else now))
        self._sent_at = self._unacknowledged_since = now

    def acknowledged(self) -> None:
        self._unacknowledged_since = inf
        self._acknowledged = self._number

    def is_acknowledgement_overdue(self, now: float) -> bool:
        return now >= self._unacknowledged_since + self._timeout

    def is_unacknowledged(self) -> bool:
        return self._unacknowledged_since < inf

    def heard(self, number: int) -> None:
        """Note the echo of a message. The echo of a batch's last message confirms the batch and all earlier ones."""
        while self._unechoed and self._unechoed[0][0] <= number <= self._number:
            self.echoed_at = self._unechoed.popleft()[1]

    def is_probe_due(self, now: float) -> bool:
        return now >= self._probe_at()

    def is_overdue(self, now: float) -> bool:
        return now >= self._overdue_at()

    def next_at(self) -> float:
        """Return the time at which a probe is due or an answer is overdue."""
        return min(self._probe_at(), self._overdue_at())

    def _probe_at(self) -> float:
        # Counted from the last message, not from its echo: later and later echoes must not delay the probe.
        return inf if self.is_unacknowledged() else self._sent_at + self._heartbeat

    def _overdue_at(self) -> float:
        unechoed_since = self._unechoed[0][1] if self._unechoed else inf
        return min(unechoed_since, self._unacknowledged_since) + self._timeout


class Arrivals:
    """Notices missing numbers among the messages of each process (R6, R8).

    Args: settling: seconds after a subscription. Within this time, every other process sends a message.
    """

    def __init__(self, settling: float) -> None:
        self._settling: Final = settling
        self._settled_at = inf
        #: By origin: its last link, and the last number on that link.
        self._last: dict[str, tuple[int, int]] = {}

    def reset(self, origin: str, link: int, number: int, now: float) -> None:
        """Start over for a new link of this process: earlier messages of others are not known."""
        self._last = {origin: (link, number)}
        self._settled_at = now + self._settling

    def gap_at(self, origin: str, link: int, number: int, now: float) -> float:
        """Note a message. Returns: the time to check everything; infinity if no earlier message is missing."""
        last = self._last.get(origin)
        if last is None:
            if len(self._last) >= MAX_ORIGINS:  # most have ended; the others are heard anew, as after reset()
                self._last.clear()
                self._settled_at = now + self._settling
            self._last[origin] = link, number
            return self._settled_at if number > 1 else inf
        if (link, number) <= last:  # repeated, or late
            return inf
        self._last[origin] = link, number
        return now if number > last[1] + 1 else inf  # a new link repeats the numbers that were not acknowledged


class Rules:
    """The side of one process, from one start of its bus to the close.

    Args:
        origin: an id unique to this process and this start, also among forks.
        check: called with keys to check here, and the limit of each; None: no limit.
        check_all: called to check every key here.
        heartbeat: seconds. A process that has sent nothing for so long sends a probe.
        timeout: seconds that the server may take to acknowledge and to echo.
        max_outbox: the most keys in the outbox before it collapses.
        spread: seconds. A check of everything after a gap is made at a random time within them, so that the processes
            do not read in a herd.
        replays: whether the server keeps messages.
        listens: whether the link receives messages. If not, an acknowledgement counts as the echo.
        tell: called with each message that carries data. Such a message is neither numbered nor kept.
        warn: called once, with the reason why gaps check everything although the server keeps messages.
    """

    def __init__(
        self,
        origin: str,
        check: Callable[[Sequence[Hashable], int | None], object],
        check_all: Callable[[], object],
        heartbeat: float,
        timeout: float,
        max_outbox: int = MAX_OUTBOX,
        spread: float = 0.0,
        replays: bool = False,
        listens: bool = True,
        tell: Callable[[str], object] = lambda message: None,
        warn: Callable[[str], object] = lambda reason: None,
    ) -> None:
        self._origin: Final = origin
        self._spread: Final = spread
        self._listens: Final = listens
        self._check: Final = check
        self._check_all: Final = check_all
        self._tell: Final = tell
        self.outbox: Final = Outbox(max_outbox)
        self.echo: Final = Echo(heartbeat, timeout)
        self._arrivals: Final = Arrivals(1.5 * heartbeat + timeout)
        self._replay: Final = Missed() if replays else None
        self._warn: Final = warn
        #: Whether a message was heard that the server does not keep, and when that is over.
        self._is_mixed = False
        self._mixed_until = -inf
        #: Seconds of one link without such a message after which no process sends them any more.
        self._mixed_for: Final = 2 * (1.5 * heartbeat + timeout)
        self._link = 0
        #: Whether the subscription is confirmed, and whether its first echo has arrived.
        self._confirmed = False
        self.connected = False
        #: Whether a gap has not led to a check of everything yet.
        self._is_in_gap = False
        #: The times of the last check of everything, of the last one caused by a message, and of the next one.
        self._everything_at = self._all_checked_at = -inf
        self._all_due_at = inf
        #: The time of the last acknowledgement of keys.
        self._keys_acknowledged_at = -inf
        self.gaps = self.published = self.received = self.replayed = self.malformed = 0

    def publish(self, key: Hashable, line: str, now: float, limit: int | None = None) -> None:
        self.published += 1
        self.outbox.put(key, line, now, inf if limit is None else limit)
        self._check((key,), limit)

    def confirmed(self, now: float) -> None:
        """Note that the server has confirmed the subscription of a new link (R1)."""
        self._confirmed = True
        self._link += 1
        self.echo.reset()
        self._arrivals.reset(self._origin, self._link, self.echo.next_number() - 1, now)
        if self._is_mixed:
            self._mixed_until = max(self._mixed_until, now + self._mixed_for)
        if self._replay is None or not self._replay.confirmed() or self._is_mixed:
            self._check_after_gap(now)

    def messages(self, now: float) -> list[str]:
        """Return the messages to send now: none while the last batch is unacknowledged."""
        if self.echo.is_unacknowledged():
            return []
        lines = self.outbox.take()
        if not lines and not self.echo.is_probe_due(now):
            return []
        age = milliseconds(now - self._keys_acknowledged_at)
        messages = pack(f"@{self._origin} {self._link}", self.echo.next_number(), lines, age)
        self.echo.sent(len(messages), now)
        return messages

    def acknowledged(self, now: float) -> None:
        """Note that the server has the last messages()."""
        if self.outbox.acknowledge():
            self._keys_acknowledged_at = now
        self.echo.acknowledged()
        if not self._listens:
            self._hear_echo(self._link, self.echo.next_number() - 1)

    def hear(self, message: str, now: float) -> None:
        """Handle a message from the channel."""
        if len(message) > MAX_MESSAGE + MAX_IDS:  # not from a bus, and slow to read
            self.malformed += 1
        elif message.startswith("@"):
            head, _, body = message.partition("\n")
            head, before, own = split_ids(head)
            origin, link, number, age = _parse(head)
            if self._replay is None or not own:
                self._hear_unkept(now, self._mixed_for)
            elif self._confirmed:
                self._follow(self._replay, head, before, own, now)
            if number and self._confirmed and (self._replay is None or not own):
                self._notice(self._arrivals.gap_at(origin, link, number, now), now - age, now)
            if origin == self._origin:
                self._hear_echo(link, number)
            elif body:
                self._hear_body(body, now)
        elif message.startswith(DATA):
            self._tell(message)
        else:
            self._hear_unkept(now, inf)
            self._hear_lines(message, now, False)

    def reads_from(self) -> str | None:
        """Return the id of the first kept message to read; None: none is missing (R10)."""
        return None if self._replay is None else self._replay.reads_from()

    def replay(self, entries: list[Entry], now: float) -> None:
        """Handle *entries*, read after a gap: kept messages with rising ids. The first was seen before."""
        if self._replay is None or self._replay.reads_from() is None:  # everything was checked meanwhile
            return
        if not self._replay.read(entries):
            self._check_after_gap(now)
            return
        self._is_in_gap = self._replay.reads_from() is not None
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
        return min(self.echo.next_at() if self._confirmed else inf, self._all_due_at)

    def tick(self, now: float) -> None:
        """Check everything if that is due. messages() sends probes, and Echo tells overdue answers."""
        if now >= self._all_due_at:
            self._all_checked_at = now
            self._check_everything(now)

    def broken(self, now: float) -> None:
        """Note that the link is given up (R2, R3). Everything is checked when the next one is confirmed (R1)."""
        if (
            self._all_due_at <= self._all_checked_at + SPACING
        ):  # a message asked for it; the server may be down for long
            self._check_everything(now)
        if self._confirmed:
            self.gaps += 1
            self._is_in_gap = True
        self._give_up()

    def closed(self, now: float) -> None:
        """Note that the bus closes. This is not a gap, but checks that are still due are made. Idempotent."""
        self._give_up()
        if self._is_in_gap or self._all_due_at < inf:
            self._check_everything(now)

    def _give_up(self) -> None:
        self.outbox.put_back()
        self.connected = self._confirmed = False

    def _check_after_gap(self, now: float) -> None:
        if self._link > 1 and self._spread:
            self._all_due_at = min(self._all_due_at, now + self._spread * random())
            self.tick(now)  # an earlier gap may have been due
        else:
            self._check_everything(now)

    def _check_everything(self, now: float) -> None:
        self._is_in_gap, self._all_due_at, self._everything_at = False, inf, now
        if self._replay is not None:
            self._replay.skip()
        self._check_all()

    def _notice(self, gap_at: float, lost_at: float, now: float) -> None:
        """Check everything at *gap_at*, and count the gap if that time has come (R6, R8).

        Args: lost_at: the messages that may be lost were published at this time, or before (R9).
        """
        if lost_at < self._everything_at:
            return
        if gap_at <= now:
            self.gaps += 1
            self._hear_everything(now)
        else:
            self._all_due_at = min(self._all_due_at, gap_at)

    def _hear_everything(self, now: float) -> None:
        """Check everything now, or SPACING after the last time, because each time tries every operation (R7)."""
        self._all_due_at = min(self._all_due_at, max(now, self._all_checked_at + SPACING))
        self.tick(now)

    def _hear_echo(self, link: int, number: int) -> None:
        """Note an echo of this link, and ignore one of an earlier link. Its keys were checked when published."""
        if self._confirmed and link == self._link:
            self.echo.heard(number)
            self.connected = self.echo.echoed_at > -inf

    def _follow(self, replay: Missed, head: str, before: str, own: str, now: float) -> None:
        """Note the ids of a message. It is a gap if, on this link, messages before it are missing (R10)."""
        self._is_mixed = self._is_mixed and now < self._mixed_until
        was_reading, is_first = replay.reads_from() is not None, replay.is_new()
        if not replay.hear(head, before, own):
            self._check_everything(now)
        if not is_first and not was_reading and replay.reads_from() is not None:
            self.gaps += 1

    def _hear_unkept(self, now: float, lasts: float) -> None:
        """Note a message that the server does not keep (R10). Earlier ones may have been lost in earlier gaps.

        Args: lasts: seconds for which more of them are expected.
        """
        if self._replay is None:
            return
        if self._mixed_until == -inf:
            self._warn("a gap checks everything, as some messages come without replay=: pass it in all processes")
        self._mixed_until = max(self._mixed_until, now + lasts)
        if not self._is_mixed:
            self._is_mixed = True
            if self._link > 1:
                self._check_everything(now)

    def _hear_body(self, body: str, now: float) -> None:
        """Check the keys of a message of a bus: all at once if each line is a key without a limit."""
        try:
            keys = decode_all(body.split("\n"))
        except MalformedError:
            self._hear_lines(body, now, True)
        else:
            self.received += len(keys)
            self._check(keys, None)

    def _hear_lines(self, text: str, now: float, is_of_a_bus: bool) -> None:
        """Check the keys in *text* line by line, because some have limits, or may not be keys."""
        malformed = 0
        for line, limit in lines_of(text):
            if line.startswith(EVERY_KEY) and (line[1:].isdecimal() or len(line) == 1):
                self.received += 1
                if now - int(line[1:13] or 0) / 1000 >= self._everything_at:
                    self._hear_everything(now)
            elif line:
                try:
                    key = decode(line)
                except MalformedError:
                    malformed += 1
                    if malformed == MAX_MALFORMED:
                        if is_of_a_bus:  # it is of a newer version: the rest may hold keys
                            self._hear_everything(now)
                        break
                else:
                    self.received += 1
                    self._check((key,), limit)
        self.malformed += malformed


def _parse(head: str) -> tuple[str, int, int, float]:
    """Return origin, link, number, and the age in seconds of the last keys before it. Each is 0 if *head* lacks it."""
    match head[1:].split(" "):
        case [origin, link, number, *more] if len(head) < 100 and link.isdecimal() and number.isdecimal():
            age = int(more[0]) / 1000 if more and more[0].isdecimal() else 0.0
            return origin, int(link), int(number), age
        case [origin, *_]:
            return origin, 0, 0, 0.0
    raise AssertionError("split() returns at least one part")
