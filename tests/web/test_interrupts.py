"""An exception of a signal handler, at a bad moment, may end a poll. It must not mute the later ones."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web import LongPolling

from .polls import KNOWN, Counters, Database, Polls

Interrupt = Callable[[str, str], type[BaseException]]
READS = "aiopurgatory.web.reads"


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory, Database(), max_reads=1)


async def test_poll_interrupted_before_its_read_mutes_no_other(polls: Polls, interrupt: Interrupt) -> None:
    interrupted = interrupt("call_soon", READS)
    with pytest.raises(interrupted):
        await polls.polling.answer("n", {})
    async with asyncio.timeout(2.0):
        assert (await polls.start(known=None)).status == 200
        assert (await polls.start("other", known=None)).status == 200


async def test_read_interrupted_as_it_begins_begins(polls: Polls, interrupt: Interrupt, reported: list[Any]) -> None:
    loop = asyncio.get_running_loop()
    interrupted = []
    # In the iteration of the read, before it: the next call of the loop is that of its task.
    loop.call_soon(lambda: loop.call_soon(lambda: interrupted.append(interrupt("call_soon", READS))))
    both = [polls.start(known=None), polls.start("other", known=None)]
    async with asyncio.timeout(2.0):
        assert [(await poll).status for poll in both] == [200, 200]
        assert (await polls.start(known=None)).status == 200
    gc.collect()
    raised = [type(context["exception"]) for context in reported if "exception" in context]
    assert raised == interrupted  # besides, the task that could not begin


class Handler:
    """A signal handler of a server. The first look at it is interrupted."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, *_: object) -> None:
        pass

    @property
    def keywords(self) -> dict[str, object]:
        self.looks += 1
        if self.looks == 1:
            raise InterruptedError
        return {}


async def test_stop_signal_ends_polls_though_the_first_was_interrupted(purgatory: Purgatory) -> None:
    signal.signal(signal.SIGTERM, Handler())
    polling = LongPolling(purgatory, Counters())
    with pytest.raises(InterruptedError):
        await polling.answer("n", KNOWN)
    poll = asyncio.create_task(polling.answer("n", KNOWN))
    await asyncio.sleep(0.01)
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(2.0):
        assert (await poll).headers["refused"] == "closed"
