from __future__ import annotations

import asyncio
import gc
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.signals import STOP_SIGNALS

from .browser import Browser
from .eventsource import Streams
from .helpers import Served
from .polls import Counters, Polls, check_empty, settle

if TYPE_CHECKING:
    from selenium import webdriver

Kept = Callable[[type], int]


@pytest.fixture
def source() -> Any:
    """That of ``polls`` and ``streams``. Modules have others."""
    return Counters()


@pytest.fixture
async def polls(purgatory: Purgatory, source: Any) -> AsyncIterator[Polls]:
    yield Polls(purgatory, source)
    await settle()
    assert purgatory.num_delayed == 0


@pytest.fixture
async def streams(purgatory: Purgatory, source: Any) -> AsyncIterator[Streams]:
    streams = Streams(purgatory, source)
    yield streams
    await settle()
    check_empty(streams.polling)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listen to a poll from the next loop iteration on: so each order of things can be had without a wait."""
    monkeypatch.setattr("aiopurgatory.web.poll.LISTEN_AFTER", 0.0)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Counts the objects of a class that the test has made and not let go. The garbage collector is off."""
    gc.collect()
    gc.disable()
    before = Counter(map(type, gc.get_objects()))
    yield lambda kind: Counter(map(type, gc.get_objects()))[kind] - before[kind]
    gc.enable()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Afterwards, stop signals are handled as before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """One server for all tests of a module that name it by each()."""
    with Served(*request.param) as server:
        yield server


@pytest.fixture
async def browser(driver: webdriver.Chrome) -> AsyncIterator[Browser]:
    yield Browser(driver)
    await asyncio.to_thread(driver.get, "about:blank")
