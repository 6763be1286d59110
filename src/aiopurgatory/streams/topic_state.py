"""The rules of a log: each listener gets every event once, in order, until the end. No I/O.

S1 The events of a topic are numbered without gaps, in the order of their commits. An id is ``epoch-number``. The epoch
   is random, so a topic that the server has lost, and that began anew, is noticed. When the server's data has another
   life (a restart, a failover), a generation begins: the id is ``epoch.generation-number``, and the topic keeps the
   number at which it began. So an id of an event that the server has lost is also noticed. A server may lose commits
   and not tell (a crash of PostgreSQL without synchronous_commit): a writer that reads back fewer events than it knew
   also begins a generation.
S2 A reader gives the number of its last event. If the next one is not there, it is gone, and the reader is told.
S3 A writer counts its events, so an append that is repeated after a lost reply adds nothing. Of a run,
   its only producer does so; of a topic that many write to, each process. An id given by the caller counts as a writer
   of one event.
S4 A topic has one run, for ever. Its end is final, and so is the loss of it to another producer.
S5 The end is an event, and its data the reason: done, failed, cancelled, abandoned, or any other.
S6 A producer has a lease, which each commit renews. A worker that sees it expired throughout a pause, with no commit
   and no outage, ends the run as abandoned. After an outage, the pause lets a living producer come first.
S7 An append waits through an outage, for as long as the lease.
S8 A listener that resumes after an event that is gone is told so, and where to go on: at the oldest event that is kept.
S9 A listener may come before the first event: an unknown topic is waited for.
S10 A worker reads a topic once for all its listeners. A listener behind shares reads with those at the same place.
S11 The wake-up of the listeners is part of the commit.
S12 What is kept belongs to the topic. Bounds that a writer gives explicitly are stored with it, and of two, the larger
   one holds. A default shortens nothing, and a reader decides on nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from math import inf
from typing import Final, NamedTuple, TypeGuard

from ..errors import GoneError
from .event import Event
from .store import Change, Page, Row

#: The part of a lease that one must have expired before its run is abandoned (S6), and the looks at it meanwhile: an
#: outage within the pause must not pass unnoticed.
PAUSE: Final = 1 / 3
LOOKS: Final = 4
#: The part of a lease after which it is renewed: even if the server has lost the last renewal, the next one comes in
#: that pause.
RENEWAL: Final = 1 / 4

#: The name of the last event. No other has it.
END: Final = "end"

_ID: Final = re.compile(r"([a-z0-9]{1,20})(?:\.([a-z0-9]{1,20}))?-([0-9]{1,15})", re.ASCII)


class Block(NamedTuple):
    """Events that are dropped together: the number of the first one, their bytes, and the time of the first."""

    first: int
    size: int
    began: float


class IdGeneration(NamedTuple):
    """Events of one life of the server's data: its tag in their ids, and the number of the last event before them."""

    tag: str
    before: int


class Keep(NamedTuple):
    """How much of a topic to keep: so many events, bytes, and seconds. 0: nobody has given this bound."""

    events: float = 0
    size: float = 0
    seconds: float = 0


#: No bound is given.
NO_KEEP: Final = Keep()
#: The bounds that nobody has given.
DEFAULT_KEEP: Final = Keep(10_000, 16 << 20, 86_400.0)

_FIRST: Final = (IdGeneration("", 0),)


@dataclass(slots=True)  # not frozen, as all that is made for each event: that takes twice as long
class TopicState:
    """The state of a topic. Stores keep it as text. It is never changed.

    Args:
        epoch: random; a part of each id (S1).
        server: the incarnation of the server's data at the last commit.
        last: the number of the newest event.
        generations: oldest first.
        blocks: the events that are kept, oldest first.
        producer: a random text that only the producer of its run knows; empty: many write.
        lease: seconds; 0: many write.
        end: the reason, once the last event is the end.
        writers: the last events of writers, the newest last: `` name.count=number `` of each.
        keep: the bounds that writers have given (S12).
        rest: JSON of fields that a newer version has added: kept for it.
        archive: older writers. Stores keep it apart: few commits change it, so few write it.
    """

    epoch: str
    server: str
    last: int = 0
    generations: tuple[IdGeneration, ...] = _FIRST
    blocks: tuple[Block, ...] = ()
    producer: str = ""
    lease: float = 0.0
    end: str | None = None
    writers: str = ""
    keep: Keep = NO_KEEP
    rest: str = ""
    archive: str = ""

    @property
    def first(self) -> int:
        """The number of the oldest event that is kept; if none is, the number of the next."""
        return self.blocks[0].first if self.blocks else self.last + 1

    def id_of(self, number: int) -> str:
        """Return the id of the event *number*."""
        tag = self.generations[0].tag
        if len(self.generations) > 1:
            tag = next((g.tag for g in reversed(self.generations) if g.before < number), tag)
        return f"{self.epoch}.{tag}-{number}" if tag else f"{self.epoch}-{number}"

    def after(self, last: int, blocks: tuple[Block, ...], end: str | None, writers: str, archive: str) -> TopicState:
        """Return the state after a further event. (replace() takes ten times as long.)"""
        generations, producer, lease, keep = self.generations, self.producer, self.lease, self.keep
        made = self.epoch, self.server, last, generations, blocks, producer, lease, end, writers, keep
        return TopicState(*made, self.rest, archive)

    def keeping(self, keep: Keep) -> TopicState:
        """Return the state with the larger of its bounds and *keep* (S12)."""
        larger = Keep(*map(max, self.keep, keep))
        return self if larger == self.keep else replace(self, keep=larger)

    def event(self, row: Row) -> Event:
        """Return the event of *row*, which a store has returned."""
        number, text = row
        name, _, data = text.partition("\n")
        return Event(self.id_of(number), data, name or None, name == END)

    def text(self) -> str:
        """Return it as JSON, without fields at their defaults: it goes over the wire with each event."""
        blocks = ",".join([f"[{first},{size},{began!r}]" for first, size, began in self.blocks])
        server = encode_basestring_ascii(self.server)
        parts = [f'{{"epoch":"{self.epoch}","server":{server},"last":{self.last},"blocks":[{blocks}]']
        if self.producer:
            parts.append(f'"producer":"{self.producer}","lease":{self.lease!r}')
        if self.generations != _FIRST:
            parts.append(f'"generations":{_ENCODER.encode(self.generations)}')
        if self.end is not None:
            parts.append(f'"end":{_ENCODER.encode(self.end)}')
        if self.writers:
            parts.append(f'"writers":"{self.writers}"')
        if self.keep != NO_KEEP:
            parts.append(f'"keep":{list(self.keep)}')
        if self.rest:
            parts.append(self.rest)
        return ",".join(parts) + "}"


