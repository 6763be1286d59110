"""The timers that ours is compared with are correct: random steps against a sorted list, and how late each is."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from peers.timers import DESIGNS, Heap, TimerDesign
from peers.timers_hashed import TICK
from peers.timers_linux import LinuxWheel

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SECOND = 1_000 * TICK
HOUR = 3_600 * SECOND
#: In ticks, where some design begins a new round or level.
EDGES = (1, 20, 63, 64, 400, 504, 512, 4_032, 8_000, 32_256, 160_000, 258_048, 3_200_000)


@dataclass(frozen=True)
class Allowed:
    """The freedom of one design: when a deadline added at a time expires, and how late that is at most."""

    due: Callable[[int, int], int]
    late_by: Callable[[int], int]  # by timeout
    farthest: int = 30 * HOUR  # the longest timeout of the tests


def round_up(time: int) -> int:
    return -(-time // TICK) * TICK


def log_uniform(rng: random.Random, least: int, most: int) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def linux_due(deadline: int, added: int) -> int:
    tick = max(deadline, added) // TICK
    width = 1
    while tick - added // TICK >= 63 * width:
        width *= 8
    return (tick // width + 1) * width * TICK


ALLOWED = {
    "heap": Allowed(max, lambda timeout: 0),
    "hashed": Allowed(
        lambda deadline, added: max(round_up(deadline), round_up(added + 1)),
        lambda timeout: TICK - 1 if timeout > 0 else TICK,
        farthest=3 * SECOND,  # it walks every tick
    ),
    "linux": Allowed(linux_due, lambda timeout: max(TICK, (timeout + TICK) * 8 // 63)),
    "ours": Allowed(
        lambda deadline, added: round_up(deadline) if deadline > added else added,
        lambda timeout: TICK - 1 if timeout > 0 else 0,
    ),
}
assert ALLOWED.keys() == DESIGNS.keys()


@dataclass
class Pair:
    """A design and the oracle: a list of pending timers, sorted by deadline."""

    name: str
    rng: random.Random
    now: int
    design: TimerDesign = field(init=False)
    pending: list[tuple[int, int, Any]] = field(default_factory=list)  # due, number, item
    gone: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allowed = ALLOWED[self.name]
        self.design = DESIGNS[self.name]()
        self.design.advance(self.now, print)

    def timeout(self) -> int:
        """Due already, about where something begins anew, or anything from 1 us on."""
        kind = self.rng.random()
        if kind < 0.1:
            return self.rng.choice([-HOUR, -TICK, -1, 0, 1])
        if kind < 0.4:
            edge = self.rng.choice(EDGES) * self.rng.randint(1, 3) * TICK
            return min(edge + self.rng.choice([-TICK, -1, 0, 1, TICK, self.rng.randrange(TICK)]), self.allowed.farthest)
        return log_uniform(self.rng, 1_000, self.allowed.farthest)

    def add(self) -> None:
        """A new item, or one that was in before."""
        timeout = self.timeout()
        item = self.design.make(self.now + timeout)
        if self.gone and self.rng.random() < 0.3:
            item = self.gone.pop(self.rng.randrange(len(self.gone)))
            item.deadline = self.now + timeout
        due = self.allowed.due(item.deadline, self.now)
        assert 0 <= due - max(item.deadline, self.now) <= self.allowed.late_by(timeout)
        self.design.add(item)
        self.pending.append((due, id(item), item))
        self.pending.sort()

    def cancel(self) -> None:
        """Any pending timer, or one that is pending no longer."""
        if self.pending and self.rng.random() < 0.8:
            self.gone.append(self.pending.pop(self.rng.randrange(len(self.pending)))[2])
            self.design.cancel(self.gone[-1])
        elif self.gone:
            self.design.cancel(self.rng.choice(self.gone))

    def advance(self, now: int) -> None:
        self.now = max(self.now, now)
        expired: list[Any] = []
        assert self.design.advance(self.now, expired.append) == len(expired)
        due = [(due, number) for due, number, _ in self.pending if due <= self.now]
        places = {number: place for place, number in due}
        assert sorted(places) == sorted(map(id, expired))  # exactly those, each once
        order = [places[id(item)] for item in expired]
        assert order == sorted(order)
        del self.pending[: len(due)]
        self.gone += expired

    def somewhen(self) -> int:
        """The next expiration or a moment before it, or any time at all."""
        following = self.design.next_expiration()
        if following is not None and self.rng.random() < 0.7:
            return following - self.rng.choice([0, 0, 0, 1])
        return self.now + log_uniform(self.rng, 1, self.allowed.farthest // 2) - 1

    def check(self) -> None:
        assert len(self.design) == len(self.pending)
        following = self.design.next_expiration()
        if self.pending:
            assert following is not None
            assert following <= self.pending[0][0]
        else:
            assert following is None


def steps(pair: Pair) -> Iterator[Callable[[], None]]:
    for _ in range(400):
        yield pair.rng.choices([pair.add, pair.cancel, lambda: pair.advance(pair.somewhen())], [5, 2, 4])[0]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("name", DESIGNS)
def test_design_random_steps_as_the_sorted_list(name: str, seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(name, rng, now=rng.choice([0, 1, TICK, 64 * TICK, 10**15 + 123, rng.randrange(10**17)]))
    for step in steps(pair):
        step()
        pair.check()
    pair.advance(pair.now + 2 * pair.allowed.farthest)
    pair.check()
    assert not pair.pending


@pytest.mark.parametrize("name", DESIGNS)
def test_next_expiration_slept_until_in_time(name: str) -> None:
    """Advanced whenever it asks to be, and never else: everything expires when it is due, to the nanosecond."""
    pair = Pair(name, random.Random(1), now=12_345)
    for _ in range(200):
        pair.add()
    while (following := pair.design.next_expiration()) is not None:
        pair.advance(following)
        assert not pair.pending or pair.pending[0][0] > pair.now
    assert not pair.pending


@pytest.mark.parametrize("name", DESIGNS)
def test_advance_backwards_nothing_happens(name: str) -> None:
    pair = Pair(name, random.Random(1), now=HOUR)
    for _ in range(100):
        pair.add()
    pair.advance(HOUR + TICK)
    expired: list[Any] = []
    assert pair.design.advance(HOUR // 2, expired.append) == 0
    pair.check()


def test_linux_wheel_beyond_its_range_clamped() -> None:
    design = LinuxWheel()
    design.add(design.make(48 * HOUR))
    expired: list[Any] = []
    while (following := design.next_expiration()) is not None:
        assert 36 * HOUR < following < 37 * HOUR
        design.advance(following, expired.append)
    assert len(expired) == 1


@pytest.mark.parametrize("prune", [True, False])
def test_heap_prune_keeps_stale_entries_few(prune: bool) -> None:
    design = Heap(prune)
    items = [design.make(deadline) for deadline in range(10_000)]
    for item in items:
        design.add(item)
    for item in items[5:]:
        design.cancel(item)
    assert len(design) == 5
    assert len(design._heap) <= 1_010 if prune else len(design._heap) == 10_000
    expired: list[Any] = []
    assert design.advance(10_000, expired.append) == 5
    assert expired == items[:5]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bench_timers_small_measures_every_design(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    pytest.importorskip("pyperf")
    output = tmp_path / "timers.json"
    once = ["-p", "1", "-n", "1", "-w", "0", "-l", "1"]
    run("bench_timers.py", "--pending", "1000", *once, "-q", "-o", str(output))
    benchmarks = json.loads(output.read_text())["benchmarks"]
    measured = {(one["metadata"]["operation"], one["metadata"]["design"]) for one in benchmarks}
    cancelling = {("add + cancel", name) for name in [*DESIGNS, "asyncio", "uvloop"]}
    assert measured == cancelling | {("add + expire", name) for name in [*DESIGNS, "asyncio"]}


def test_precision_quick_only_loops_and_kafka_are_early() -> None:
    lines = [json.loads(line) for line in run("bench_precision.py", "--timers", "1000", "--quick").splitlines()]
    assert {line["part"] for line in lines} == {"virtual_time", "real_time", "wake_ups", "stalls"}
    for line in lines:
        if line.get("design") not in ("loop", "Kafka's rule"):
            assert line.get("most_early_ms", 0) == 0
