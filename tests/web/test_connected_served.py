"""Handlers of one's own that hand out jobs to clients that leave, on real servers, and keep none from stopping."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from contextlib import suppress

import httpx
import pytest

from .helpers import Served, read

SERVERS = [
    ("uvicorn-uvloop-httptools", "app_jobs:starlette"),
    ("uvicorn-asyncio-h11", "app_jobs:behind_middleware"),
    ("uvicorn-uvloop-httptools", "app_jobs:fastapi_depends"),
    ("hypercorn-asyncio-0", "app_jobs:starlette"),
    ("hypercorn-uvloop-0", "app_jobs:behind_middleware"),
    ("granian-asyncio", "app_jobs:starlette"),
    ("granian-uvloop", "app_jobs:fastapi_depends"),
    ("aiohttp-asyncio", "app_jobs:aiohttp"),
    ("uvicorn-uvloop-httptools", "app_jobs:one_line"),
    ("uvicorn-asyncio-h11", "app_jobs:one_line_behind"),
    ("hypercorn-asyncio-0", "app_jobs:one_line"),
    ("granian-uvloop", "app_jobs:one_line"),
]
each_server = pytest.mark.parametrize("case", SERVERS, ids="-".join)
CLIENTS, JOBS = 50, 400
#: Seconds in which a server under load notices that a client has left. What it answers before is on the wire. A server
#: that is paused is late once.
NOTICED_WITHIN = 0.25


class Workers:
    """Clients that ask for a job again and again, and leave at random."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[int] = []
        self.left: dict[str, float] = {}
        self.statuses: set[int] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def come(self) -> None:
        name = str(len(self.left) + len(self._tasks))
        self._tasks[name] = asyncio.create_task(self._work(name))

    async def leave(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self.left[name] = time.monotonic()

    def here(self) -> list[str]:
        return list(self._tasks)

    async def _work(self, name: str) -> None:
        async with httpx.AsyncClient(timeout=60, verify=False) as client:  # to load certificates takes 20 ms
            while True:
                answer = await client.get(f"{self.url}/next", params={"client": name})
                self.statuses.add(answer.status_code)
                if answer.json() is not None:
                    self.received.append(answer.json())


async def hand_out(served: Served, workers: Workers) -> dict[int, tuple[str, float]]:
    """Hand out all jobs to workers that come and leave. Returns: the jobs that nobody has received."""
    async with httpx.AsyncClient(timeout=60) as client:
        for job in range(JOBS):
            await client.post(f"{workers.url}/jobs/{job}")
            if job % 2:
                await workers.leave(random.choice(workers.here()))
                workers.come()
        async with asyncio.timeout(30):
            while (state := (await client.get(f"{workers.url}/statistics")).json())["jobs"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # for the last answers
        for name in workers.here():
            await workers.leave(name)
    assert len(state["handed_out"]) == JOBS
    return {int(job): entry for job, entry in state["handed_out"].items() if int(job) not in workers.received}


@each_server
def test_job_is_lost_only_on_the_wire(case: tuple[str, str]) -> None:
    async def run(served: Served) -> None:
        workers = Workers("http://{}:{}".format(*served.address))
        for _ in range(CLIENTS):
            workers.come()
        await asyncio.to_thread(served.wait_for, pending=CLIENTS)
        lost = await hand_out(served, workers)
        late = {job: at - workers.left[client] for job, (client, at) in lost.items()}
        assert sum(seconds > NOTICED_WITHIN for seconds in late.values()) < JOBS / 40, late
        assert len(lost) == len({client for client, _ in lost.values()}) < JOBS / 2  # one each was on the wire
        assert len(workers.received) == len(set(workers.received))
        assert workers.statuses == {200}
        await asyncio.to_thread(served.wait_for, pending=0, keys=0)

    with Served(*case) as served:
        asyncio.run(run(served))


@each_server
def test_request_behind_another_is_answered_after_it(case: tuple[str, str]) -> None:
    with Served(*case) as served:
        served.wait_for(pending=0)
        client = served.send("GET /next?client=first", {"Connection": "keep-alive"})
        served.wait_for(pending=1)
        client.sendall(b"GET /next?client=second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(0.1)
        served.ask("POST /jobs/1")
        served.ask("POST /jobs/2")
        assert read(client).body.count(b" 200 ") == 1  # the second one is in the body of the first


# the server stops


@pytest.mark.parametrize(
    ("server", "app"),
    [
        ("uvicorn-asyncio-h11", "one_line"),
        ("uvicorn-uvloop-httptools", "one_line_behind"),
        ("hypercorn-asyncio-0", "one_line"),
        ("aiohttp-uvloop", "aiohttp"),
    ],
)
def test_middleware_lets_the_server_stop_at_once(server: str, app: str) -> None:
    with Served(server, f"app_jobs:{app}") as served:
        waiting = [served.send("GET /next?client=ann") for _ in range(3)]
        served.wait_for(pending=3)
        served.process.send_signal(signal.SIGTERM)
        for answer in map(read, waiting):
            assert (answer.status, answer.headers["refused"]) == (503, "closed")
        served.process.wait(timeout=10)


def test_server_without_close_on_stop_waits_for_the_handlers() -> None:
    """The control."""
    with Served("uvicorn-asyncio-h11", "app_jobs:starlette", quiet=False) as served:
        waiting = served.send("GET /next?client=ann")
        served.wait_for(pending=1)
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(timeout=1)
        waiting.close()
        served.process.kill()
