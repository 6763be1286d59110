"""The HTTP pages of a broker: the live page of its purgatories, and its metrics."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.routing import Mount

from aiopurgatory.web.inspector import Inspector

from .server import Broker


@asynccontextmanager
async def pages(broker: Broker, host: str, port: int) -> AsyncIterator[str]:
    """Serve /purgatory and /metrics of *broker* within the block. Yields: their URL.

    Args: port: to listen on; 0: a free one.

    Raises: OSError: the port is taken.
    """
    shown = Mount("/purgatory", Inspector(broker.purgatories, show_keys=True))
    app = Starlette(routes=[shown, Mount("/metrics", make_asgi_app())])
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    with socket.create_server((host, port)) as listener:
        # Not serve(), which would take over the signals.
        serving = asyncio.create_task(server._serve([listener]))
        try:
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await serving
