"""A queue of jobs: what each app of this folder serves, and what it tells the test.

An ASGI app has the first of these alone; told() has the others, as they do not depend on the framework.

GET /next     waits for a job, and answers with its number; "none" after 300 s
POST /put     a new job; answers with the state
GET /state    "WAITS JOBS HANDED HEARS": the waits, the jobs that nobody has, the jobs that were handed out, and
              whether a stop signal would be heard
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from aiopurgatory import Purgatory

purgatory = Purgatory("jobs")
jobs: list[int] = []
numbers = count(1)
handed = 0


def take() -> int | None:
    return jobs.pop(0) if jobs else None


def put_back(job: int) -> None:
    jobs.append(job)
    purgatory.check_and_complete("jobs", limit=1)


def put() -> str:
    put_back(next(numbers))
    return state()


def state() -> str:
    hears = type(signal.getsignal(signal.SIGTERM)).__name__ == "_Ahead"
    return f"{purgatory.num_delayed} {len(jobs)} {handed} {hears:d}"


async def next_job() -> str:
    """Wait for a job. To be awaited in a block that ends with the client."""
    global handed
    job = await purgatory.wait_for(take, ["jobs"], timeout=300.0, on_undelivered=put_back, default=None)
    handed += job is not None
    return "none" if job is None else str(job)


def told(app: Callable[[Any, Any, Any], Awaitable[None]]) -> Any:
    async def around(scope: Any, receive: Any, send: Any) -> None:
        answer = {"/put": put, "/state": state}.get(scope.get("path", ""))
        if answer is None:
            await app(scope, receive, send)
            return
        body = answer().encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    return around
