"""The rules of a log, and the effect of its writes on a topic, without I/O."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiopurgatory import GoneError
from aiopurgatory.streams import EndedError
from aiopurgatory.streams.store import Change, Commit, Page
from aiopurgatory.streams.topic_state import (
    PAUSE,
    Block,
    IdGeneration,
    Keep,
    Suspicion,
    TopicState,
    changed,
    number_in,
    place,
    state_of,
)
from aiopurgatory.streams.writes import (
    BLOCKS,
    MAX_GENERATIONS,
    MAX_WRITERS,
    RECENT,
    Appending,
    Beginning,
    Decide,
    Renewing,
    Stamp,
    kept,
)

KEEP = Keep(1_000, 1 << 20, 1e6)


class Topic:
    """A topic on a server that loses nothing by itself."""

    def __init__(self, server: str = "a") -> None:
        self.page = Page("", "", 0.0, 100.0, server, [])
        self.rows: dict[int, str] = {}

    @property
    def state(self) -> TopicState:
        state = state_of(self.page)
        assert state is not None
        return state

    def write(self, decide: Decide) -> str:
        write = decide(self.page, state_of(self.page))
        if write.commit is not None:
            self.make(write.commit)
        return write.id

    def make(self, commit: Commit) -> None:
        assert (commit.expected, commit.server) == (self.page.version, self.page.server)
        assert commit.version not in ("", self.page.version)
        assert [number for number, _ in commit.rows] == [len(self.rows) + 1 + at for at in range(len(commit.rows))]
        self.rows.update(commit.rows)
        archive = commit.archive or self.page.archive
        self.page = replace(self.page, version=commit.version, state=commit.state, archive=archive)

    def append(self, data: str = "x", producer: str = "", count: int = 0, **more: object) -> str:
        stamp = Stamp(producer, count) if count else None
        return self.write(Appending(data, None, KEEP, producer, **{"stamp": stamp} | more))  # type: ignore[arg-type]

    def live_on(self, server: str) -> None:
        self.page = replace(self.page, server=server)

    def data(self) -> list[str]:
        return [self.state.event(row).data for row in self.rows.items()]


def run(producer: str = "p", events: int = 0) -> Topic:
    topic = Topic()
    topic.write(Beginning(producer, 15.0, False))
    for count in range(1, events + 1):
        topic.append(str(count), producer, count)
    return topic


def many(events: int) -> Topic:
    topic = Topic()
    for number in range(1, events + 1):
        topic.append(str(number))
    return topic


def end(producer: str = "", count: int = 0, reason: str = "done") -> Appending:
    return Appending(reason, None, KEEP, producer, Stamp(producer, count) if count else None, is_end=True)


# S1: ids


def test_fields_of_a_newer_version_are_kept_for_it() -> None:
    topic = Topic()
    topic.append("a")
    newer = {"priority": 7, "labels": ["x", {"y": None}]}
    topic.page = replace(topic.page, state=json.dumps(json.loads(topic.page.state) | newer))
    topic.append("b")
    stored = json.loads(topic.page.state)
    assert {name: stored[name] for name in newer} == newer
    assert topic.state.last == 2


def test_generations_are_bounded_and_older_ids_are_gone() -> None:
    topic = many(1)
    first = topic.state.id_of(1)
    for server in range(MAX_GENERATIONS + 3):
        topic.live_on(f"server {server}")
        last = topic.append()
    assert len(topic.state.generations) == MAX_GENERATIONS
    assert place(topic.state, last) == topic.state.last
    with pytest.raises(GoneError) as gone:
        place(topic.state, first)
    assert place(topic.state, gone.value.after) == 0


@given(st.lists(st.sampled_from(["append", "restart"]), max_size=30))
def test_place_finds_every_id_that_was_given(steps: list[str]) -> None:
    topic, ids, lives = many(0), {}, 0
    for step in steps:
        if step == "restart":
            lives += 1
            topic.live_on(str(lives))
        else:
            made = topic.append()
            ids[made] = len(topic.rows)
    if len(ids) and len(topic.state.generations) < MAX_GENERATIONS:
        assert {each: place(topic.state, each) for each in ids} == ids
        assert {each: number_in(each) for each in ids} == ids
        assert list(ids) == [topic.state.id_of(number) for number in ids.values()]


# S2, S8: where to go on


def state(**fields: object) -> TopicState:
    return replace(TopicState("epoch123", "a", producer="p", lease=15.0), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "number"),
    [
        ("epoch123-4", 4),
        ("epoch123-7", 7),
        ("epoch123.g2-8", 8),
        ("epoch123.g2-9", 9),
        ("epoch123-3", None),  # dropped
        (None, None),  # the beginning of the run was dropped
        ("epoch123-8", None),  # lost with the first life of the server
        ("epoch123.g2-10", None),  # not there yet, or lost
        ("epoch123.g3-8", None),
        ("epoch124-4", None),
        ("", None),
        ("4", None),
        ("epoch123-", None),
        ("epoch123-x", None),
        ("epoch123-٤", None),
        ("epoch123-4 ", None),
        ("epoch123-4\n", None),
        ("epoch123-9999999999999999", None),
        ("epoch123.-8", None),
        ("EPOCH123-4", None),
    ],
)
def test_place_finds_an_id_or_says_it_is_gone(after: str | None, number: int | None) -> None:
    generations = (IdGeneration("", 0), IdGeneration("g2", 7))
    kept_from_5 = state(last=9, blocks=(Block(5, 10, 0.0),), generations=generations)
    if number is not None:
        assert place(kept_from_5, after) == number
    else:
        with pytest.raises(GoneError, match="are gone; the oldest kept is next") as gone:
            place(kept_from_5, after)
        assert gone.value.after == "epoch123-4"
        assert place(kept_from_5, gone.value.after) == 4


# S3: idempotence


def test_append_repeated_after_another_end_has_its_own_id() -> None:
    topic = run(events=1)
    made = topic.append("x", "p", 2)
    ended = topic.write(end())
    assert topic.append("x", "p", 2) == made != ended


def test_stamps_are_forgotten_after_64_other_writers() -> None:
    topic = Topic()
    last = MAX_WRITERS + RECENT + 1
    for writer in range(last + 1):
        for count in range(2):
            topic.append(stamp=Stamp(str(writer), count))
        ids = [topic.state.id_of(2 * each + 2) for each in range(writer + 1)][-MAX_WRITERS:]
        others = range(max(0, writer - MAX_WRITERS + 1), writer + 1)
        assert [topic.append(stamp=Stamp(str(other), 1)) for other in others] == ids
    topic.append(stamp=Stamp("0", 1))
    assert topic.state.last == 2 * last + 3


def test_stamps_of_a_writer_take_one_place() -> None:
    topic = Topic()
    topic.append(stamp=Stamp("other", 1))
    for count in range(3 * MAX_WRITERS):
        topic.append(stamp=Stamp(f"often-{count % 2}", count))
    assert topic.append(stamp=Stamp("other", 1)) == topic.state.id_of(1)


# S4, S5: one run, one end


def test_end_of_an_unknown_topic_keeps_a_run_from_beginning() -> None:
    topic = Topic()
    topic.write(end(reason="cancelled"))
    with pytest.raises(EndedError, match=r"its run has ended \(cancelled\)"):
        topic.write(Beginning("p", 15.0, False))


def test_producer_of_a_lost_topic_is_told() -> None:
    for decide in (Appending("x", None, KEEP, "p", Stamp("p", 1)), end("p", 1), Renewing("p")):
        with pytest.raises(EndedError, match="it is not there any more"):
            Topic().write(decide)


# S6: leases


def test_suspicion_counts_by_its_own_clock_if_that_of_the_server_stepped_back() -> None:
    topic, suspicion = run(), Suspicion()
    stepped_back = replace(topic.page, idle=0.0)  # and the producer is dead: no other version comes
    assert suspicion.look(stepped_back, topic.state, 0.0) == 15.0
    assert suspicion.look(stepped_back, topic.state, 14.0) == pytest.approx(1.0)
    assert suspicion.look(stepped_back, topic.state, 15.0) > 0
    assert suspicion.look(stepped_back, topic.state, 15.0 + 15.0 * PAUSE) == 0.0


@pytest.mark.parametrize("change", ["version", "server", "outage"])
def test_suspicion_begins_anew_after_an_outage(change: str) -> None:
    topic, suspicion = run(), Suspicion()
    expired = replace(topic.page, idle=15.0)
    suspicion.look(expired, topic.state, 0.0)
    if change == "outage":
        suspicion.forget()
    else:
        expired = replace(expired, **{change: "another"})  # type: ignore[arg-type]
    assert suspicion.look(expired, topic.state, 100.0) > 0
    assert suspicion.look(expired, topic.state, 104.9) > 0
    assert suspicion.look(expired, topic.state, 105.1) == 0


def test_suspicion_has_nothing_to_look_at_without_a_living_run() -> None:
    ended = run()
    ended.write(end())
    for topic in (ended, many(1)):
        assert Suspicion().look(replace(topic.page, idle=1e9), topic.state, 0.0) == inf


# retention


def appended(keep: Keep, made: list[tuple[int, float]]) -> list[tuple[tuple[Block, ...], list[tuple[int, float]]]]:
    """Return the blocks after each event, and the sizes and times of all events. Args: made: their sizes and gaps."""
    blocks: tuple[Block, ...] = ()
    events, now, found = [], 0.0, []
    for number, (size, gap) in enumerate(made, 1):
        now += gap
        blocks = kept(blocks, Block(number, size, now), keep)
        events.append((size, now))
        found.append((blocks, events[:]))
    return found


keeps = st.builds(Keep, st.integers(1, 60), st.integers(1, 4_000), st.floats(1.0, 100.0))
sizes_and_gaps = st.lists(st.tuples(st.integers(0, 500), st.sampled_from([0.0, 0.1, 1.0, 7.0, 200.0])), max_size=150)


@settings(max_examples=600)
@given(keeps, sizes_and_gaps)
def test_kept_is_within_the_bounds_and_a_sixteenth_below(keep: Keep, made: list[tuple[int, float]]) -> None:
    before = 1
    for blocks, events in appended(keep, made):
        first, now = blocks[0].first, events[-1][1]
        assert 1 <= first <= len(events)
        held = events[first - 1 :]
        size = sum(size for size, _ in held)
        assert len(held) <= keep.events
        assert size <= keep.size or len(held) == 1
        assert now - held[0][1] <= keep.seconds
        assert sum(block.size for block in blocks) == size
        assert [block.first for block in blocks] == sorted({block.first for block in blocks})
        if first > before:  # each dropped event had to go, or shares a block with one that had to
            newest_dropped = events[first - 2]
            assert (
                len(held) >= keep.events * (1 - 1 / BLOCKS)
                or size + newest_dropped[0] > keep.size * (1 - 1 / BLOCKS)
                or now - newest_dropped[1] >= keep.seconds * (1 - 1 / BLOCKS)
            )
        before = first


@given(keeps, st.integers(1, 300))
def test_kept_has_few_blocks(keep: Keep, count: int) -> None:
    found = appended(keep, [(1, 0.01)] * count)
    assert all(len(blocks) <= 4 * BLOCKS + 3 for blocks, _ in found)


def test_kept_clock_that_goes_back_drops_nothing() -> None:
    keep = Keep(100, 1 << 20, 10.0)
    blocks = kept(kept((), Block(1, 1, 1_000.0), keep), Block(2, 1, 5.0), keep)
    assert blocks[0].first == 1


def test_a_block_is_a_sixteenth_rounded_up() -> None:
    for events in (1, 15, 16, 17, 33, 160):
        blocks: tuple[Block, ...] = ()
        for number in range(1, events + 1):
            blocks = kept(blocks, Block(number, 0, 0.0), Keep(events, 1 << 20, 1e6))
        assert len(blocks) == ceil(events / ceil(events / BLOCKS))


# changes, states as text

words = st.text("abcdefghijklmnop", min_size=1, max_size=8)
numbers = st.integers(0, 10**15 - 1)
states = st.builds(
    TopicState,
    words,
    st.text(max_size=10),
    numbers,
    st.lists(st.builds(IdGeneration, words, numbers), min_size=1, max_size=4).map(tuple),
    st.lists(st.builds(Block, numbers, numbers, st.floats(0, 1e9)), max_size=4).map(tuple),
    words,
    st.floats(0.1, 1e6),
    st.none() | st.text(),
    words,
    rest=st.just(""),
    archive=words,
)


@given(states)
def test_state_survives_as_text(state: TopicState) -> None:
    assert state_of(Page("1", state.text(), 0.0, 0.0, "", [], state.archive)) == state


@given(st.lists(st.sampled_from(["append", "renew", "end"]), max_size=20))
def test_changed_is_what_a_read_would_find(steps: list[str]) -> None:
    topic, count = run(), 0
    known = topic.state
    for step in steps:
        if known.end is not None:
            break
        decides: dict[str, Decide] = {"renew": Renewing("p"), "end": end("p", count + 1)}
        decide = decides.get(step, Appending("x", None, KEEP, "p", Stamp("p", count + 1)))
        commit = decide(topic.page, topic.state).commit
        assert commit is not None
        assert commit.is_plain
        topic.make(commit)
        count += step == "append"
        known = changed(known, Change(commit.expected, commit.version, commit.rows))
        assert (known.last, known.end, known.first) == (topic.state.last, topic.state.end, topic.state.first)
        assert place(known, None) == 0


def test_commits_that_change_more_are_not_plain() -> None:
    topic = Topic()
    assert not _commit(topic, Appending("x", None, KEEP)).is_plain
    assert not _commit(topic, Beginning("p", 15.0, False)).is_plain
    topic = run()
    assert not _commit(topic, Beginning("q", 15.0, True)).is_plain
    topic.live_on("b")
    assert not _commit(topic, Renewing("p")).is_plain
    assert not _commit(topic, Appending("x", None, KEEP, "p", Stamp("p", 1))).is_plain


def _commit(topic: Topic, decide: Decide) -> Commit:
    commit = decide(topic.page, state_of(topic.page)).commit
    assert commit is not None
    return commit


def test_versions_never_come_twice() -> None:
    topic = run()
    versions = {_commit(topic, Renewing("p")).version for _ in range(100)}
    assert len(versions) == 100
