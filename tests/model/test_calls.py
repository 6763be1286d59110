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
    print(f"\n{PROGRAMS} programs: {puts} items, {looks} looks, newcomers and the end included")


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
    """A try counts only if *is_answer* also holds."""
    real = Calls._try
    monkeypatch.setattr(Calls, "_try", lambda self, key, op, *of: real(self, key, op, *of) and int(is_answer(op)))


def answer_more(monkeypatch: pytest.MonkeyPatch, is_answer: Callable[[Operation], bool]) -> None:
    """A try also counts if *is_answer* holds."""
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


def forget_call(calls: Calls, reading: Reading) -> None:
    reading.call = None


def leavers_keep_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: a call that was held by a wait which ends before it has read is lost."""

    def leave_off(op: Any) -> None:
        if op._op_reading is not None:
            op._op_reading.interrupt()

    monkeypatch.setattr(awaited, "leave_off", leave_off)


def reads_for_several_keys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
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


def failed_reads_do_not_call_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Calls.end_look
    monkeypatch.setattr(Calls, "end_look", lambda self, op, reading, found, _: real(self, op, reading, found, False))


def reads_of_hand_outs_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: a client that leaves takes with it what its read is about to return."""

    async def finish(op: object, read: Any) -> Any:
        return await read

    monkeypatch.setattr(waits, "_finish", finish)


def merged_limits_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(marked: dict[Any, int], key: Any, limit: int) -> None:
        marked[key] = max(marked.get(key, 0), limit)

    monkeypatch.setattr(checks, "mark", mark)


CONTROLS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "C1: busy waits take calls": busy_waits_take_calls,
    "C1: owed calls are dropped": lambda patch: patch.setattr(WaitLine, "owe", lambda self, number, count: None),
    "C1: busy waits are never called again": lambda patch: patch.setattr(WaitLine, "put_back", lambda *_: None),
    "C2: calls are not passed on": lambda patch: patch.setattr(Calls, "pass_on", forget_call),
    "C2: leavers keep calls": leavers_keep_calls,
    "C2: failed tries answer": lambda patch: answer_more(patch, lambda op: op._op_state == FAILED),
    "C2: tries for several keys answer": lambda patch: answer_more(patch, lambda op: op._op_state == COMPLETED),
    "C2: reads for several keys answer": reads_for_several_keys_answer,
    "C2: all are overtaken": all_are_overtaken,
    "C3: nothing is called again": lambda patch: patch.setattr(Calls, "call_again", lambda self, keys: None),
    "C3: undelivered is not called again": lambda patch: patch.setattr(Core, "call_again", lambda self, keys: None),
    "C3: failed reads do not call again": failed_reads_do_not_call_again,
    "C3: reads of hand-outs are cancelled": reads_of_hand_outs_are_cancelled,
    "C5: merged limits do not add up": merged_limits_do_not_add_up,
}


@pytest.mark.skipif(COMPILED, reason="a method of a compiled class cannot be replaced")
@pytest.mark.parametrize("name", CONTROLS)
def test_calls_without_a_rule_end_badly(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    CONTROLS[name](monkeypatch)
    found = asyncio.run(first_bad())
    assert found is not None
    print(f"\n{found}")


async def first_bad() -> str | None:
    for seed in range(ENOUGH):
        if (await play(Writer(seed).write())).wrong:
            return await told(seed, Writer(seed).write())
    return None
