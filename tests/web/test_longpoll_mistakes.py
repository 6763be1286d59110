"""Common mistakes in making a LongPolling: each is answered by an error that names the argument and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, close_on_stop

from .polls import Counters


class AsyncVersion(Counters):
    async def version(self, resource: str) -> str:  # type: ignore[override]
        return "1"


class AsyncRead(Counters):
    async def read(self, resource: str, since: str | None, version: str) -> bytes:  # type: ignore[override]
        return b""


class Misspelt:
    def version(self, resource: str) -> str:
        return "1"

    def raed(self, resource: str, since: str | None, version: str) -> bytes:
        return b""


class NoMethod:
    def version(self, resource: str) -> str:
        return "1"

    read = b"body"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "swapped": ({"purgatory": Counters(), "source": Purgatory()}, r"purgatory .*LongPolling\(purgatory, source\)"),
    "no purgatory": ({"purgatory": "polls"}, "purgatory must be a Purgatory, got 'polls'"),
    "purgatory class": ({"purgatory": Purgatory}, "purgatory must be .*Purgatory"),
    "source class": ({"source": Counters}, "source must be an instance .*class Counters"),
    "no source": ({"source": None}, r"source must have a method version\(\)"),
    "misspelt": ({"source": Misspelt()}, r"source must have a method read\(\).*raed"),
    "no method": ({"source": NoMethod()}, r"source must have a method read\(\)"),
    "async version, plain read": (
        {"source": AsyncVersion()},
        r"source must .*version\(\) is an async def and read\(\)",
    ),
    "plain version, async read": ({"source": AsyncRead()}, r"source must .*read\(\) is an async def and version\(\)"),
    "policy": ({"policy": 30.0}, "policy must be a Policy or None, got 30.0"),
    "false policy": ({"policy": 0}, "policy must be a Policy or None, got 0"),
    "media_type": ({"media_type": b"text/plain"}, "media_type must be a str"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_long_polling_of_a_wrong_argument_names_it(name: str) -> None:
    arguments, message = MISTAKES[name]
    with pytest.raises(TypeError, match=message):
        LongPolling(**{"purgatory": Purgatory(), "source": Counters(), **arguments})


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


@pytest.mark.parametrize("route", [LongPollRoute, EventRoute])
@pytest.mark.parametrize("name", ["resource", "since", "keys", "client", "group"])
def test_route_of_a_value_in_place_of_a_function_names_it(route: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a function, got 'running'"):
        route(LongPolling(Purgatory(), Counters()), **{name: "running"})


@pytest.mark.parametrize("route", [LongPollRoute, EventRoute])
async def test_since_of_a_route_that_returns_no_text_is_named(route: Any) -> None:
    scope = {"type": "http", "method": "GET", "path": "/n", "query_string": b"", "headers": []}
    with pytest.raises(TypeError, match="since must return a str or None, got 7"):
        await route(LongPolling(Purgatory(), Counters()), since=lambda _: 7)(scope, None, None)


async def test_close_on_stop_of_a_long_polling_says_that_it_needs_none() -> None:
    polling: Any = LongPolling(Purgatory(), Counters())
    with pytest.raises(TypeError, match=r"purgatory must be a Purgatory, .*a LongPolling opens and closes by itself"):
        close_on_stop(polling)
