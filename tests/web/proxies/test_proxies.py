"""Long polls through real proxies, with the configurations of docs/proxies.md."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Iterator

import pytest

from ..helpers import Leave, Served, read
from .programs import LONG, Apache, HAProxy, Nginx, Proxy, ends

APP = ("uvicorn-asyncio-h11", "proxies.app:starlette")
#: How long each proxy on the page waits for the app, in its words.
TIMEOUT = {Nginx: "30s", HAProxy: "30s", Apache: "ProxyTimeout 30"}

each = pytest.mark.parametrize("proxy", TIMEOUT, indirect=True, scope="module")
on_apache = pytest.mark.parametrize("proxy", [Apache], indirect=True, scope="module")
each_that_hears = pytest.mark.parametrize("proxy", [Nginx, HAProxy], indirect=True, scope="module")
each_kind = pytest.mark.parametrize("kind", TIMEOUT)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(*APP) as served:
        served.wait_for(pending=0)  # it has started
        yield served


@pytest.fixture(scope="module")
def proxy(request: pytest.FixtureRequest, served: Served) -> Iterator[Proxy]:
    with request.param(served.address) as proxy:
        yield proxy


def patience(kind: type[Proxy], seconds: int) -> dict[str, str]:
    """The change that lets a proxy wait for *seconds*."""
    return {TIMEOUT[kind]: TIMEOUT[kind].replace("30", str(seconds))}


@each
def test_poll_parked_is_answered_by_publishing(proxy: Proxy, served: Served, topic: str) -> None:
    with ends(served, completed=3):
        polls = [proxy.poll(topic, LONG) for _ in range(3)]
        served.wait_for(pending=3)
        assert proxy.ask(f"POST /polls/{topic}").status == 200
        assert [(answer.status, "etag" in answer.headers) for answer in map(read, polls)] == [(200, True)] * 3


@each_that_hears
def test_poll_of_client_that_leaves_ends_at_once(proxy: Proxy, served: Served, leave: Leave, topic: str) -> None:
    with ends(served, cancelled=1):
        poll = proxy.poll(topic, LONG)
        served.wait_for(pending=1)
        leave(poll)


@pytest.mark.parametrize(("changes", "late"), [({}, False), ({"option http-no-delay": ""}, True)], ids=["page", "less"])
def test_haproxy_passes_events_on_at_once(served: Served, changes: dict[str, str], late: bool, topic: str) -> None:
    with HAProxy(served.address, changes) as proxy:
        stream = proxy.send(f"GET /events/{topic}")
        received = stream.recv(65536)
        while b"data: " not in received:
            received += stream.recv(65536)
        times: list[float] = []
        for number in range(1, 6):
            start = time.monotonic()
            served.ask(f"POST /polls/{topic}")
            received = b""
            while b"id: %d" % number not in received:
                received += stream.recv(65536)
            times.append(time.monotonic() - start)
        assert (min(times) > 0.1) is late
        stream.close()
        served.wait_for(pending=0)


@pytest.mark.parametrize(
    ("place", "since"),
    [("", (3, 3)), ("\nbackend app\n    option abortonclose\n", (2, 9))],
    ids=["nowhere", "in_backend"],
)
def test_haproxy_without_abortonclose_in_defaults_may_hear_no_leave(
    served: Served, place: str, since: tuple[int, ...], topic: str
) -> None:
    changes = {"option abortonclose": ""} | ({"\nbackend app\n": place} if place else {})
    with HAProxy(served.address, changes) as proxy:
        hears = proxy.version() >= since
        with ends(served, expired=not hears, cancelled=hears):
            poll = proxy.poll(topic, LONG if hears else 4)
            served.wait_for(pending=1)
            poll.close()


@on_apache
def test_apache_hears_no_leave(proxy: Proxy, served: Served, topic: str) -> None:
    with ends(served, expired=1, cancelled=0):
        poll = proxy.poll(topic, 4)
        served.wait_for(pending=1)
        poll.close()


@on_apache
def test_client_that_comes_back_ends_its_older_poll(proxy: Proxy, served: Served, topic: str) -> None:
    failed = served.statistics()["failed"]
    with ends(served, completed=1, failed=1):
        left = proxy.poll(topic, LONG, query="&client=7")
        served.wait_for(pending=1)
        left.close()
        back = proxy.poll(topic, LONG, query="&client=7")
        served.wait_for(pending=1, failed=failed + 1)
        served.ask(f"POST /polls/{topic}")
        assert read(back).status == 200


@pytest.mark.slow
@each_kind
def test_polls_with_wait_equal_to_the_proxys_timeout_end_in_304(kind: type[Proxy], served: Served, topic: str) -> None:
    with kind(served.address, patience(kind, 1)) as proxy:
        tries = ([proxy.poll(topic, 1) for _ in range(20)] for _ in range(3))  # more than one if the app is paused
        assert any([read(poll).status for poll in polls] == [304] * 20 for polls in tries)


@pytest.mark.slow
@each_kind
def test_poll_with_wait_beyond_the_proxys_timeout_ends(kind: type[Proxy], served: Served, topic: str) -> None:
    with kind(served.address, patience(kind, 1)) as proxy, ends(served, cancelled=1):
        assert read(proxy.poll(topic, LONG)).status == (502 if kind is Apache else 504)


@pytest.mark.slow
def test_haproxy_timeout_of_client_does_not_end_a_poll(served: Served, topic: str) -> None:
    with HAProxy(served.address, {"timeout client 30s": "timeout client 2500ms"}) as proxy:
        assert read(proxy.poll(topic, 4)).status == 304


@each_kind
def test_server_that_stops_answers_each_parked_poll_503(kind: type[Proxy], topic: str) -> None:
    with Served(*APP) as served, kind(served.address) as proxy:
        polls = [proxy.poll(topic, LONG) for _ in range(5)]
        served.wait_for(pending=5)
        served.process.send_signal(signal.SIGTERM)
        for answer in map(read, polls):
            assert (answer.status, answer.headers["retry-after"], answer.headers["refused"]) == (503, "2", "closed")


@pytest.mark.parametrize(
    ("kind", "changes", "encoding", "tag"),
    [
        (Nginx, {}, "gzip", 'W/"{}"'),
        (HAProxy, {}, "gzip", 'W/"{}"'),
        (Apache, {}, "gzip", '"{}-gzip"'),
        (Apache, {"DEFLATE": "BROTLI_COMPRESS"}, "br", '"{}-br"'),
    ],
)
def test_poll_that_resumes_from_a_compressed_answer_waits(
    served: Served, kind: type[Proxy], changes: dict[str, str], encoding: str, tag: str, topic: str
) -> None:
    with kind(served.address, changes) as proxy:
        first = read(proxy.poll(topic, LONG, known=None))
        assert (first.headers["etag"], first.headers["content-encoding"]) == (tag.format(0), encoding)
        with ends(served, completed=1):
            poll = proxy.poll(topic, LONG, known=first.headers["etag"])
            served.wait_for(pending=1)
            served.ask(f"POST /polls/{topic}")
            assert read(poll).headers["etag"] == tag.format(1)


@each
def test_app_is_told_the_address_of_the_client(proxy: Proxy) -> None:
    assert b"127.0.0.2" in proxy.ask("GET /polls/any/address", host="127.0.0.2").body


def test_nginx_with_a_cache_lets_no_poll_wait_unless_it_is_off(served: Served, topic: str) -> None:
    def status(changes: dict[str, str]) -> int:
        caching = "proxy_cache_path cache keys_zone=zone:1m;\n    proxy_cache zone;\n    upstream app {"
        with Nginx(served.address, {"upstream app {": caching, **changes}) as proxy:
            return read(proxy.poll(topic, 0.1)).status

    assert status({}) == 304
    assert status({"proxy_cache off;": ""}) == 200


def test_nginx_has_places_for_half_as_many_polls_as_connections(served: Served, topic: str) -> None:
    with Nginx(served.address, {"worker_connections 8192": "worker_connections 64"}) as proxy, ends(served):
        polls = [proxy.poll(topic, LONG) for _ in range(60)]
        while served.statistics()["pending"] + len(refused := select.select(polls, [], [], 0)[0]) < 60:
            time.sleep(0.01)
        assert 28 <= len(refused) <= 40
        for poll in polls:
            poll.close()


@pytest.mark.parametrize(("changes", "made"), [({}, 1), ({'Connection "";': "Connection close;"}, 10)])
def test_nginx_asks_on_one_connection_if_it_keeps_some(served: Served, changes: dict[str, str], made: int) -> None:
    with Nginx(served.address, {"proxy_set_header X-Forwarded-For $remote_addr;": "", **changes}) as proxy:
        assert len({proxy.ask("GET /polls/any/address").body for _ in range(10)}) == made


def test_apache_has_places_for_as_many_polls_as_threads(served: Served, topic: str) -> None:
    few = {"ThreadsPerChild 64": "ThreadsPerChild 5", "ServerLimit 32": "ServerLimit 1", "Workers 2048": "Workers 5"}
    with Apache(served.address, few) as proxy, ends(served, completed=5):
        polls = [proxy.poll(topic, LONG) for _ in range(5)]
        served.wait_for(pending=5)
        other = proxy.send("GET /polls/any/address")
        assert select.select([other], [], [], 0.3)[0] == []
        served.ask(f"POST /polls/{topic}")
        assert [read(poll).status for poll in [*polls, other]] == [200] * 6
