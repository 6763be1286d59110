"""Servers of the tests that have no command: python serve.py aiohttp-LOOP|thread-LOOP-HTTP MODULE:FACTORY FD"""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib import import_module
from threading import Thread

import uvicorn
from aiohttp import web


def main() -> None:
    server, app, number = sys.argv[1:]
    module, _, factory = app.partition(":")
    made = getattr(import_module(module), factory)()
    listener = socket.socket(fileno=int(number))
    name, loop, *http = server.split("-")
    if name == "thread":
        config = uvicorn.Config(made, loop=loop, http=http[0], log_level="warning")
        thread = Thread(target=uvicorn.Server(config).run, args=([listener],))
        thread.start()
        thread.join()
        return
    new_loop = import_module(loop).new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    web.run_app(made, sock=listener, handler_cancellation=True, print=None, loop=new_loop())


if __name__ == "__main__":
    main()
