"""The manual clock counts integer nanoseconds: sums of decimals are exact, and so are the deadlines on it."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .parts import Op

NS: Final = 1_000_000_000
TICK_NS: Final = 1_000_000

#: Nanoseconds: decimals of at most 9 digits, from a nanosecond to 1,000 seconds, as people write them and as they come.
spans = st.integers(1, 10**12) | st.sampled_from(
    [1, 3, 999, 10**6, 10**6 + 1, 10**8, 3 * 10**8, 10**9, 10**9 - 1, 123_456_789, 59_999_999_999, 10**12]
)
pauses = st.lists(spans, max_size=4)

exactly = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def now_ns(clock: ManualClock) -> int:
    return round(clock.time() * NS)


@pytest.mark.parametrize(
    ("step", "times", "total"), [(0.1, 3, 0.3), (0.001, 1000, 1.0), (1e-9, 100, 1e-7), (0.7, 3, 2.1)]
)
async def test_advance_in_decimals_adds_up(step: float, times: int, total: float) -> None:
    clock = ManualClock()
    for _ in range(times):
        await clock.advance(step)
    assert clock.time() == total


@pytest.mark.parametrize("start", [0.1, 0.3, 1_000_000.123456])
async def test_advance_from_a_start_adds_up(start: float) -> None:
    clock = ManualClock(start)
    assert clock.time() == start
    for _ in range(10):
        await clock.advance(0.1)
    assert clock.time() == (round(start * NS) + NS) / NS


async def expires_exactly(before: list[int], timeout: int, parts: list[int], tick: int, by_reschedule: bool) -> None:
    """An operation watched after the pauses *before* expires *timeout* later, up to the next multiple of *tick*.

    Args: parts: how the time until a nanosecond before is cut into advances. All in nanoseconds.
    """
    clock = ManualClock()
    async with Purgatory(clock=clock, tick=tick / NS) as purgatory:
        for pause in before:
            await clock.advance(pause / NS)
        began = sum(before)
        assert now_ns(clock) == began
        op = Op(None if by_reschedule else timeout / NS)
        purgatory.watch(op, ["key"])
        if by_reschedule:
            assert purgatory.reschedule(op, timeout / NS)
        due = -(-(began + timeout) // tick) * tick
        for part in parts:
            pause = min(part, due - 1 - now_ns(clock))
            await clock.advance(pause / NS)
        await clock.advance((due - 1 - now_ns(clock)) / NS)
        assert (now_ns(clock), op.outcome) == (due - 1, None)
        await clock.advance(1 / NS)
        assert (now_ns(clock), op.expired) == (due, True)


@exactly
@given(before=pauses, timeout=spans, parts=pauses, by_reschedule=st.booleans(), tick=st.sampled_from([1, TICK_NS]))
@example(before=[100_000_000], timeout=200_000_000, parts=[], by_reschedule=False, tick=1)  # 0.1 + 0.2
def test_expiry_is_at_the_first_tick_and_not_before_it(
    before: list[int], timeout: int, parts: list[int], by_reschedule: bool, tick: int
) -> None:
    asyncio.run(expires_exactly(before, timeout, parts, tick, by_reschedule))


@exactly
@given(timeouts=st.lists(spans, min_size=2, max_size=6), step=st.integers(1, 10**9))
def test_expiry_of_many_sees_its_own_nanosecond(timeouts: list[int], step: int) -> None:
    """One large advance stops at each deadline on the way, and time() there is that nanosecond."""

    async def seen() -> list[int]:
        clock = ManualClock()
        expired_at: list[int] = []

        class Looking(Op):
            def on_expiration(self) -> None:
                expired_at.append(now_ns(clock))

        async with Purgatory(clock=clock, tick=1e-9) as purgatory:
            await clock.advance(step / NS)
            for timeout in timeouts:
                purgatory.watch(Looking(timeout / NS), ["key"])
            await clock.advance(max(timeouts) / NS)
        return expired_at

    assert asyncio.run(seen()) == sorted(step + timeout for timeout in timeouts)
