"""The loop or the process is another one, or gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import pytest

from aiopurgatory import DelayedOperation, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import check_invariants

NewLoop = Callable[[], asyncio.AbstractEventLoop]


class Wait(DelayedOperation[str]):
    ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        return "time is up" if self.expired else "data"


async def started() -> tuple[Purgatory, Wait]:
    purgatory = Purgatory()
    await purgatory.start()
    return purgatory, purgatory.watch(Wait(60.0), ["key"])


async def watch(purgatory: Purgatory) -> None:
    purgatory.watch(Wait(60.0), ["key"])


def test_watch_second_loop_same_thread_is_refused(new_loop: NewLoop) -> None:
    first = new_loop()
    purgatory, op = first.run_until_complete(started())
    with pytest.raises(RuntimeError, match="another event loop"), asyncio.Runner(loop_factory=new_loop) as second:
        second.run(watch(purgatory))
    with pytest.raises(RuntimeError, match="another event loop"), asyncio.Runner(loop_factory=new_loop) as second:
        second.run(purgatory.start())
    check_invariants(purgatory)
    assert purgatory.num_delayed == 1
    op.ready = True
    assert purgatory.check_and_complete("key") == 1
    first.run_until_complete(purgatory.aclose())
    first.close()


def test_run_ctrl_c_with_purgatory_open_answers_all(new_loop: NewLoop) -> None:
    purgatory = Purgatory()
    op = Wait(60.0)
    ended: list[type[BaseException]] = []

    async def waits_again_when_cancelled() -> None:
        try:
            await purgatory.watch(Wait(60.0), ["key"])
        except asyncio.CancelledError as exc:
            ended.append(type(exc))
        try:
            async with asyncio.timeout(5):
                await purgatory.watch(Wait(60.0), ["key"])
        except (PurgatoryClosedError, TimeoutError) as exc:
            ended.append(type(exc))

    async def main() -> None:
        await purgatory.start()
        purgatory.watch(op, ["key"])
        task = asyncio.create_task(waits_again_when_cancelled())
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)  # Ctrl-C
        await asyncio.sleep(60)
        await task

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert ended == [asyncio.CancelledError, PurgatoryClosedError]
    assert isinstance(op.exception(), PurgatoryClosedError)
    check_invariants(purgatory)


def test_fork_child_is_refused_and_parent_goes_on(new_loop: NewLoop) -> None:
    # In a process of its own: pytest has threads, and its child would go on with the tests.
    subprocess.run([sys.executable, __file__, new_loop.__module__], check=True, timeout=30)


async def fork_with_purgatory_open(new_loop: NewLoop) -> None:
    purgatory, op = await started()
    expiring = purgatory.watch(Wait(0.01), ["key"])
    child = os.fork()
    if child == 0:
        os._exit(42 if child_is_refused(purgatory, new_loop) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42  # noqa: ASYNC222
    assert await expiring == "time is up"
    op.ready = True
    purgatory.check_and_complete("key")
    assert await op == "data"
    await purgatory.aclose()


def child_is_refused(purgatory: Purgatory, new_loop: NewLoop) -> bool:
    """The parent's purgatory refuses, and a new one works."""

    async def use_own() -> str:
        async with Purgatory() as own:
            return await own.watch(Wait(0.01), ["key"])

    def watch(key: str) -> None:
        purgatory.watch(Wait(60.0), [key])

    for call in (watch, purgatory.check_and_complete, purgatory.notify, purgatory.notify_threadsafe):
        with pytest.raises(RuntimeError, match="fork"):
            call("key")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(use_own()) == "time is up"


if __name__ == "__main__":
    new_loop_here = import_module(sys.argv[1]).new_event_loop
    with asyncio.Runner(loop_factory=new_loop_here) as runner_here:
        runner_here.run(fork_with_purgatory_open(new_loop_here))
