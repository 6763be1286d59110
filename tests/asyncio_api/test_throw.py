"""Exceptions thrown into an await before it began, as a coroutine wrapper or a debugger may do.

They run in a process of their own: a compiled generator that is not prepared for this ends the interpreter.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio
from aiopurgatory import DelayedOperation, Purgatory

class Op(DelayedOperation):
    def try_complete(self):
        return False
    def on_complete(self):
        return "result"

async def main():
    async with Purgatory() as purgatory:
        op = purgatory.watch(Op(60.0), ["key"])
        for _ in range(3):
            awaiting = op.__await__()
            try:
                awaiting.throw({thrown})
            except BaseException as exc:
                print(type(exc).__name__, op.outcome)
            else:
                print("nothing raised")
            del awaiting
        task = asyncio.create_task(asyncio.wait_for(op, 5.0))
        await asyncio.sleep(0)
        op.force_complete()
        print(await task, op.outcome.value, purgatory.num_delayed)

asyncio.run(main())
"""


def run(thrown: str, script: str = SCRIPT) -> list[str]:
    """The output of *script* when it throws the expression *thrown* three times, then awaits."""
    command = [sys.executable, "-c", script.format(thrown=thrown)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("thrown", "raised"),
    [
        *((thrown, thrown.partition("(")[0]) for thrown in ("ValueError('x')", "ValueError", "KeyboardInterrupt()")),
        ("GeneratorExit()", "GeneratorExit"),
        ("asyncio.CancelledError()", "CancelledError"),  # as on a Future, this alone does not end the operation
        *((thrown, "TypeError") for thrown in ("[]", "()", "'text'", "None", "list", "42")),
    ],
)
def test_throw_before_the_first_send_raises_it(thrown: str, raised: str) -> None:
    assert run(thrown) == [f"{raised} None"] * 3 + ["result completed 0"]


@pytest.mark.parametrize("thrown", ["[]", "42"])
def test_throw_of_no_exception_after_the_first_send(thrown: str) -> None:
    script = SCRIPT.replace("            try:\n", "            awaiting.send(None)\n            try:\n", 1)
    assert run(thrown, script) == ["TypeError None"] * 3 + ["result completed 0"]
