"""The effect of each write on a topic. No I/O. Upholds S1, S3, S4 and S5 of the rules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from os import urandom
from typing import Final, NamedTuple

from .event import EndedError, TopicExistsError
from .store import Commit, Page, Row
from .topic_state import END, NO_KEEP, Block, IdGeneration, Keep, TopicState, in_force

#: The most generations of a topic to remember. Ids of earlier ones are gone.
MAX_GENERATIONS: Final = 64
#: Writers to remember (S3); and how many to add to the archive at a time: each commit writes the others.
MAX_WRITERS: Final = 64
RECENT: Final = 16
#: Events are dropped in blocks. The kept events are about so many blocks.
BLOCKS: Final = 16


class Stamp(NamedTuple):
    """Tells an append from every other one: the name of its writer, and a number that this uses once."""

    writer: str
    serial: int


def stamp_of(own_id: str) -> Stamp:
    """Return the stamp of an id given by the caller: its hash, which takes less room."""
    return Stamp(b64encode(blake2b(own_id.encode(), digest_size=9).digest()).decode(), 0)


@dataclass(slots=True)
class Write:
    """A change to make, and the id that the caller gets.

    Args:
        commit: None: there is nothing to change, since it was made before.
        state: the topic after it.
    """

    commit: Commit | None
    id: str
    state: TopicState


#: Decides on the change, given the topic as it is. Raises: EndedError, TopicExistsError; Writer adds the topic's name.
Decide = Callable[[Page, TopicState | None], Write]


@dataclass(slots=True)
class Appending:
    """Appends an event.

    Args:
        keep: the bounds that the writer gives.
        producer: of the run; empty: many write.
        stamp: a repeated append with it adds nothing. None: an end by a listener, which is not repeated.
        is_end: it is the end: *data* is the reason. Anybody may end a run.
    """

    data: str
    name: str | None
    keep: Keep = NO_KEEP
    producer: str = ""
    stamp: Stamp | None = None
    is_end: bool = False

    def __call__(self, page: Page, state: TopicState | None) -> Write:
        if state is None and not self.producer:
            state = new_state(page)
        elif state is not None and self.stamp is not None and (former := number_of(self.stamp, state)):
            return Write(None, state.id_of(former), state)
        elif self.producer or state is None or state.end is not None:
            state = held(state, self.producer)
        elif state.producer and not self.is_end:
            raise TopicExistsError("it has a run: only the run's producer appends")
        before = next_generation(page, state)
        changed = self._appended(before if self.keep == before.keep else before.keeping(self.keep), page.now)
        row = (changed.last, (END if self.is_end else self.name or "") + "\n" + self.data)  # f"" takes an enum's name
        is_plain = bool(page.version) and changed.generations is state.generations
        return Write(commit(page, changed, [row], state, is_plain), changed.id_of(changed.last), changed)

    def _appended(self, state: TopicState, now: float) -> TopicState:
        number, writers, archive = state.last + 1, state.writers, state.archive
        if self.stamp is not None:
            writers = stamped(writers, self.stamp, number)
            if writers.count("=") > RECENT:
                writers, archive = "", archived(archive, writers)
        blocks = kept(state.blocks, Block(number, len(self.data.encode()), now), in_force(state.keep))
        return state.after(number, blocks, self.data if self.is_end else None, writers, archive)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Begins a run, or takes one over."""

    producer: str
    lease: float
    resume: bool
    keep: Keep = NO_KEEP

    def __call__(self, page: Page, state: TopicState | None) -> Write:
        if state is None:
            state = new_state(page)
        elif state.producer == self.producer:
            return Write(None, state.id_of(state.last), state)
        elif state.end is not None:
            raise EndedError(f"its run has ended ({state.end}); a topic has one run, for ever: begin another topic")
        elif not (self.resume and state.producer):
            remedy = "resume=True takes it over" if state.producer else "many write to it"
            raise TopicExistsError(f"it exists: {remedy}, or begin another topic")
        begun = next_generation(page, state).keeping(self.keep)
        changed = replace(begun, producer=self.producer, lease=self.lease, writers="", archive="")
        return Write(commit(page, changed, [], state), changed.id_of(changed.last), changed)


