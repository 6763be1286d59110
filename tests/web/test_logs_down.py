"""Streams and long polls of a log that begin while its server is down. Redis and PostgreSQL are killed, or stopped."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import pytest
from bus.conftest import fixture_of  # type: ignore[import-not-found]
from private_servers import DurableRedis, Server
from streams.conftest import LogPostgres, log_at  # type: ignore[import-not-found]

from aiopurgatory.streams import EventLog
from aiopurgatory.web import EventRoute, LogPolling, LongPollRoute, Policy

from .eventsource import Client
from .polls import until

pytestmark = pytest.mark.slow


server = fixture_of(DurableRedis, LogPostgres)


@pytest.fixture
async def log(server: Server) -> AsyncIterator[EventLog]:
    async with log_at(server.url(), unknown_timeout=1.0) as log:
        yield log


class Outage:
    """Args: how: the signal by which the server is taken away."""

    def __init__(self, server: Server, how: int) -> None:
        self._server, self._how = server, how

    def begin(self) -> None:
        if self._how == signal.SIGKILL:
            self._server.kill()
        else:
            self._server.signal(self._how)

    def end(self) -> None:
        if self._how == signal.SIGKILL:
            self._server.start()
        else:
            self._server.signal(signal.SIGCONT)


@pytest.fixture(params=[signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def outage(request: pytest.FixtureRequest, server: Server) -> Outage:
    return Outage(server, request.param)


@pytest.mark.timeout(90)
async def test_stream_in_an_outage_has_headers_and_heartbeats_at_once(log: EventLog, outage: Outage) -> None:
    topic = f"known-{time.time()}"
    await log.append(topic, "one")
    route = EventRoute(LogPolling(log, Policy(heartbeat=0.5)))
    outage.begin()
    try:
        began = time.monotonic()
        known, unknown = Client(route, topic), Client(route, f"un{topic}")
        await until(lambda: known.status and unknown.status)
        assert (known.status, unknown.status, time.monotonic() - began < 4.5) == (200, 200, True)
        await until(lambda: min(known.comments, unknown.comments) >= 2)
    finally:
        outage.end()
    async with asyncio.timeout(30):
        await known.got(1)
        assert known.data == ["one"]
        await unknown.ended()
    assert [event.kind for event in unknown.events] == ["gone"]
    await known.leave()


@pytest.mark.timeout(90)
async def test_poll_in_an_outage_is_answered_when_its_wait_is_over(log: EventLog, outage: Outage) -> None:
    topic = f"known-{time.time()}"
    await log.append(topic, "one")
    route = LongPollRoute(log)
    outage.begin()
    try:
        polls = [Client(route, name, "wait=2") for name in (topic, f"un{topic}")]
        for poll in polls:
            await poll.ended()
        assert [poll.status for poll in polls] == [503, 503]
    finally:
        outage.end()


@pytest.mark.timeout(90)
async def test_client_of_a_log_that_cannot_start_is_refused_within_5_s(server: Server, outage: Outage) -> None:
    outage.begin()
    log = log_at(server.url(), unknown_timeout=1.0)
    try:
        began = time.monotonic()
        client, poll = Client(EventRoute(log)), Client(LongPollRoute(log), query="wait=2")
        async with asyncio.timeout(20):
            await client.task
            took = time.monotonic() - began
            await poll.task
        assert (client.status, poll.status) == (503, 503)
        assert took < 8.0
    finally:
        outage.end()
        await log.aclose()
