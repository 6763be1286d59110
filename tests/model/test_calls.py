"""The rules of calls, C1 to C5 of core/calls.py, against random programs. With a rule removed, some end badly."""

from __future__ import annotations

import asyncio
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from aiopurgatory import COMPILED, waits
from aiopurgatory.core import awaited, calls, checks
from aiopurgatory.core.calls import Calls, Reading, ReadingOperation
from aiopurgatory.core.core import Core
from aiopurgatory.core.operation import COMPLETED, FAILED, PENDING, Operation
from aiopurgatory.core.watchers import WaitLine

from .call_programs import Program, Writer, play, shrink

#: make test-stress runs more.
PROGRAMS = int(os.environ.get("AIOPURGATORY_PROGRAMS", "300"))
#: Programs in which a removed rule is found.
ENOUGH = 1500


@pytest.mark.timeout(900)
async def test_calls_random_programs_come_to_rest() -> None:
    looks = puts = 0
    for seed in range(PROGRAMS):
        program = Writer(seed).write()
        result = await play(program)
        assert not result.wrong, await told(seed, program)
        looks += result.looks
        puts += result.puts
    print(f"\n{PROGRAMS} programs: {puts} items, {looks} looks, with those of newcomers and of the end")


async def told(seed: int, program: Program) -> str:
    """Say how *program* ends, in its shortest form."""
    least = await shrink(program)
    wrong = (await play(least)).wrong or (await play(program)).wrong
    return "\n".join((f"seed {seed}, {least.options}", *map(str, least.moves), *wrong))


# C4: what a call costs


async def looks_a_put(seeds: Iterable[int]) -> float:
    looks = puts = 0
    for seed in seeds:
        result = await play(Writer(seed).write_queue())
        assert not result.wrong, seed
        looks += result.looks
        puts += result.puts
    return looks / puts


async def test_calls_of_a_queue_take_few_looks() -> None:
    cost = await looks_a_put(range(100))
    print(f"\n{cost:.2f} looks a put")
    assert cost < 1.25


@pytest.mark.skipif(COMPILED, reason="a method of a compiled class cannot be replaced")
def test_calls_without_c4_take_more_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_less(monkeypatch, lambda op: op._op_state != PENDING)
    end_looks(monkeypatch, hands_out=False)
    assert asyncio.run(looks_a_put(range(100))) > 1.3


# Controls: the library without a rule


def answer_less(monkeypatch: pytest.MonkeyPatch, is_answer: Callable[[Operation], bool]) -> None:
    """A try counts only if *is_answer*, too."""
    real = Calls._try
    monkeypatch.setattr(Calls, "_try", lambda self, key, op, *of: real(self, key, op, *of) and int(is_answer(op)))


def answer_more(monkeypatch: pytest.MonkeyPatch, is_answer: Callable[[Operation], bool]) -> None:
    """A try counts if *is_answer*, too."""
    real = Calls._try
    monkeypatch.setattr(Calls, "_try", lambda self, key, op, *of: real(self, key, op, *of) or int(is_answer(op)))


def end_looks(monkeypatch: pytest.MonkeyPatch, hands_out: bool) -> None:
    """Reads end as if all of them, or none, were hand-outs."""
    real = Calls.end_look

    def end_look(self: Calls, op: ReadingOperation, reading: Reading, is_found: bool, has_failed: bool) -> None:
        before, op._op_hands_out = op._op_hands_out, hands_out
        real(self, op, reading, is_found, has_failed)
        op._op_hands_out = before

    monkeypatch.setattr(Calls, "end_look", end_look)


def busy_waits_take_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: a wait in a read takes the call, and reads once more."""
    source = textwrap.dedent(inspect.getsource(Calls.give))
    is_busy = "        elif reading.is_busy or reading.call is not None:\n"
    assert is_busy in source
    changed = source.replace(is_busy, f"{is_busy}            reading.ring(number)\n            limit -= 1\n")
    scope = dict(vars(calls))
    exec(f"from __future__ import annotations\n{changed}", scope)
    monkeypatch.setattr(Calls, "give", scope["give"])


def owed_calls_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """C1"""
    monkeypatch.setattr(WaitLine, "owe", lambda self, number, count: None)


def free_waits_get_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: a wait that was busy is never called again."""
    monkeypatch.setattr(WaitLine, "put_back", lambda self, number: None)


def calls_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2"""
    monkeypatch.setattr(Calls, "pass_on", lambda self, reading: setattr(reading, "call", None))


def leavers_keep_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: a call that was held by a wait which ends before it has read is lost."""

    def leave_off(op: Any) -> None:
        if op._op_reading is not None:
            op._op_reading.interrupt()

    monkeypatch.setattr(awaited, "leave_off", leave_off)


def failed_tries_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2"""
    answer_more(monkeypatch, lambda op: op._op_state == FAILED)


def tries_for_several_keys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2"""
    answer_more(monkeypatch, lambda op: op._op_state == COMPLETED)


def reads_for_several_keys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2"""
    real = Calls.end_look

    def end_look(self: Calls, op: ReadingOperation, reading: Reading, is_found: bool, has_failed: bool) -> None:
        if is_found:
            reading.call = None
        real(self, op, reading, is_found, has_failed)

    monkeypatch.setattr(Calls, "end_look", end_look)


def all_are_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: whoever finds nothing ends the call, and not hand-outs alone."""
    answer_more(monkeypatch, lambda op: op._op_state == PENDING)
    end_looks(monkeypatch, hands_out=True)


def nothing_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""
    monkeypatch.setattr(Calls, "call_again", lambda self, keys: None)


def undelivered_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""
    monkeypatch.setattr(Core, "call_again", lambda self, keys: None)


def failed_reads_do_not_call_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""
    real = Calls.end_look
    monkeypatch.setattr(Calls, "end_look", lambda self, op, reading, found, _: real(self, op, reading, found, False))


def reads_of_hand_outs_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: a client that leaves takes with it what its read is about to return."""

    async def finish(op: object, read: Any) -> Any:
        return await read

    monkeypatch.setattr(waits, "_finish", finish)


def merged_limits_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5"""

    def mark(marked: dict[Any, int], key: Any, limit: int) -> None:
        marked[key] = max(marked.get(key, 0), limit)

    monkeypatch.setattr(checks, "mark", mark)


CONTROLS = [
    busy_waits_take_calls,
    owed_calls_are_dropped,
    free_waits_get_no_calls,
    calls_are_not_passed_on,
    leavers_keep_calls,
    failed_tries_answer,
    tries_for_several_keys_answer,
    reads_for_several_keys_answer,
    all_are_overtaken,
    nothing_is_called_again,
    undelivered_is_not_called_again,
    failed_reads_do_not_call_again,
    reads_of_hand_outs_are_cancelled,
    merged_limits_do_not_add_up,
]


@pytest.mark.skipif(COMPILED, reason="a method of a compiled class cannot be replaced")
@pytest.mark.parametrize("without", CONTROLS, ids=lambda control: control.__name__)
def test_calls_without_a_rule_end_badly(
    monkeypatch: pytest.MonkeyPatch, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    without(monkeypatch)
    found = asyncio.run(first_bad())
    assert found is not None
    print(f"\n{found}")


async def first_bad() -> str | None:
    for seed in range(ENOUGH):
        if (await play(Writer(seed).write())).wrong:
            return await told(seed, Writer(seed).write())
    return None