_FIELDS: Final = {field.name for field in fields(TopicState)} - {"rest", "archive"}
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


@lru_cache(64)
def in_force(keep: Keep) -> Keep:
    """Return *keep* with the defaults of the bounds that are not given."""
    return Keep(*[given or default for given, default in zip(keep, DEFAULT_KEEP, strict=True)])


def state_of(page: Page) -> TopicState | None:
    """Return the state on *page*; None: there is no such topic."""
    if not page.version:
        return None
    known = json.loads(page.state)
    known["blocks"] = tuple(Block(*each) for each in known["blocks"])
    if "generations" in known:
        known["generations"] = tuple(IdGeneration(*each) for each in known["generations"])
    if "keep" in known:
        known["keep"] = Keep(*known["keep"])
    rest = {name: known.pop(name) for name in known.keys() - _FIELDS}
    return TopicState(**known, rest=_ENCODER.encode(rest)[1:-1], archive=page.archive)


#: In place of a life of the server's data: it has lost events.
LOST: Final = "lost"


def has_lost(state: TopicState | None, highest: TopicState | None) -> TypeGuard[TopicState]:
    """Whether *state* has fewer events than its topic had at *highest* (S1). A new generation has told of the loss."""
    return (
        state is not None
        and highest is not None
        and (state.epoch, state.generations[-1]) == (highest.epoch, highest.generations[-1])
        and state.last < highest.last
    )


def place(state: TopicState, after: str | None) -> int:
    """Return the number of the event *after*, if every event since then is kept (S2, S8).

    Args: after: an id; None: from the beginning. Where many write, that is the oldest event kept.
    Raises: GoneError: events after it are gone, or it is not of this topic.
    """
    number = _number(state, after)
    if number is None or number < state.first - 1:
        oldest = state.id_of(state.first - 1)
        raise GoneError(f"events after {after or 'the beginning'} are gone; the oldest kept is next", after=oldest)
    return number


def number_in(after: str | None) -> int:
    """Return the number in the id *after*, of any topic; 0 if there is none."""
    found = _ID.fullmatch(after or "")
    return int(found[3]) if found else 0


def _number(state: TopicState, after: str | None) -> int | None:
    if after is None:
        return 0 if state.producer else state.first - 1
    found = _ID.fullmatch(after)
    if found is None or found[1] != state.epoch:
        return None
    tag, number = found[2] or "", int(found[3])
    limits = [g.before for g in state.generations[1:]] + [state.last]
    limit = next((limit for each, limit in zip(state.generations, limits, strict=True) if each.tag == tag), -1)
    return number if number <= limit else None


class Suspicion:
    """Watches the lease of a run (S6)."""

    def __init__(self) -> None:
        #: The newest commit, and since when this process knows it.
        self._seen = "", ""
        self._seen_at = 0.0
        #: Since when the lease is known to be expired.
        self._expired_at: float | None = None

    def look(self, page: Page, state: TopicState, now: float) -> float:
        """Look at the lease.

        Args: now: seconds, by the clock of this process.
        Returns: seconds until the next look; infinity: no look is needed; 0: end the run as abandoned.
        """
        if not state.producer or state.end is not None:
            return inf
        seen = page.server, page.version
        if self._seen != seen:
            self._seen, self._seen_at, self._expired_at = seen, now, None
        # By the server's clock alone, the lease might not end: it may step back, and a failover may bring a slower one.
        idle = max(page.idle, now - self._seen_at)
        if idle < state.lease:
            self._expired_at = None
            return state.lease - idle
        if self._expired_at is None:
            self._expired_at = now
        pause = state.lease * PAUSE
        return max(0.0, min(self._expired_at + pause - now, pause / LOOKS))

    def forget(self) -> None:
        """The server was down: the pause begins anew."""
        self._expired_at = None


def changed(state: TopicState, change: Change) -> TopicState:
    """Return *state* after *change*, as far as listeners need it."""
    if not change.rows:
        return state
    number, text = change.rows[-1]
    name, _, data = text.partition("\n")
    # Old blocks may be dropped by now: readers of their events are told then. Without a block, all would count as such.
    blocks = state.blocks or (Block(change.rows[0][0], 0, 0.0),)
    return state.after(number, blocks, data if name == END else None, "", "")
