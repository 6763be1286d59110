"""A number, and the operations that wait for it, compiled or with a hook in Python."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.operations import Watermark, WatermarkWait
from aiopurgatory.testing import ManualClock, check_invariants


@pytest.fixture
def end() -> Watermark:
    return Watermark()


# the number


def test_value_goes_up_and_down() -> None:
    watermark = Watermark(5)
    for value in (7, -3, 0, 10**30):
        watermark.value = value
        assert watermark.value == value
    watermark.value -= 1
    assert repr(watermark) == f"<Watermark {10**30 - 1}>"
    assert Watermark().value == 0


@pytest.mark.parametrize("value", [1.0, "7", None, True])
def test_value_that_is_no_int_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="value must be an int, got"):
        Watermark(value)
    watermark = Watermark(5)
    with pytest.raises(TypeError, match="value must be an int, got"):
        watermark.value = value
    assert watermark.value == 5


# the wait


async def test_wait_completes_when_checked_at_its_target(purgatory: Purgatory, end: Watermark) -> None:
    op = purgatory.watch(WatermarkWait(end, 2, timeout=30.0), ["log"])
    end.value = 1
    assert purgatory.check_and_complete("log") == 0
    end.value = 3
    assert not op.done()  # setting it completes nothing
    assert purgatory.check_and_complete("log") == 1
    end.value = 0
    assert (await op, op.result(), op.outcome) == (3, 3, Outcome.COMPLETED)
    assert (op.watermark, op.target, op.timeout) == (end, 2, 30.0)


async def test_wait_reached_already_does_not_park(clock: ManualClock, end: Watermark) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        waiting = purgatory.watch(WatermarkWait(end, 1, timeout=None), ["log"])
        assert await purgatory.watch(WatermarkWait(end, 0, timeout=30.0), ["log"]) == 0
        with pytest.raises(PurgatoryFullError):
            purgatory.watch(WatermarkWait(end, 1, timeout=30.0), ["log"])
        waiting.cancel()


async def test_wait_under_many_keys_leaves_them_all(purgatory: Purgatory, end: Watermark) -> None:
    op = purgatory.watch(WatermarkWait(end, 1, timeout=None), ["a", "b", "c"])
    assert (op.keys, purgatory.watched) == (("a", "b", "c"), 3)
    end.value = 1
    assert purgatory.check_and_complete("b") == 1
    assert (op.keys, purgatory.watched) == ((), 0)


async def test_wait_at_deadline_raises_timeout_error(purgatory: Purgatory, clock: ManualClock, end: Watermark) -> None:
    end.value = 4
    task = asyncio.ensure_future(purgatory.watch(WatermarkWait(end, 5, timeout=1.0), ["log"]))
    await clock.advance(0.999)
    assert not task.done()
    await clock.advance(0.001)
    with pytest.raises(TimeoutError, match=r"the watermark was 4 after 1\.0 s, not yet 5"):
        await task
    assert purgatory.statistics().expired == 1


async def test_wait_reached_with_the_deadline_completes(
    purgatory: Purgatory, clock: ManualClock, end: Watermark
) -> None:
    op = purgatory.watch(WatermarkWait(end, 5, timeout=1.0), ["log"])
    end.value = 5  # and no key is checked
    await clock.advance(1.0)
    assert (op.outcome, op.result()) == (Outcome.COMPLETED, 5)


@pytest.mark.parametrize("timeout", [0, -0.001, float("-inf")])
async def test_wait_without_time_expires_on_a_later_turn(
    purgatory: Purgatory, clock: ManualClock, end: Watermark, timeout: float
) -> None:
    op = purgatory.watch(WatermarkWait(end, 5, timeout=timeout), ["log"])
    assert (op.done(), purgatory.num_delayed) == (False, 1)
    await clock.advance(0.001)
    with pytest.raises(TimeoutError, match=r"the watermark was 0 after 0\.0 s, not yet 5"):
        await op
    end.value = 5
    assert await purgatory.watch(WatermarkWait(end, 5, timeout=timeout), ["log"]) == 5


async def test_wait_cancelled_leaves_nothing(purgatory: Purgatory, end: Watermark) -> None:
    async def wait() -> int:
        return await purgatory.watch(WatermarkWait(end, 5, timeout=30.0), ["log"])

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    check_invariants(purgatory)
    assert purgatory.watched == 0
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_wait_purgatory_closed_fails(purgatory: Purgatory, end: Watermark) -> None:
    op = purgatory.watch(WatermarkWait(end, 5, timeout=30.0), ["log"])
    purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await op


async def test_wait_is_a_future(purgatory: Purgatory, clock: ManualClock, end: Watermark) -> None:
    ops = [purgatory.watch(WatermarkWait(end, target, timeout=30.0), ["log"]) for target in (1, 2, 3)]
    end.value = 2
    purgatory.check_and_complete("log")
    done, pending = await asyncio.wait(ops, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
    assert (done, pending) == (set(ops[:2]), {ops[2]})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ops[2], 0.001)
    assert ops[2].cancelled()
    assert await asyncio.gather(*ops[:2]) == [2, 2]


async def test_wait_can_be_rescheduled(purgatory: Purgatory, clock: ManualClock, end: Watermark) -> None:
    op = purgatory.watch(WatermarkWait(end, 5, timeout=1.0), ["log"])
    await clock.advance(0.5)
    assert purgatory.reschedule(op, 1.0)
    await clock.advance(0.999)
    assert not op.done()
    await clock.advance(0.001)
    assert op.expired
    op.exception()


async def test_wait_never_watched_says_so(end: Watermark) -> None:
    with pytest.raises(RuntimeError, match="was never watched"):
        await WatermarkWait(end, 5, timeout=1.0)


async def test_wait_expired_leaves_no_cycle(purgatory: Purgatory, clock: ManualClock, end: Watermark) -> None:
    async def wait() -> None:
        op = purgatory.watch(WatermarkWait(end, 5, timeout=0), ["log"])
        await clock.advance(0.001)
        with pytest.raises(TimeoutError):
            await op
        del op

    await wait()
    gc.collect()
    gc.disable()
    try:
        await wait()
        assert [each for each in gc.get_objects() if isinstance(each, WatermarkWait)] == []
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((7, 1, 1.0), TypeError, "watermark must be a Watermark, got 7"),
        ((Watermark(), 1.0, 1.0), TypeError, r"target must be an int, got 1\.0"),
        ((Watermark(), True, 1.0), TypeError, "target must be an int, got True"),
        ((Watermark(), 1, float("nan")), ValueError, "timeout must be a number of seconds or None, got nan"),
        ((Watermark(), 1, "1"), TypeError, "timeout must be a number of seconds or None, got '1'"),
    ],
)
def test_wait_with_bad_argument_is_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        WatermarkWait(*arguments)


# built upon


class Reading(WatermarkWait):
    """A user's own hook beside the compiled ones: at the deadline, the value that there is."""

    __slots__ = ("calls",)

    def __init__(self, watermark: Watermark, target: int, timeout: float | None) -> None:
        super().__init__(watermark, target, timeout)
        self.calls: list[str] = []

    def on_expiration(self) -> None:
        self.calls.append("on_expiration")

    def on_complete(self) -> int:
        self.calls.append("on_complete")
        return 10 * super().on_complete()


async def test_subclass_may_answer_at_the_deadline(purgatory: Purgatory, clock: ManualClock, end: Watermark) -> None:
    end.value = 3
    late, early = (purgatory.watch(Reading(end, target, 1.0), ["log"]) for target in (5, 3))
    assert (early.result(), early.calls) == (30, ["on_complete"])
    await clock.advance(1.0)
    assert (late.outcome, await late, late.calls) == (Outcome.EXPIRED, 30, ["on_complete", "on_expiration"])


async def test_subclass_may_add_a_condition(purgatory: Purgatory, end: Watermark) -> None:
    class Gated(WatermarkWait):
        is_open = False

        def try_complete(self) -> bool:
            return self.is_open and super().try_complete()

    op = purgatory.watch(Gated(end, 1, timeout=None), ["log"])
    end.value = 1
    assert purgatory.check_and_complete("log") == 0
    Gated.is_open = True
    assert purgatory.check_and_complete("log") == 1
    assert await op == 1
