"""Common mistakes: each is answered by an error that names the argument and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace as Source
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import (
    EventRoute,
    LogPolling,
    LongPolling,
    LongPollRoute,
    PurgatoryMiddleware,
    close_on_stop,
    while_connected,
)

from .polls import Counters


def plain(*_: Any) -> Any: ...


async def awaited(*_: Any) -> Any: ...


NAME = r"^name must (be text without surrogates|have 1 to 255 bytes of UTF-8), got "
#: Arguments of LongPolling, and what they say.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"purgatory": Counters(), "source": Purgatory()}, r"purgatory .*LongPolling\(purgatory, source\)"),
    ({"purgatory": "polls"}, "purgatory must be a Purgatory, got 'polls'"),
    ({"purgatory": Purgatory}, "purgatory must be .*Purgatory"),
    ({"source": Counters}, "source must be an instance .*class Counters"),
    ({"source": None}, r"source must have a method version\(\)"),
    ({"source": Source(version=plain, raed=plain)}, r"source must have a method read\(\).*raed"),
    ({"source": Source(version=plain, read=b"body")}, r"source must have a method read\(\)"),
    ({"source": Source(version=awaited, read=plain)}, r"source must .*version\(\) is an async def and read\(\)"),
    ({"source": Source(version=plain, read=awaited)}, r"source must .*read\(\) is an async def and version\(\)"),
    ({"policy": 30.0}, "policy must be a Policy or None, got 30.0"),
    ({"policy": 0}, "policy must be a Policy or None, got 0"),
    ({"media_type": b"text/plain"}, "media_type must be a str"),
    ({"name": 7}, "^name must be a str, got 7$"),
    *(({"name": name}, NAME) for name in ("", "\ud800", "n" * 256)),
    ({"observers": [None]}, "^observers must be instances of Observer, got"),
    ({"observers": None}, "^observers must be an iterable of Observers, got None$"),
    ({"stop_signals": None}, "^stop_signals must be a bool, got None$"),
]


def long_polling(**given: Any) -> LongPolling[Any]:
    return LongPolling(**{"purgatory": Purgatory(), "source": Counters(), **given})


NO_TIMES = [1.8e12, 1.8e18, 0, 3600.0, math.inf, math.nan, -1.0]  # in ms, in ns, ...


POLLING: Any = LongPolling(Purgatory(), Counters())
SERVED = r"^served must be a LongPolling, a LogPolling or an EventLog, got 7$"
#: Calls, and what they say.
CALLS: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any], str]] = [
    (close_on_stop, (None,), {}, r"^purgatory must be a Purgatory, got None; "),
    (close_on_stop, (POLLING,), {}, r"^purgatory must be a Purgatory, .*a LongPolling opens and closes by itself"),
    (PurgatoryMiddleware, (awaited, POLLING), {}, "^purgatory must be a Purgatory, got"),
    (while_connected, ({},), {}, r"^receive must be a function, got {}"),
    (LogPolling, (7,), {}, r"^log must be an EventLog, got 7$"),
    (EventRoute, (7,), {}, SERVED),
    (LongPollRoute, (7,), {}, SERVED),
    (LogPolling, (MemoryLog(), 30.0), {}, r"^policy must be a Policy or None, got 30\.0"),
    (LongPollRoute, (POLLING,), {"respond": awaited}, "^respond must be a plain function"),
    (LongPollRoute, (POLLING,), {"methods": "POST"}, r"^methods must be an iterable .* 'POST'; pass \['POST'\]$"),
    *(
        (route, (POLLING,), {name: "running"}, f"^{name} must be a function, got 'running'")
        for route in (LongPollRoute, EventRoute)
        for name in ("resource", "since", "keys", "client", "group")
    ),
    *((long_polling, (), given, rule) for given, rule in MISTAKES),
]


@pytest.mark.parametrize(("call", "arguments", "options", "rule"), CALLS)
def test_wrong_argument_is_named(call: Any, arguments: tuple[Any, ...], options: dict[str, Any], rule: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rule):
        call(*arguments, **options)


@pytest.mark.parametrize(("until", "error"), [*((each, ValueError) for each in NO_TIMES), ("2026-11-26", TypeError)])
async def test_end_of_a_login_that_is_no_time_is_refused(until: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="until must be "):
        await POLLING.events("n", {}, until=until)


@pytest.mark.parametrize("opened", [False, True])
async def test_notify_of_an_unhashable_key_names_it(opened: bool) -> None:
    purgatory = Purgatory()
    if opened:
        await purgatory.start()
    polling = LongPolling(purgatory, Counters())
    key: Any = ["n"]
    for notify in (polling.notify, polling.notify_threadsafe):
        with pytest.raises(TypeError, match=r"key must be hashable, got \['n'\]"):
            notify(key)
    await purgatory.aclose()


@pytest.mark.parametrize("ask", [POLLING.answer, LogPolling(MemoryLog()).events])
@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *(("since", value, "since must be a str or None, got ") for value in (7, b"7")),  # as an int of FastAPI
        ("receive", {}, "receive must be a function, got {}"),  # as the request itself
    ],
)
async def test_wrong_argument_of_a_handler_is_named(ask: Any, name: str, value: Any, rule: str) -> None:
    with pytest.raises(TypeError, match=f"^{rule}"):
        await ask("n", {}, **{name: value})


@pytest.mark.parametrize("route", [LongPollRoute, EventRoute])
async def test_since_of_a_route_that_returns_no_text_is_named(route: Any) -> None:
    scope = {"type": "http", "method": "GET", "path": "/n", "query_string": b"", "headers": []}
    with pytest.raises(TypeError, match="since must return a str or None, got 7"):
        await route(LongPolling(Purgatory(), Counters()), since=lambda _: 7)(scope, None, None)
