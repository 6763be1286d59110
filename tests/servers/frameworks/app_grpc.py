"""grpc.aio: python -m frameworks.app_grpc PORT. It cancels the handler of a client that leaves."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import grpc

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import close_on_stop

from . import jobs


async def next_job(request: bytes, context: Any) -> bytes:
    try:
        return (await jobs.next_job()).encode()
    except (PurgatoryClosedError, PurgatoryFullError) as exc:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(exc))
        raise


async def put(request: bytes, context: Any) -> bytes:
    return jobs.put().encode()


async def state(request: bytes, context: Any) -> bytes:
    return jobs.state().encode()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    methods = {"next": next_job, "put": put, "state": state}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("jobs", handlers)])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    async with jobs.purgatory:
        close_on_stop(jobs.purgatory)
        await server.start()
        await stop.wait()
        await server.stop(grace=10.0)


asyncio.run(main())
