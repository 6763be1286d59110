"""Common mistakes: each raises an error with the remedy, and changes nothing."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Observer, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, taken, turns

# watched keys


class Forgetful(DelayedOperation[str]):
    def __init__(self) -> None:
        self.ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()


async def test_watch_without_any_timeout_says_so(purgatory: Purgatory) -> None:
    before = purgatory.statistics()
    with pytest.raises(TypeError, match=r"timeout=\.\.\.\), or call super\(\)\.__init__\(timeout\)"):
        purgatory.watch(Forgetful(), ["key"])
    assert purgatory.statistics() == before
    check_invariants(purgatory)


async def fetch() -> str:
    return "records"


NO_OPERATIONS: dict[str, Callable[[], Any]] = {
    "a class": lambda: Op,
    "a coroutine": fetch,
    "a coroutine function": lambda: fetch,
    "an object": object,
    "None": lambda: None,
    "a future": lambda: asyncio.get_running_loop().create_future(),
}


@pytest.mark.parametrize("method", ["watch", "try_complete_else_watch", "reschedule"])
@pytest.mark.parametrize("name", NO_OPERATIONS)
async def test_no_operation_raises_type_error(purgatory: Purgatory, name: str, method: str) -> None:
    before = purgatory.statistics()
    with pytest.raises(TypeError, match=r"op must .*DelayedOperation"):
        getattr(purgatory, method)(NO_OPERATIONS[name](), 1.0 if method == "reschedule" else ["key"])
    assert purgatory.statistics() == before
    check_invariants(purgatory)
    gc.collect()  # where Python would warn of a coroutine that nobody awaits, and fail the test


UNHASHABLE: list[Any] = [[1], {1: 2}, {1}, ("orders", [1])]


@pytest.mark.parametrize("key", UNHASHABLE, ids=lambda key: type(key).__name__)
async def test_unhashable_key_names_it_and_the_remedy(purgatory: Purgatory, key: Any) -> None:
    purgatory.watch(Op(60.0), ["key"])
    before = purgatory.statistics()
    calls: list[Callable[[], object]] = [
        lambda: purgatory.check_and_complete(key),
        lambda: purgatory.notify(key),
        lambda: purgatory.notify_threadsafe(key),
        lambda: purgatory.fail_for_key(key, ValueError()),
        lambda: purgatory.cancel_for_key(key),
        lambda: purgatory.waiting(key),
        *[partial(purgatory.watch, Op(60.0), [*others, key]) for others in ([], ["a"], ["a", "b", "c"])],
    ]
    for call in calls:
        with pytest.raises(TypeError, match=f"key.* must be hashable, got {re.escape(repr(key))}; use a tuple"):
            call()
    assert purgatory.statistics() == before
    check_invariants(purgatory)


# hooks that are coroutine functions


async def hook(op: Op, *_: object) -> None:
    op.ran.append("async")


End = Callable[[Purgatory, Op, asyncio.Task[str]], object]
#: What calls each hook, and the outcome if it is an ``async def``.
ASYNC_HOOKS: dict[str, tuple[End, Outcome]] = {
    "try_complete": (lambda purgatory, op, task: None, Outcome.FAILED),
    "on_complete": (lambda purgatory, op, task: op.force_complete(), Outcome.FAILED),
    "on_cancel": (lambda purgatory, op, task: op.cancel(), Outcome.CANCELLED),
    "on_expiration": (lambda purgatory, op, task: purgatory.expire_all(), Outcome.EXPIRED),
    "on_undelivered": (lambda purgatory, op, task: (op.force_complete(), task.cancel()), Outcome.COMPLETED),
    "on_failure": (lambda purgatory, op, task: op.fail(ValueError()), Outcome.FAILED),
    "on_end": (lambda purgatory, op, task: op.force_complete(), Outcome.COMPLETED),
}


@pytest.mark.parametrize("name", ASYNC_HOOKS)
async def test_async_hook_is_refused_with_the_remedy(
    purgatory: Purgatory, reports: list[BaseException], name: str
) -> None:
    """Its TypeError reaches the awaiting task or the loop's exception handler: one of them, once."""
    end, outcome = ASYNC_HOOKS[name]
    op: Op = purgatory.watch(type("Async", (Op,), {name: hook})(60.0), ["key"])
    task = asyncio.create_task(asyncio.wait_for(op, None))
    await turns(1)
    end(purgatory, op, task)
    seen = await asyncio.gather(task, return_exceptions=True)
    await turns(5)
    (found,) = [exc for exc in [*seen, *taken(reports)] if isinstance(exc, TypeError)]
    assert str(found) == f"Async.{name} must be a plain function, not async def: hooks never wait"
    assert (op.outcome, "async" in op.ran, purgatory.num_delayed) == (outcome, False, 0)
    gc.collect()  # as above


# the settings

