"""A server process of the tests: python serve.py SERVER MODULE:FACTORY FD, for granian PORT"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any


def make(app: str) -> Any:
    module, _, factory = app.partition(":")
    return getattr(import_module(module), factory)()


def uvicorn(app: Any, loop: str, http: str, listener: socket.socket, limits: str = "") -> None:
    import uvicorn as server

    options: dict[str, Any] = {
        "": {},
        "recycled": {"limit_max_requests": 20, "timeout_graceful_shutdown": 1},
        "limited": {"limit_concurrency": 11},
    }[limits]
    config = server.Config(
        app, loop=loop, http=http, log_level="error" if limits == "limited" else "warning", **options
    )
    with suppress(KeyboardInterrupt):  # as uvicorn's own command does
        server.Server(config).run(sockets=[listener])


def hypercorn(app: str, loop: str, workers: str, listener: socket.socket) -> None:
    from hypercorn.config import Config
    from hypercorn.run import run

    config = Config()
    config.application_path = f"{app}()"
    config.bind = [f"fd://{listener.fileno()}"]
    config.worker_class = loop
    config.workers = int(workers)
    config.graceful_timeout = 0.5 if workers != "0" else 10.0
    config.backlog = 4096
    config.loglevel = "WARNING"
    config.errorlog = "-"
    run(config)


def aiohttp(app: Any, loop: str, listener: socket.socket) -> None:
    from aiohttp import web

    factory = asyncio.new_event_loop
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    web.run_app(app, sock=listener, handler_cancellation=True, print=None, loop=factory())


def gunicorn(app: str, listener: socket.socket) -> None:
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            settings = {"bind": f"fd://{listener.fileno()}", "worker_class": "uvicorn_worker.UvicornWorker"}
            for name, value in {**settings, "loglevel": "critical", "control_socket_disable": True}.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            return make(app)

    Application().run()


def granian(app: str, loop: str, port: int, backpressure: int | None = None) -> None:
    from granian import Granian
    from granian.constants import Interfaces, Loops

    Granian(
        app,
        "127.0.0.1",
        port,
        interface=Interfaces.ASGI,
        loop=Loops(loop),
        factory=True,
        log_enabled=False,
        workers_kill_timeout=8,
        backpressure=backpressure,
    ).serve()


def main() -> None:
    server, app, number = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name, *how = server.split("-")
    if name == "granian":
        granian(app, how[0], int(number), int(how[1]) if how[1:] else None)
        return
    listener = socket.socket(fileno=int(number))
    if name == "uvicorn":
        uvicorn(make(app), how[0], how[1], listener, *how[2:])
    elif name == "thread":
        thread = Thread(target=uvicorn, args=(make(app), how[0], how[1], listener))
        thread.start()
        thread.join()
    elif name == "hypercorn":
        hypercorn(app, how[0], how[1], listener)
    elif name == "gunicorn":
        gunicorn(app, listener)
    else:
        aiohttp(make(app), how[0], listener)


if __name__ == "__main__":
    main()
