"""The app: allowed clients, and places to mount it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response

from aiopurgatory import Purgatory
from aiopurgatory.bus import LocalBus
from aiopurgatory.web import LongPolling
from aiopurgatory.web.inspector import Inspector

from ..polls import Counters, until
from .helpers import Wait, get, polls_of, serve


async def test_every_answer_forbids_what_it_does_not_need(port: int) -> None:
    paths = ["/", "/state", "/search?key=x", "/search", "/state?purgatory=7"]
    for answer in [await get(port, path) for path in paths]:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_mount_without_a_slash_leads_to_the_page(port: int) -> None:
    answer = await get(port, "")
    assert answer.status == 307
    assert answer.headers["location"].endswith("/purgatory/")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/state?purgatory=1", 404),
        ("/state?purgatory=-1", 404),
        ("/state?purgatory=²", 404),
        (f"/state?purgatory={'0' * 5000}1", 404),
        ("/search?purgatory=x&key=x", 404),
        (f"/state?{'a=&' * 3_000}", 414),
        (f"/search?{'a=&' * 3_000}", 414),
        ("/search", 400),
        ("/search?key=%20", 400),
        (f"/search?key={'x' * 201}", 400),
        ("/inspector.html", 404),
        ("/app.py", 404),
        ("/../state", 404),
    ],
)
async def test_bad_request_is_refused(port: int, path: str, status: int) -> None:
    assert (await get(port, quote(path, safe="/?=&%."))).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(purgatory: Purgatory, port: int, method: str) -> None:
    purgatory.watch(Wait(None), ["key"])
    for path in ("/", "/state", "/search?key=key"):
        assert (await get(port, path, method)).status == 405
    assert purgatory.num_delayed == 1


async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    if request.query_params.get("token") != "good":
        return Response(status_code=401)
    return await call_next(request)


async def test_page_goes_behind_the_authentication_of_the_app(purgatory: Purgatory, inspector: Inspector) -> None:
    async with serve(BaseHTTPMiddleware(inspector, guard)) as port:
        for path in ("/", "/state", "/search?key=key"):
            assert (await get(port, path)).status == 401
        known = (await get(port, "/state?token=good")).json
        poll = asyncio.create_task(get(port, f"/state?token=good&after={known['cursor']}"))
        await until(lambda: polls_of(inspector).num_delayed == 1)
        purgatory.watch(Wait(None), ["key"])
        assert (await poll).json["statistics"]["pending"] == 1


NONE = ["fetch", LongPolling, Counters(), None]
NO_NAMES = ["a.com:80", "http://a.com", "a.com/", "", "*.", "a.*", "*x", "**", "::1", "a b", "ä.de", 7]
NAMES = "allowed_hosts must be names without a port, such as .*, got "


@pytest.mark.parametrize(
    ("error", "rule", "arguments"),
    [
        (ValueError, r"purgatories must be one or more instances, got \[\]", {"purgatories": []}),
        (ValueError, r"allowed_hosts must be one or more names, got \[\]", {"allowed_hosts": []}),
        (TypeError, r"purgatories must be an iterable .* got (<.*>); pass \[\1\]", {"purgatories": Purgatory()}),
        (TypeError, r"buses must be an iterable of instances, got (<.*>); pass \[\1\]", {"buses": LocalBus()}),
        (TypeError, "allowed_hosts must be an iterable of names, got 'localhost'", {"allowed_hosts": "localhost"}),
        (TypeError, "buses must be instances of Bus, got 7", {"buses": [7]}),
        *((TypeError, "purgatories must be instances of Purgatory, Long", {"purgatories": [each]}) for each in NONE),
        *((ValueError, NAMES, {"allowed_hosts": ["localhost", name]}) for name in NO_NAMES),
    ],
)
def test_wrong_argument_is_named(error: type[Exception], rule: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=rule):
        Inspector(**{"purgatories": [Purgatory()], **arguments})
