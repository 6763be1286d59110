"""URLs of servers: the parts that messages show, and host names without an answer from DNS."""

from __future__ import annotations

import asyncio
import socket
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("asyncpg")
pytest.importorskip("redis")

from private_servers import Postgres

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.addresses import HostNames, parse
from aiopurgatory.bus.engine import CHANNEL

from .conftest import made
from .servers import bus_on, engine_on
from .waits import until

URLS = [
    "postgresql://user:{}@127.0.0.1:1/db?sslmode=disable",
    "redis://user:{}@127.0.0.1:1/0",
    "redis://:{}@127.0.0.1:1",
    "redis://{}@127.0.0.1:1",
    "postgres://user:{}@",
    "user:{}@127.0.0.1:1/db",
    "redis:user:{}@127.0.0.1:1",
    "//user:{}@127.0.0.1:1",
    "host=127.0.0.1 port=1 password={}",
    "postgresql://127.0.0.1:1/db?sslmode=disable&user=me&password={}",
    "redis://127.0.0.1:1/0?password={}",
    "rediss://user:{}@127.0.0.1:1/0?ssl_cert_reqs=none",
    "unix://user:{}@/nowhere/redis.sock",
    "{}",
]
#: Pieces long enough to be no accident, between characters that mean something in a URL.
PIECE = st.from_regex(r"(?:[a-z]|[0-9]){12}", fullmatch=True)
BETWEEN = st.sampled_from([*"/?#@:;,=+%[]{}|\\ \t\n'\"\u2100", "://", "%zz", "[::1]", ""])


@settings(deadline=None)
@given(st.sampled_from(URLS), PIECE, BETWEEN, PIECE, BETWEEN)
def test_message_password_anywhere_is_not_shown(url: str, one: str, first: str, other: str, second: str) -> None:
    """Not in any error of a bus, and not in its causes, as far as they can be printed."""
    try:
        asyncio.run(bus_on(url.format(one + first + other + second), [], timeout=1.0).start())
    except (ValueError, BusConnectError) as exc:
        shown = "".join(traceback.format_exception_only(exc)) + "".join(map(str, causes(exc)))
    assert one not in shown
    assert other not in shown


def causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield the causes that a traceback of *exc* prints."""
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is not None:
        yield cause
        yield from causes(cause)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:pa/ss@host/db", "postgresql://user:12#34@host/db", "postgresql://user:12?34@host/db",
        "postgresql://user:p@ss@host/db", "host=127.0.0.1 password=secret", "user:secret@host/db", "", "http://host",
        "postgresql://user:p[a]ss@host/db", "postgresql://user:x@host:port/db", "postgresql://user:\u2100@host/db",
        "unix://user:pa/ss@/run/redis.sock", "unix://user:secret@/run/a@b.sock", "postgresql:///ss@host",
    ],
)  # fmt: skip
def test_parse_what_is_ambiguous_is_refused_unseen(url: str) -> None:
    with pytest.raises(ValueError, match=r"dsn must be a URL such as postgresql://a; in user, .* not shown") as caught:
        parse(url, "dsn", "postgresql://a", ["postgresql", "unix"])
    assert not [part for part in ("ss@", "34", "secret", "user:") if part in str(caught.value)]
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "where", "hosts"),
    [
        ("redis://user:pa%2Fss@host:6379/0", "host:6379/0", ["host"]),
        ("redis://:a:b@host", "host", ["host"]),
        ("redis://a@host:/0", "host:/0", ["host"]),
        ("redis://[::1]:6379", "[::1]:6379", ["::1"]),
        ("redis://[::1]:2,a:1,b/db?user=x&password=y", "[::1]:2,a:1,b/db", ["::1", "a", "b"]),
        ("redis://[::1]:2,[::2]", "[::1]:2,[::2]", ["::1", "::2"]),
        ("redis://%2Frun%2Fpostgresql/db", "%2Frun%2Fpostgresql/db", ["/run/postgresql"]),
        ("redis:///db?host=/run", "the default host/db", []),
        ("REDIS://", "the default host", []),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock", []),
        ("unix:///run/redis@1/a@b.sock?password=x", "/run/redis@1/a@b.sock", []),
    ],
)
def test_parse_valid_url_shows_where(url: str, where: str, hosts: list[str]) -> None:
    assert parse(url, "url", "", ["redis", "unix"]) == (where, hosts)


def test_parse_ipv6_after_a_name_is_taken_or_names_the_rule() -> None:
    url = "redis://user:secret@a:1,[::1]:2"
    try:
        urlsplit(url)
    except ValueError:  # from Python 3.13.2 on
        with pytest.raises(ValueError, match="url must have an IPv6 address as its first host") as caught:
            parse(url, "url", "", ["redis"])
        assert "secret" not in str(caught.value)
    else:
        assert parse(url, "url", "", ["redis"])[1] == ["a", "::1"]


def test_bus_on_options_of_no_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="url must have only options of redis-py's connections"):
        engine_on("redis://127.0.0.1?socket_timeot=5")
    with pytest.raises(ValueError, match="dsn must have options such as"):
        engine_on("postgresql://127.0.0.1?sslmode")


@pytest.mark.parametrize("url", ["postgresql://host", "redis://host"])
def test_explain_error_without_a_text_names_its_class(url: str) -> None:
    assert "ConnectionResetError; check that it is running" in engine_on(url).explain(ConnectionResetError())


class HangingDns:
    """Answers for one.invalid alone until released, and counts the threads that wait for others."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.waiting = self.most = 0

    def __call__(self, host: str, *arguments: Any, **options: Any) -> Any:
        if host == "one.invalid":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.released.wait(30.0)
        self.waiting -= 1
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HangingDns]:
    dns = HangingDns()
    monkeypatch.setattr(socket, "getaddrinfo", dns)
    yield dns
    dns.released.set()
    await until(lambda: dns.waiting == 0)


