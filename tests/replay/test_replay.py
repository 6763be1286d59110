"""A replay of a trace equals a live run, operation by operation."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from workload.traces import NO_TIMEOUT_US, SCHEMA, trace_of

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.core.entry_points import core_of
from aiopurgatory.core.observer import Observer
from aiopurgatory.core.outcome import Outcome
from aiopurgatory.pipeline.model import FEW, MANY, Workload
from aiopurgatory.replay.replay import Replay, replay
from aiopurgatory.replay.target import Setting
from aiopurgatory.testing import ManualClock, check_invariants

#: From here on, the sums of advance() put no float of seconds off its microsecond.
BEGIN_US = 1_000_000_000


class Live(DelayedOperation[None]):
    __slots__ = ("clock", "completes_at", "number")
    clock: ManualClock
    completes_at: float
    number: int

    def try_complete(self) -> bool:
        return self.clock.time() >= self.completes_at and self.force_complete()


class Ends(Observer):
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.found: dict[int, tuple[int, bool]] = {}

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        if outcome is not Outcome.FAILED:
            self.found[op.number] = round(self.clock.time() * 1e6), outcome is Outcome.EXPIRED


async def play_live(trace: pa.Table, setting: Setting) -> tuple[dict[int, tuple[int, bool]], dict[str, int], int]:
    """Return the ends by number, the counts, and the most pending."""
    rows = trace.to_pylist()
    events = [(row["arrival_us"], 0, number) for number, row in enumerate(rows)]
    events += [
        (row["arrival_us"] + row["completion_us"], 1, number)
        for number, row in enumerate(rows)
        if row["completion_us"] is not None
    ]
    clock, ops, most = ManualClock(), {}, 0
    ends = Ends(clock)
    tick, wheel_size = setting.tick, setting.wheel_size
    purgatory = Purgatory(
        tick=tick, wheel_size=wheel_size, purge_interval=setting.purge_interval, clock=clock, observers=[ends]
    )
    async with purgatory:
        for moment_us, kind, number in sorted(events):
            await clock.advance(moment_us / 1e6 - clock.time())
            assert clock.time() == moment_us / 1e6
            row = rows[number]
            if kind == 0:
                timeout = row["timeout_us"] / 1e6
                op = ops[number] = Live(timeout)
                done = row["completion_us"]
                op.clock, op.number = clock, number
                op.completes_at = float("inf") if done is None else (row["arrival_us"] + done) / 1e6
                purgatory.watch(op, tuple(row["keys"]))
            else:
                ops[number].force_complete()
            await clock.advance(0)
            most = max(most, purgatory.num_delayed)
        await clock.advance(1e5)
        known = purgatory.statistics()
        counts = {
            "cascades": known.cascaded,
            "wakeups": known.wakeups,
            "heap_operations": core_of(purgatory).deadlines.timer.queue.operations,
            "purges": known.purges,
        }
        check_invariants(purgatory)  # not before: it drops emptied buckets from the delay queue, which is counted
    return ends.found, counts, most


def ends_of(found: Replay) -> dict[int, tuple[int, bool]]:
    pairs = zip(found.ended_us.tolist(), found.expired.tolist(), strict=True)
    return {number: (ended, expired) for number, (ended, expired) in enumerate(pairs) if ended >= 0}


def table_of(rows: list[tuple[int, list[int], int | None, int]]) -> pa.Table:
    ordered = sorted(rows, key=lambda row: row[0])
    columns: list[list[Any]] = [list(column) for column in zip(*ordered, strict=True)] or [[], [], [], []]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


durations = st.one_of(st.integers(0, 50_000), st.sampled_from([0, 1_000, 10_000, 20_000, 400_000]))
rows = st.tuples(
    st.one_of(st.integers(0, 100_000), st.integers(0, 100).map(lambda ms: ms * 1000)).map(lambda us: us + BEGIN_US),
    st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
    st.none() | durations,
    durations | st.just(NO_TIMEOUT_US),
)
traces = st.lists(rows, max_size=25).map(table_of)
setups = st.builds(
    Setting,
    tick_ms=st.sampled_from([0.25, 1.0, 3.0, 10.0]),
    wheel_size=st.sampled_from([2, 3, 20]),
    purge_interval=st.sampled_from([0, 1, 5]),
)


@settings(max_examples=50, deadline=None)
@given(traces, setups)
@example(table_of([(BEGIN_US, [0], None, NO_TIMEOUT_US), (BEGIN_US + 98_000, [0], None, 0)]), Setting())
def test_replay_equals_the_live_run(trace: pa.Table, setting: Setting) -> None:
    found = replay(trace, setting)
    ends, counts, _ = asyncio.run(play_live(trace, setting))
    assert ends_of(found) == ends
    assert {name: found.counts[name] for name in counts} == counts


@pytest.mark.parametrize("workload", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("purge_interval", [0, 50])
def test_replay_of_the_seeds_equals_the_live_run(workload: Workload, purge_interval: int) -> None:
    table = trace_of(workload, 600, rate=2_000)
    table = table.set_column(0, SCHEMA.field(0), pa.array(table["arrival_us"].to_numpy() + BEGIN_US))
    setting = Setting(purge_interval=purge_interval)
    found = replay(table, setting)
    ends, counts, most = asyncio.run(play_live(table, setting))
    assert ends_of(found) == ends
    assert {name: found.counts[name] for name in counts} == counts
    assert found.peak_pending == most
    assert len(ends) == 600
    assert (counts["purges"] > 3) == (purge_interval > 0)


def test_replay_of_nothing_is_nothing() -> None:
    found = replay(SCHEMA.empty_table(), Setting())
    assert (found.peak_pending, len(found.ended_us), set(found.counts.values())) == (0, 0, {0})


def test_replay_of_a_chunked_and_sliced_table() -> None:
    table = trace_of(MANY, 2_000, rate=20_000)
    chunked = pa.concat_tables([table.slice(0, 700), table.slice(700)])
    assert (replay(chunked, Setting()).ended_us == replay(table, Setting()).ended_us).all()
    tail = table.slice(1_000)
    assert len(replay(tail, Setting()).ended_us) == 1_000


def test_replay_coarser_tick_wakes_less_and_is_later() -> None:
    table = trace_of(MANY, 5_000, rate=10_000)
    fine, coarse = (replay(table, Setting(tick_ms=tick_ms)) for tick_ms in (1.0, 20.0))
    assert coarse.counts["wakeups"] < fine.counts["wakeups"] / 5
    assert fine.lateness_us.min() >= 0  # never early
    assert fine.lateness_us.max() <= 1_000 < coarse.lateness_us.max() <= 20_000


def test_replay_purges_visit_what_is_listed() -> None:
    table = trace_of(MANY, 5_000, rate=10_000)
    at_once, deferred = (replay(table, Setting(purge_interval=n)) for n in (0, 100))
    assert (at_once.counts["purges"], at_once.counts["purge_visits"]) == (0, 0)
    mean = deferred.counts["purge_visits"] / deferred.counts["purges"]
    assert deferred.peak_pending / 4 < mean < deferred.peak_pending * 10  # some have several keys
    assert deferred.peak_bytes > at_once.peak_bytes > 0


def test_replay_weighs_the_waiters_of_a_shared_key() -> None:
    def peak(keys: list[list[int]]) -> int:
        return replay(table_of([(BEGIN_US, key, None, 1_000) for key in keys]), Setting()).peak_bytes

    shared, own = peak([[0]] * 1_000), peak([[n] for n in range(1_000)])
    assert shared > own  # each also has a number there


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tick_ms": 0.0}, r"tick must be from 1e-09 to 1e\+06 s, got 0\.0"),
        ({"tick_ms": None}, "tick must be a number of seconds, got None"),
        ({"wheel_size": 1}, "wheel_size must be >= 2, got 1"),
        ({"purge_interval": -1}, "purge_interval must be >= 0, got -1"),
    ],
)
def test_setting_out_of_range_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Setting(**given)


def test_replay_end_counts_after_beginning_of_same_moment() -> None:
    rows = [(BEGIN_US, [1], 5_000, 50_000), (BEGIN_US + 5_000, [1], None, 50_000)]
    assert replay(table_of(rows), Setting()).peak_pending == 2


def test_replay_counts_wakeups_until_the_last_arrival_apart() -> None:
    rows: list[tuple[int, list[int], int | None, int]] = [(ms * 1_000 + 500, [1], None, 10_000) for ms in range(100)]
    found = replay(table_of([*rows, (99_900, [1], 9_000, 10_000)]), Setting())
    assert (found.wakeups_in_trace, found.counts["wakeups"]) == (89, 100)
