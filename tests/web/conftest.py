from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

import aiopurgatory
from aiopurgatory import Purgatory
from aiopurgatory.web.signals import STOP_SIGNALS

from .browser import Browser
from .eventsource import Streams, leave
from .helpers import Served
from .polls import Counters, Polls, check_empty, settle

if TYPE_CHECKING:
    from selenium import webdriver

Kept = Callable[[type], int]
Making = Callable[..., Streams]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Scripts of pages are tested on one loop, and all is on the other one, if there is one, in the compiled form.

    For scripts, a server is a server. What is interpreted in both forms needs not all four pairs of form and loop.
    """
    if item.path.stem.endswith(("_browser", "_node")):
        return {"asyncio": asyncio.new_event_loop}
    uvloop = sys.modules.get("uvloop")
    return {"uvloop": uvloop.new_event_loop} if aiopurgatory.COMPILED and uvloop else None


@pytest.fixture
def source() -> Any:
    """The policy of ``polls`` and ``streams``. Modules have others."""
    return Counters()


@pytest.fixture
async def polls(purgatory: Purgatory, source: Any) -> AsyncIterator[Polls]:
    yield Polls(purgatory, source)
    await settle()
    assert purgatory.num_delayed == 0


@pytest.fixture
async def make(purgatory: Purgatory, source: Any) -> AsyncIterator[Making]:
    """Makes streams of the source and settings that it is given. Afterwards, their clients leave."""
    made: list[Streams] = []

    def make(source: Any = source, **settings: Any) -> Streams:
        made.append(Streams(purgatory, source, **settings))
        return made[-1]

    yield make
    for streams in made:
        await leave(*[client for client in streams.clients if not client.task.done()])
        await settle()
        check_empty(streams.polling)


@pytest.fixture
def streams(make: Making) -> Streams:
    return make()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listen to a poll from the next loop iteration on: so each order of things can be had without a wait."""
    monkeypatch.setattr("aiopurgatory.web.desk.LISTEN_AFTER", 0.0)


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
