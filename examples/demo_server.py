"""The server process of demo.py: the app of longpoll_server.py with the live page at /purgatory, Prometheus metrics at
/metrics, a journal, and an observer that measures the lateness of timeouts.
"""

from __future__ import annotations

import asyncio
import platform
import signal
import socket
import sys
from dataclasses import asdict
from typing import Any

from demo_load import tame_collector
from longpoll_server import Server, create_app, new_event_loop
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import COMPILED, Observer, Outcome
from aiopurgatory.journal import Journal
from aiopurgatory.metrics import Metrics
from aiopurgatory.web.inspector import Inspector


class Lateness(Observer):
    """How late every timeout was, in seconds, and how many were early."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.early = 0

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        if lateness is not None:
            self.seconds.append(lateness)
            self.early += waited < op.timeout - 1e-9  # the rounding error of a float


async def serve(listener: socket.socket, folder: str) -> None:
    lateness = Lateness()
    async with Journal(folder, snapshot_seconds=1.0) as journal:
        app = create_app([lateness, Metrics(), journal])
        add_routes(app, lateness)
        await DemoServer(app).serve(sockets=[listener])


class DemoServer(Server):
    """A server that stops when its stdin ends: the parent has closed its end of the pipe, or is gone."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Only now does every part that must hear SIGTERM listen for it.
        asyncio.get_running_loop().add_reader(0, self.stop)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(0)
        signal.raise_signal(signal.SIGTERM)


def add_routes(app: Starlette, lateness: Lateness) -> None:

    async def report(request: Request) -> Response:
        form = "compiled" if COMPILED else "interpreted"
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        return JSONResponse(
            {
                "statistics": asdict(app.state.polling.purgatory.statistics()),
                "lateness": lateness.seconds,
                "early": lateness.early,
                "runs": f"aiopurgatory {form}, Python {platform.python_version()}, {loop}",
            }
        )

    app.router.routes.append(Route("/report", report))
    app.mount("/purgatory", Inspector([app.state.polling], show_keys=True))
    app.mount("/metrics", make_asgi_app())


def main() -> None:
    tame_collector()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn raises it again when it has stopped
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))


if __name__ == "__main__":
    main()
