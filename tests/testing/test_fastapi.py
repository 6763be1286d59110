"""Testing a long poll by FastAPI's TestClient: the app runs in a thread, and the test is no coroutine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from anyio.from_thread import BlockingPortal

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, until_pending

from .app import make_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like httpx2
    from fastapi.testclient import TestClient


@pytest.fixture
def polls(manual_clock: ManualClock) -> Purgatory:
    return Purgatory("polls", clock=manual_clock)  # the app starts it, in its own event loop


@pytest.fixture
def client(polls: Purgatory) -> Iterator[TestClient]:
    with TestClient(make_app(polls)) as client:
        yield client


@pytest.fixture
def portal(client: TestClient) -> BlockingPortal:
    """Calls functions in the event loop of the app."""
    assert client.portal is not None
    return client.portal


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def test_poll_is_answered_by_the_next_message(
    client: TestClient, portal: BlockingPortal, threads: ThreadPoolExecutor, polls: Purgatory
) -> None:
    poll = threads.submit(client.get, "/messages")
    portal.call(until_pending, polls)  # the request has come through its thread, and is parked
    assert client.post("/messages", params={"text": "hello"}).json() == 1
    assert poll.result(5).json() == ["hello"]


def test_poll_is_answered_204_after_30_seconds(
    client: TestClient,
    portal: BlockingPortal,
    threads: ThreadPoolExecutor,
    polls: Purgatory,
    manual_clock: ManualClock,
) -> None:
    poll = threads.submit(client.get, "/messages")
    portal.call(until_pending, polls)
    portal.call(manual_clock.advance, 30.0)
    assert poll.result(5).status_code == 204
