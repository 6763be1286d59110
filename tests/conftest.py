"""Every async test runs on asyncio and on uvloop, and every run proves which form of the library it tests."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING
from weakref import ref

import hypothesis  # noqa: F401  (imported late, it would warn: it searches for referrers, and frozen ones are hidden)
import pytest

import aiopurgatory
from aiopurgatory.testing import ManualClock

if TYPE_CHECKING:
    from selenium import webdriver

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
except ImportError:
    pass


#: A shell starts a background job with SIGINT and SIGQUIT ignored, and so would be each server that a test starts.
STOPS: dict[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS


def pytest_configure(config: pytest.Config) -> None:
    wanted = os.environ.get("AIOPURGATORY_FORM")
    form = "compiled" if aiopurgatory.COMPILED else "interpreted"
    if wanted not in (None, form):
        pytest.exit(f"the {wanted} form was to be tested, but {aiopurgatory.__file__} is {form}", returncode=3)
    for number, handler in STOPS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

    # Processes that tests start need pytest's additions to sys.path, too.
    added = [str(config.rootpath / name) for name in config.getini("pythonpath")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *added])


class TimedOut(SystemExit):
    """A test has taken too long. uvloop logs any other exception of a signal handler, and goes on."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    answer = yield
    fail = signal.getsignal(signal.SIGALRM)

    def end(number: int, frame: FrameType | None) -> None:
        assert callable(fail)
        try:
            fail(number, frame)
        except pytest.fail.Exception as exc:
            raise TimedOut(str(exc)) from None

    if callable(fail):  # otherwise it is a thread that ends the run
        signal.signal(signal.SIGALRM, end)
        seconds, _ = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, if the cleanup hangs, too
    return answer


def pytest_report_header(config: pytest.Config) -> str:
    form = "compiled" if aiopurgatory.COMPILED else "interpreted"
    return f"aiopurgatory: {form}, {aiopurgatory.__file__}"


def pytest_collection_finish() -> None:
    # Modules and tests stay until the end. Frozen, they no longer slow down the many tests that collect garbage.
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # otherwise DuckDB reports frozen objects as leaked at exit


@pytest.fixture
def leaves_tasks() -> Iterator[None]:
    """For tests that close a loop with tasks in it: asyncio logs that now, and not while a later test runs."""
    yield
    gc.collect()


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
    """Raised by a signal handler, such as that of a test's timeout. Loops report it, and go on."""


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
    """The plugin's, as that of ``purgatory``."""
    return manual_clock


HEADLESS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
]


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
