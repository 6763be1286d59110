"""Tornado: python -m frameworks.app_tornado PORT. It tells of a client that leaves by on_connection_close()."""

from __future__ import annotations

import asyncio
import signal
import sys

from tornado.web import Application, RequestHandler

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import close_on_stop

from . import jobs


class Next(RequestHandler):
    waiting: asyncio.Task[str] | None = None

    async def get(self) -> None:
        self.waiting = asyncio.create_task(jobs.next_job())
        try:
            self.write(await self.waiting)
        except (PurgatoryClosedError, PurgatoryFullError):
            self.set_status(503)
            self.set_header("Retry-After", "1")
        except asyncio.CancelledError:  # nobody reads an answer
            self.set_status(499, "left")

    def on_connection_close(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()


class Put(RequestHandler):
    def post(self) -> None:
        self.write(jobs.put())


class State(RequestHandler):
    def get(self) -> None:
        self.write(jobs.state())


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with jobs.purgatory:
        close_on_stop(jobs.purgatory)
        routes = [("/next", Next), ("/put", Put), ("/state", State)]
        server = Application(routes).listen(int(sys.argv[1]), "127.0.0.1")
        await stop.wait()
        server.stop()
        await server.close_all_connections()


asyncio.run(main())
