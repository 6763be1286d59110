"""A server of each kind for the whole run, and a private one for tests that break it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest
from private_servers import Server

from .servers import KINDS

Kind = TypeVar("Kind", bound=Server)


def made(kind: type[Kind]) -> Kind:
    pytest.importorskip("asyncpg" if kind.kind == "postgres" else "redis")
    try:
        return kind()
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")


@pytest.fixture(scope="session", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that stays up, of each kind."""
    server = made(KINDS[request.param])
    yield server
    server.remove()


@pytest.fixture(params=KINDS)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server to be killed and stopped, of each kind."""
    server = made(KINDS[request.param])
    yield server
    server.remove()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Run tests once if they use several processes, which have their own loops, or mostly wait."""
    once = (
        "test_processes",
        "replay_chaos",
        "test_fault_of",
        "refused",
        "says_what_to_do",
        "killed",
        "fork_both",
        "many_waiters",
    )
    return {"asyncio": asyncio.new_event_loop} if any(name in item.nodeid for name in once) else None
