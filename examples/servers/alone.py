"""Lets the examples of this folder run by themselves: a private Redis, and web servers on free ports."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

sys.path.append(str(Path(__file__).resolve().parents[1]))

from private_servers import Redis

__all__ = ["Redis", "serving"]


@asynccontextmanager
async def serving(*apps: Any) -> AsyncIterator[list[str]]:
    """Serve each of *apps* on a free port of 127.0.0.1. Yields: their addresses."""
    addresses = []
    async with asyncio.TaskGroup() as group:
        servers, serving = [], []
        for app in apps:
            listener = socket.create_server(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10))
            servers.append(server)
            serving.append(group.create_task(server.serve([listener])))
            addresses.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
        try:
            while not all(server.started for server in servers):  # noqa: ASYNC110 uvicorn has no event for it
                await asyncio.sleep(0.01)
            yield addresses
        finally:
            for server in servers:
                server.should_exit = True
            await asyncio.wait(serving)  # the group would cancel them after an error, and uvloop then waits for ever
