"""For the tests of the library and of examples: every async test runs on both loops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Generator, Mapping
from types import FrameType

import hypothesis  # imported late, it would warn: it searches for referrers, and frozen ones are hidden
import pytest

import aiopurgatory

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
except ImportError:
    pass


#: A deadline would fail a test on a busy machine.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

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