#: A setting, wrong values of it, and the end of the message.
SETTINGS: list[tuple[str, list[Any], str]] = [
    ("tick", [0, -0.001, nan, inf], "from 1e-09 to 1e+06 s, got {}"),
    ("wheel_size", [1, 0, -20], ">= 2, got {}"),
    ("wheel_size", [2.5], "an int, got {}"),
    ("purge_interval", [-1], ">= 0, got {}"),
    ("purge_interval", [0.5], "an int, got {}"),
    ("max_pending", [0, -1], ">= 1, got {}"),
    ("max_pending", [1.5], "an int, got {}"),
    ("turn_budget", [0, -0.005, nan], "{}"),
    ("clock", [5, ManualClock, object()], "Clock"),
    ("observers", [[Observer], [object()], [None], [print], Observer()], ""),
    ("name", ["\ud800", "a\udfff"], "text without surrogates, got {}"),
    ("name", [""], "1 to 255 bytes of UTF-8, got ''; leave it out for a default"),
    ("name", ["\u00e9" * 128], "1 to 255 bytes of UTF-8, got 256; choose a shorter one"),
    ("name", [None, 7, b"fetch"], "a str, got {}"),
]


@pytest.mark.parametrize(
    ("setting", "value", "said"), [(setting, value, said) for setting, values, said in SETTINGS for value in values]
)
def test_setting_that_is_wrong_is_named_with_the_rule(setting: str, value: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{setting} must .*{re.escape(said.format(repr(value)))}"):
        Purgatory(**{setting: value})


def test_name_of_255_bytes_is_kept() -> None:
    assert Purgatory("n" * 255).name == "n" * 255


# nobody checked


@pytest.fixture
async def debugged(clock: ManualClock) -> AsyncIterator[Purgatory]:
    """A purgatory of a loop in debug mode."""
    asyncio.get_running_loop().set_debug(True)
    async with Purgatory(clock=clock) as purgatory:
        yield purgatory


Warned = Callable[[], list[str]]


async def miss(purgatory: Purgatory, clock: ManualClock, *keys: Any) -> None:
    """The operation's condition becomes true, but no check of its *keys* comes."""
    op = purgatory.watch(Op(1.0), keys)
    op.ready = True
    await clock.advance(1.0)
    assert op.outcome is Outcome.COMPLETED


async def test_debug_missed_trigger_names_the_key_once_per_kind(
    debugged: Purgatory, clock: ManualClock, warned: Warned
) -> None:
    for _ in range(3):
        await miss(debugged, clock, "orders")
    (message,) = warned()
    assert "'orders'" in message
    assert "check_and_complete" in message
    await miss(debugged, clock, ("partition", 4))
    assert len(warned()) == 2
    assert "('partition', 4)" in warned()[1]
    assert debugged.statistics().missed_triggers == 4


async def test_missed_trigger_names_class_and_kind_of_key(
    purgatory: Purgatory, clock: ManualClock, warned: Warned
) -> None:
    for number in range(3):
        await miss(purgatory, clock, ("orders", number))
    (message,) = warned()
    assert "Op, waiting for a key of the kind ('orders', int), completed only at its deadline" in message
    assert "check_and_complete(key)" in message
    assert purgatory.statistics().missed_kinds == (("Op", "('orders', int)", 3),)


async def test_missed_trigger_of_wait_for_names_condition_and_place(
    purgatory: Purgatory, clock: ManualClock, warned: Warned
) -> None:
    ready: list[int] = []
    waiting = asyncio.create_task(purgatory.wait_for(lambda: ready, [("export", 7)], timeout=1.0))
    await clock.settle()
    ready.append(1)
    await clock.advance(1.0)
    assert await waiting == [1]
    (message,) = warned()
    assert re.search(r"wait_for\(test_missed.*<lambda>\) \(.*test_mistakes.py:[0-9]+\), waiting for", message)


@pytest.mark.parametrize("key", [("ann@example.com", 7), (f"{'x' * 40}", 7), ("user 7", 7)])
async def test_missed_trigger_text_that_is_no_name_is_not_shown(
    purgatory: Purgatory, clock: ManualClock, warned: Warned, key: tuple[str, int]
) -> None:
    await miss(purgatory, clock, key)
    assert "(str, int)" in warned()[0]
    assert key[0] not in warned()[0]


async def test_missed_trigger_of_many_kinds_counts_others_together(
    purgatory: Purgatory, clock: ManualClock, warned: Warned
) -> None:
    for number in range(30):
        await miss(purgatory, clock, (f"user-{number}", 7))
    assert len(warned()) == 20
    assert purgatory.statistics().missed_kinds[-1] == ("other", "other", 10)


async def test_missed_trigger_not_if_the_checked_read_has_failed(purgatory: Purgatory, clock: ManualClock) -> None:
    answers: list[Any] = [[], OSError(), [1]]

    async def read() -> list[int]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return list(answer)

    waiting = asyncio.create_task(purgatory.wait_for(read, ["key"], timeout=0.01, retry_on=OSError))
    await clock.settle()
    purgatory.check_and_complete("key")
    await clock.advance(0.01)
    assert await waiting == [1]
    assert purgatory.statistics().missed_triggers == 0
