from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.signals import STOP_SIGNALS

from .helpers import Served
from .polls import Counters, Polls


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
async def polls(purgatory: Purgatory, counters: Counters) -> AsyncIterator[Polls]:
    yield Polls(purgatory, counters)
    assert purgatory.num_delayed == 0


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
