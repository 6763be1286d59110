"""The hosts of the page, and the origins that may read it. Pages of other sites may not."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from aiopurgatory.web.inspector import Inspector
from aiopurgatory.web.inspector.app import Hosts

from .helpers import get, polls_of, serve

LOOPBACK = ["localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "a.b.localhost:8000"]
ELSEWHERE = ["example.com:8000", "localhost.example.com", "127.0.0.1.example.com", "notlocalhost", "127.0.0.2", "[::2]"]
NO_NAMES = ["", ":80", "::1", "[::1", "::1]", "[::1]x", "*"]
MORE_THAN_NAMES = ["localhost:x", "localhost:1:2", "x@localhost", "localhost/"]
REPEATED: list[list[str]] = [[], ["localhost", "localhost"], ["localhost", "example.com"]]


@pytest.mark.parametrize("host", [*LOOPBACK, *ELSEWHERE, *NO_NAMES, *MORE_THAN_NAMES, *REPEATED], ids=str)
def test_only_loopback_names_are_allowed_by_default(host: Any) -> None:
    assert Hosts(Hosts.LOOPBACK).allow(host if isinstance(host, list) else [host]) is (host in LOOPBACK)


@pytest.mark.parametrize("path", ["/", "/state", "/search?key=x", "/nothing"])
async def test_other_host_is_refused_and_told_the_parameter(inspector: Inspector, port: int, path: str) -> None:
    answer = await get(port, path, host="rebound.example.com:8000")
    assert answer.status == 400
    assert answer.body == (
        b"The host 'rebound.example.com:8000' is not allowed here. To allow it, add it to the Inspector's allowed_hosts"
    )
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not polls_of(inspector).is_open


@pytest.mark.parametrize(
    ("allowed", "host", "holds"),
    [
        (["example.com"], "example.com", True),
        (["Example.com"], "eXample.com:443", True),
        (["example.com"], "www.example.com", False),
        (["*.example.com"], "www.example.com", True),
        (["*.example.com"], "a.b.example.com:80", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], ".example.com", False),
        (["*.example.com"], "badexample.com", False),
        (["example.com", "[2001:DB8::1]"], "[2001:db8::1]:8000", True),
        (["my_host-1"], "my_host-1", True),
        (("example.com",), "localhost", False),
        (["*"], "example.com", True),
        (["*"], "", True),
        (["*"], "a host/as none should be", True),
    ],
)
def test_allowed_hosts_are_names_and_patterns(allowed: Any, host: str, holds: bool) -> None:
    assert Hosts(allowed).allow([host]) is holds


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://127.0.0.1", "sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"},
    {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
    {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
    {"sec_fetch_site": "cross-site"},
]
OWN: list[dict[str, str]] = [
    {},
    {"origin": "http://127.0.0.1"},
    {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"},
    {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
    {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
]


@pytest.mark.parametrize("path", ["/", "/state", "/search?key=x"])
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_other_origin_reads_nothing_even_if_cors_allows_it(
    inspector: Inspector, headers: dict[str, str], path: str
) -> None:
    allowed = Middleware(CORSMiddleware, allow_origins=["*"], allow_headers=["*"])
    async with serve(inspector, allowed) as port:
        answer = await get(port, path, **headers)
        assert (answer.status, answer.body) == (403, b"Pages of other origins may not read this page")
        assert not polls_of(inspector).is_open


@pytest.mark.parametrize("headers", OWN, ids=str)
async def test_own_page_and_links_to_it_are_served(port: int, headers: dict[str, str]) -> None:
    assert (await get(port, "/", **headers)).status == 200
