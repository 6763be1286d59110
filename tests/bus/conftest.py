"""A server of each kind for the whole run, and a private one for tests that break it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import pytest
from private_servers import Server
from streams.virtual import VirtualLoop  # type: ignore[import-not-found]

from .servers import KINDS

Kind = TypeVar("Kind", bound=Server)


def made(kind: Callable[..., Kind], *arguments: Any) -> Kind:
    """Start a server. Without its program, or the library of its clients, the test is skipped."""
    pytest.importorskip("redis" if kind.kind == "redis" else "asyncpg")  # type: ignore[attr-defined]
    try:
        return kind(*arguments)
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")


def fixture_of(*kinds: type[Kind], scope: Literal["session", "module", "function"] = "module") -> Any:
    """A fixture with a server, of each of the *kinds*."""

    @pytest.fixture(scope=scope, params=kinds, ids=[kind.kind for kind in kinds])
    def server(request: pytest.FixtureRequest) -> Iterator[Kind]:
        with made(request.param) as server:
            yield server

    return server


#: It stays up.
server = fixture_of(*KINDS.values(), scope="session")
#: It is to be killed and stopped.
own_server = fixture_of(*KINDS.values(), scope="function")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Run tests once if they use several processes, which have their own loops, or mostly wait."""
    once = (
        "test_processes",
        "test_fault_of",
        "refused",
        "says_what_to_do",
        "killed",
        "fork_both",
        "many_waiters",
    )
    if "test_timers" in item.nodeid or "engine_hangs" in item.nodeid:
        return {"virtual": VirtualLoop}
    return {"asyncio": asyncio.new_event_loop} if any(name in item.nodeid for name in once) else None
