"""Heartbeats: a beat moves a deadline; a missed one is told once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.operations import Heartbeats
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import LeadershipError


@pytest.fixture
def missed() -> list[str]:
    return []


@pytest.fixture
def sessions(purgatory: Purgatory, missed: list[str]) -> Heartbeats[str]:
    return Heartbeats(purgatory, "billing", timeout=3.0, on_missed=missed.append)


async def test_missed_beat_is_told_once(sessions: Heartbeats[str], missed: list[str], clock: ManualClock) -> None:
    sessions.beat("ann")
    await clock.advance(2.999)
    assert (missed, "ann" in sessions) == ([], True)
    await clock.advance(0.001)
    assert (missed, len(sessions)) == (["ann"], 0)
    await clock.advance(60.0)
    assert missed == ["ann"]
    assert sessions.purgatory.watched_entries == 0


async def test_beats_keep_one_operation_alive(
    sessions: Heartbeats[str], missed: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.beat("ann")
    monkeypatch.setattr(Purgatory, "watch", None)  # no new one per beat
    for _ in range(100):
        await clock.advance(2.9)
        sessions.beat("ann")
        check_invariants(sessions.purgatory)
    assert (missed, sessions.purgatory.num_delayed) == ([], 1)
    assert sessions.purgatory.statistics().completed == 0
    await clock.advance(3.001)
    assert missed == ["ann"]


async def test_stop_ends_a_session_silently(sessions: Heartbeats[str], missed: list[str], clock: ManualClock) -> None:
    sessions.beat("ann")
    assert sessions.stop("ann")
    assert not sessions.stop("ann")
    assert (len(sessions), sessions.purgatory.num_delayed) == (0, 0)
    await clock.advance(10.0)
    assert missed == []


async def test_beat_from_on_missed_begins_anew(purgatory: Purgatory, clock: ManualClock) -> None:
    missed: list[str] = []

    def on_missed(member: str) -> None:
        missed.append(member)
        forgiving.beat(member)

    forgiving = Heartbeats(purgatory, "billing", timeout=3.0, on_missed=on_missed)
    forgiving.beat("ann")
    await clock.advance(9.0)
    assert (missed, len(forgiving), purgatory.num_delayed) == (["ann"] * 3, 1, 1)


ENDS: dict[str, Callable[[Purgatory], object]] = {
    "cancel_for_key": lambda purgatory: purgatory.cancel_for_key(("billing", "ann")),
    "fail_for_key": lambda purgatory: purgatory.fail_for_key(("billing", "ann"), LeadershipError()),
    "close": Purgatory.close,
}


@pytest.mark.parametrize("name", ENDS)
async def test_session_that_the_purgatory_ends_is_forgotten(
    sessions: Heartbeats[str], missed: list[str], clock: ManualClock, name: str
) -> None:
    """And its exception, with the frames that it keeps."""
    sessions.beat("ann")
    (op,) = sessions.purgatory.waiting(("billing", "ann"))
    ENDS[name](sessions.purgatory)
    assert (op.cancelled(), "ann" in sessions, len(sessions)) == (name == "cancel_for_key", False, 0)
    error = (lambda: None) if op.cancelled() else weakref.ref(op.exception())
    del op
    await clock.advance(10.0)  # the failure is looked at once more, to be reported if nothing retrieved it
    gc.collect()
    assert (error(), missed) == (None, [])
    with pytest.raises(PurgatoryClosedError) if name == "close" else nullcontext():
        sessions.beat("ann")
    assert len(sessions) == (name != "close")


async def test_excused_member_is_not_missed(purgatory: Purgatory, clock: ManualClock) -> None:
    missed: list[str] = []
    excused = {"ann"}
    sessions = Heartbeats(
        purgatory, "billing", timeout=3.0, on_missed=missed.append, excused=lambda member: member in excused
    )
    sessions.beat("ann")
    await clock.advance(100.0)  # put off each 3 s, lastly at 99 s
    excused.clear()
    await clock.advance(1.999)
    assert missed == []
    await clock.advance(0.001)
    assert missed == ["ann"]


async def test_excused_is_called_at_the_deadline_alone(purgatory: Purgatory, clock: ManualClock) -> None:
    called: list[str] = []
    sessions = Heartbeats(purgatory, "billing", timeout=3.0, on_missed=called.append, excused=called.append)  # type: ignore[arg-type]
    sessions.beat("ann")
    purgatory.check_and_complete(("billing", "ann"))
    await clock.advance(2.999)
    assert called == []
    await clock.advance(0.001)
    assert called == ["ann", "ann"]


@pytest.mark.parametrize("function", ["on_missed", "excused"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_function_that_fails_is_reported_and_ends_the_session(
    purgatory: Purgatory, clock: ManualClock, function: str, is_async: bool, reported: list[dict[str, Any]]
) -> None:
    """A coroutine would never be awaited, and would always count as true."""

    def broken(member: str) -> object:
        if is_async:
            return asyncio.sleep(0)
        raise TimeoutError(f"{function} of {member}")

    functions: Any = {"on_missed": print} | {function: broken}
    sessions = Heartbeats[str](purgatory, "billing", timeout=3.0, **functions)
    for member in ("ann", "bob"):
        sessions.beat(member)
    await clock.advance(3.0)
    said = f"{function} must be a plain function, not async def" if is_async else f"{function} of {{}}"
    assert len(reported) == 2
    for report, member in zip(reported, ("ann", "bob"), strict=True):
        assert said.format(member) in str(report["exception"])
    assert (len(sessions), purgatory.num_delayed) == (0, 0)
    sessions.beat("ann")
    assert len(sessions) == 1


# in the middle of something


async def test_member_has_a_timeout_of_its_own(purgatory: Purgatory, clock: ManualClock) -> None:
    missed: list[str] = []
    sessions = Heartbeats[str](purgatory, "group", timeout=10.0, on_missed=missed.append)
    sessions.beat("ann")
    sessions.beat("bob", timeout=3.0)
    await clock.advance(2.0)
    sessions.beat("bob")  # keeps it
    await clock.advance(2.0)
    assert missed == []
    await clock.advance(2.0)
    assert missed == ["bob"]
    sessions.beat("ann", timeout=1.0)
    await clock.advance(2.0)
    assert missed == ["bob", "ann"]
    for bad in (-1, "1", float("nan")):
        with pytest.raises((TypeError, ValueError), match="timeout"):
            sessions.beat("ann", timeout=bad)  # type: ignore[arg-type]