async def attempts(url: str, count: int) -> None:
    """Try to connect, and give up soon, as a bus does."""
    engine = engine_on(url)
    for _ in range(count):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await engine.open([CHANNEL], lambda _: None, lambda _: None)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.invalid:1/db",
        "postgresql:///db?host=db.invalid",
        "redis://db.invalid:1",
        "postgresql://one.invalid:1,two.invalid:1/db",
    ],
)
async def test_open_dns_hangs_takes_one_thread(url: str, dns: HangingDns) -> None:
    await attempts(url, 8)
    assert dns.most == 1
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5.0) == "free"


async def test_addresses_answered_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        return [(0, 0, 0, "", (address, 0)) for address in ("::1", "127.0.0.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    names = HostNames()
    for _ in range(2):
        assert await names.addresses("a.invalid") == ["::1", "127.0.0.1"]
        assert await names.addresses("127.0.0.2") == ["127.0.0.2"]
    assert asked == ["a.invalid"] * 2


async def test_open_first_address_refuses_uses_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(names: HostNames, host: str) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    monkeypatch.setattr(HostNames, "addresses", both)
    with made(Postgres) as server:
        async with bus_on(server.url().replace("127.0.0.1", "db.invalid"), []) as bus:
            assert bus.statistics().connected


@contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """A host without an answer, as one without power: its queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((address, port), backlog=0))
        for _ in range(3):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listener.getsockname())
        yield


@pytest.mark.parametrize("hosts", ["127.0.0.9:{0},127.0.0.1:{0}", "db.invalid:{0}"], ids=["hosts", "addresses"])
async def test_open_first_address_is_silent_uses_the_next(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(names: HostNames, host: str) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"] if host == "db.invalid" else [host]

    monkeypatch.setattr(HostNames, "addresses", addresses)
    with made(Postgres) as server, silent("127.0.0.9", server.port):
        url = server.url().replace(f"127.0.0.1:{server.port}", hosts.format(server.port))
        async with bus_on(url, [], timeout=9.0) as bus:
            assert bus.statistics().connected


async def test_addresses_thread_did_not_start_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thread(threading.Thread):
        failures = 1

        def start(self) -> None:
            if Thread.failures:
                Thread.failures -= 1
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr("aiopurgatory.bus.addresses.Thread", Thread)
    names = HostNames()
    with pytest.raises(RuntimeError, match="can't start"):
        await names.addresses("localhost")
    assert await asyncio.wait_for(names.addresses("localhost"), 5.0)


async def test_addresses_look_up_that_fails_in_any_way_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(MemoryError):
        await asyncio.wait_for(HostNames().addresses("a.invalid"), 5.0)
