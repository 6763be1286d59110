"""Fixtures of many tests: ways to hang up, the clock, a browser."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from aiopurgatory.testing import ManualClock

if TYPE_CHECKING:
    from selenium import webdriver


@pytest.fixture
def leaves_tasks() -> Iterator[None]:
    """For tests that close a loop with tasks in it: asyncio logs that now, and not while a later test runs."""
    yield
    gc.collect()


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop, of each kind."""
    factory: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip(request.param).new_event_loop
    return factory


@pytest.fixture
async def reported() -> list[dict[str, Any]]:
    """What the running loop's exception handler is told."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


@pytest.fixture
async def reports() -> AsyncIterator[list[BaseException]]:
    """The exceptions reported to the loop's exception handler. A test that expects some clears the list."""
    found: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    assert found == []


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the warnings logged so far."""

    def messages() -> list[str]:
        records = [record for record in caplog.records if record.name == "aiopurgatory"]
        assert all(record.levelno == logging.WARNING for record in records)
        return [record.getMessage() for record in records]

    return messages


@pytest.fixture
def without_gc() -> Iterator[None]:
    """The garbage collector is off: what is freed is freed without it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Session:
    """An object of a request."""


class Requests:
    """Requests, each with a session in a context variable."""

    def __init__(self) -> None:
        self.session: ContextVar[Session | None] = ContextVar("session", default=None)

    async def handle(self, work: Callable[[], Awaitable[object]]) -> ref[Session]:
        """Await *work()* in a request. Returns: its session."""

        async def handle() -> ref[Session]:
            session = Session()
            self.session.set(session)
            await work()
            return ref(session)

        session = await asyncio.create_task(handle())
        await asyncio.sleep(0)  # the loop lets go of the task
        return session

    def are_over(self, *sessions: ref[Session]) -> bool:
        """Whether nothing keeps the *sessions*."""
        gc.collect()
        return not any(session() for session in sessions)


@pytest.fixture
def requests() -> Requests:
    """What begins in a request, and outlives it, must neither see nor keep its context variables."""
    return Requests()


class Interrupt(BaseException):
    """Raised by a signal handler, such as a test's timeout. Loops report it, and go on."""


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], type[BaseException]]:
    """Interrupts a module's next call of a method of the running loop. Returns: the exception, which comes instead."""

    def interrupt(method: str, module: str) -> type[BaseException]:
        loop = asyncio.get_running_loop()
        call = getattr(loop, method)

        def interrupted(*args: object, **options: object) -> object:
            if sys._getframe(1).f_globals["__name__"] != module:
                return call(*args, **options)
            setattr(loop, method, call)
            raise Interrupt

        monkeypatch.setattr(loop, method, interrupted)
        return Interrupt

    return interrupt


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _shut_down(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


@pytest.fixture
def reset() -> Callable[[socket.socket], None]:
    """Hang up without a goodbye."""
    return _reset


@pytest.fixture(params=[socket.socket.close, _reset, _shut_down], ids=["close", "reset", "shut_down"])
def leave(request: pytest.FixtureRequest) -> Callable[[socket.socket], None]:
    """Hang up, in each way that a client can."""
    way: Callable[[socket.socket], None] = request.param
    return way


@pytest.fixture
def clock(manual_clock: ManualClock) -> ManualClock:
    """The plugin's fixture, as ``purgatory`` is."""
    return manual_clock


HEADLESS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"]
HEADLESS += ["--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"]
HEADLESS += ["--window-size=1280,1000"]


@pytest.fixture(scope="module")
def browser_flags() -> list[str]:
    """More flags for the browser of the module."""
    return []


@pytest.fixture(scope="module")
def driver(browser_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A real browser without a screen. Without Chromium, the tests are skipped."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip(
            "not tested in a browser: chromium or chromedriver is not installed (Debian: make programs, as root)"
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*HEADLESS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", *browser_flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(chromedriver)) as driver:
        yield driver
