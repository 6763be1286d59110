"""The server side of demo_workers.py: a private PostgreSQL or Redis, and an example that uses it in three workers.

As a script, it runs both until its stdin is closed or its parent has ended, however that happened. Then it removes
them. The workers are started as a user would start them: ``uvicorn --workers 3``. They serve the example unchanged,
except that each answer names the process that gave it.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from private_servers import Postgres, Redis, Server, program
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WORKERS = 3
EXAMPLE = "DEMO_EXAMPLE"


class Engine(NamedTuple):
    name: str
    server: type[Server]
    example: str
    #: The environment variable from which the example takes the server's address.
    variable: str

    @property
    def is_installed(self) -> bool:
        return program(*self.server.programs) is not None


ENGINES = {
    "postgres": Engine("PostgreSQL", Postgres, "longpoll_postgres", "DATABASE_URL"),
    "redis": Engine("Redis", Redis, "longpoll_redis", "REDIS_URL"),
}


def create_app() -> ASGIApp:
    """The example's app, in a worker process."""
    app: ASGIApp = importlib.import_module(os.environ[EXAMPLE]).app
    return named(app)


def named(app: ASGIApp) -> ASGIApp:
    """Return *app* with the process id in each answer."""
    worker = (b"worker", b"%d" % os.getpid())

    async def named_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], worker]
            await send(message)

        await app(scope, receive, send_named)

    return named_app


def run_workers(app: str, port: str, env: dict[str, str], told: Callable[[], object] = lambda: None) -> None:
    """Run *app* in worker processes until stdin is closed. Args: told: called at each byte on stdin."""
    command = [sys.executable, "-m", "uvicorn", "--workers", str(WORKERS), "--port", port, "--log-level", "warning"]
    command += ["--app-dir", str(Path(__file__).parent), "--factory", app]
    uvicorn = subprocess.Popen(command, env=os.environ | env, stdin=subprocess.DEVNULL)

    def listen() -> None:
        while os.read(0, 1):  # until the parent closes its end of the pipe, or ends
            told()
        uvicorn.terminate()

    # Not earlier: a server interrupted during its start could leave files behind.
    threading.Thread(target=listen, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: uvicorn.terminate())
    uvicorn.wait()


def main() -> None:
    engine, port = ENGINES[sys.argv[1]], sys.argv[2]
    with engine.server() as server:
        print(f"{engine.name}: {server.url()} in {server.folder}; removed at the end", flush=True)
        env = {EXAMPLE: engine.example, engine.variable: server.url()}
        run_workers("demo_workers_server:create_app", port, env)


if __name__ == "__main__":
    main()
