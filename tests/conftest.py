"""Every async test runs on asyncio and on uvloop, and every run proves which form of the library it tests."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections.abc import Callable, Mapping

import hypothesis  # noqa: F401  (imported late, it would warn: it searches for referrers, and frozen ones are hidden)
import pytest

import aiopurgatory
from aiopurgatory.testing import ManualClock

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
except ImportError:
    pass


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS


def pytest_configure(config: pytest.Config) -> None:
    wanted = os.environ.get("AIOPURGATORY_FORM")
    form = "compiled" if aiopurgatory.COMPILED else "interpreted"
    if wanted not in (None, form):
        pytest.exit(f"the {wanted} form was to be tested, but {aiopurgatory.__file__} is {form}", returncode=3)


def pytest_report_header(config: pytest.Config) -> str:
    form = "compiled" if aiopurgatory.COMPILED else "interpreted"
    return f"aiopurgatory: {form}, {aiopurgatory.__file__}"


def pytest_collection_finish() -> None:
    # Modules and tests stay until the end. Frozen, they no longer slow down the many tests that collect garbage.
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # otherwise DuckDB reports frozen objects as leaked at exit


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