@dataclass(frozen=True, slots=True)
class Renewing:
    """Renews the lease of a run."""

    producer: str

    def __call__(self, page: Page, state: TopicState | None) -> Write:
        state = held(state, self.producer)
        renewed = next_generation(page, state)
        return Write(commit(page, renewed, [], state, renewed is state), "", renewed)


def number_of(stamp: Stamp, state: TopicState) -> int:
    """Return the number of the event that was appended with *stamp* (S3); 0 if there is none, or it is forgotten."""
    found = (state.writers + state.archive).partition(f" {stamp.writer}.{stamp.serial}=")[2]
    return int(found.partition(" ")[0] or 0)


def stamped(writers: str, stamp: Stamp, number: int) -> str:
    """Return *writers* with the event *number* as the last one of its writer."""
    others, found, own = writers.partition(f" {stamp.writer}.")
    if found:
        others += f" {own.partition(' ')[2]}"
    return f"{others or ' '}{stamp.writer}.{stamp.serial}={number} "


def archived(archive: str, writers: str) -> str:
    """Return the newest MAX_WRITERS of *archive* and *writers*."""
    kept: dict[str, str] = {}
    for word in (archive + writers).split():
        name = word.partition(".")[0]
        kept.pop(name, None)
        kept[name] = word
    return f" {' '.join([*kept.values()][-MAX_WRITERS:])} "


def held(state: TopicState | None, producer: str) -> TopicState:
    """Return *state*. Raises: EndedError: the topic has ended, or *producer* has no run there any more (S4)."""
    if state is None:
        raise EndedError("it is not there any more")
    if state.end is not None:
        raise EndedError(f"it has ended ({state.end})")
    if state.producer != producer:
        raise EndedError("another producer has taken this run over")
    return state


def commit(page: Page, state: TopicState, rows: list[Row], former: TopicState, is_plain: bool = False) -> Commit:
    """Return the change from *page*, which has the *former* state, to *state*.

    A version never comes twice, not even after the server lost some.
    """
    version = f"{state.last}.{urandom(6).hex()}"
    keep = in_force(state.keep).seconds
    archive = "" if state.archive == former.archive else state.archive or " "
    return Commit(page.version, page.server, version, state.text(), rows, state.first, keep, is_plain, archive)


def new_state(page: Page) -> TopicState:
    return TopicState(urandom(6).hex(), page.server)


def next_generation(page: Page, state: TopicState) -> TopicState:
    """Return *state* with a new generation if the server's data has another life than at the last commit (S1)."""
    if page.server == state.server:
        return state
    generations = (*state.generations, IdGeneration(urandom(3).hex(), state.last))[-MAX_GENERATIONS:]
    return replace(state, server=page.server, generations=generations)


def kept(blocks: tuple[Block, ...], event: Block, keep: Keep) -> tuple[Block, ...]:
    """Add *event*, and drop the blocks that are too many, too large, or too old. The newest block stays."""
    newest = blocks[-1] if blocks else None
    if (
        newest is not None
        and event.first - newest.first < keep.events / BLOCKS
        and newest.size + event.size <= keep.size / BLOCKS
        and event.began - newest.began < keep.seconds / BLOCKS
    ):
        blocks = (*blocks[:-1], Block(newest.first, newest.size + event.size, newest.began))
    else:
        blocks = (*blocks, event)
    size = sum(block.size for block in blocks)
    while len(blocks) > 1 and (
        event.first - blocks[0].first >= keep.events or size > keep.size or event.began - blocks[0].began > keep.seconds
    ):
        size -= blocks[0].size
        blocks = blocks[1:]
    return blocks
