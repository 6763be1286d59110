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
    worker = (b"worker", b"%d" % os.getpid())

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], worker]
            await send(message)

        await app(scope, receive, send_named)

    return named


def main() -> None:
    engine, port = ENGINES[sys.argv[1]], sys.argv[2]
    with engine.server() as server:
        print(f"{engine.name}: {server.url()} in {server.folder}; removed at the end", flush=True)
        command = [sys.executable, "-m", "uvicorn", "--workers", str(WORKERS), "--port", port, "--log-level", "warning"]
        command += ["--app-dir", str(Path(__file__).parent), "--factory", "demo_workers_server:create_app"]
        uvicorn = subprocess.Popen(
            command,
            env=os.environ | {EXAMPLE: engine.example, engine.variable: server.url()},
            stdin=subprocess.DEVNULL,
        )
        # Not earlier: a server interrupted during its start could leave files behind.
        threading.Thread(target=stop_with_parent, args=(uvicorn,), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: uvicorn.terminate())
        uvicorn.wait()


def stop_with_parent(uvicorn: subprocess.Popen[bytes]) -> None:
    os.read(0, 1)  # until the parent closes its end of the pipe, or ends
    uvicorn.terminate()


if __name__ == "__main__":
    main()
