"""python benchmarks/bench_http.py memory|rate|latency|stop [COMPETITOR ...]: measure long polls over HTTP.

    memory   bytes of the server's memory for each parked poll
    rate     polls parked, published to and answered per second, and the server's CPU time for each. Each is answered at
             once; with --park, so many seconds later: then ours and "listening" listen for its client's disconnect
    latency  time from posting an event until its poll is answered, with --polls parked on as many topics
    stop     time from SIGTERM until the last of --polls parked polls is answered, and until the server exits; ours
             only, because the others keep their polls waiting

Each server (peers/longpolls.py) is a process of its own, under uvicorn with httptools. Ours runs in the form that is on
the path (PYTHONPATH=build/compiled), which is printed first. The competitors take turns,
--rounds times. Prints a line of JSON for each, then medians, and medians of the rounds' ratios. Client and server share
the machine, so compare the CPU times of rate, not the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from statistics import median
from typing import Any, cast

import uvloop
from buses.member import memory as memory_of
from buses.member import more_files

from aiopurgatory import COMPILED

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A server process."""

    def __init__(self, competitor: str, loop: str, listener: socket.socket) -> None:
        command = [sys.executable, str(HERE / "peers" / "longpolls.py"), competitor, loop, str(listener.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[listener.fileno()])
        self.port = listener.getsockname()[1]

    def cpu(self) -> float:
        """CPU time in seconds, to 10 ms."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def serving(competitor: str, loop: str) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        server = Server(competitor, loop, listener)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


class Connection(asyncio.Protocol):
    """A keep-alive connection. Sends one request at a time, and returns the body of the answer."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = b""
        self.expected = b"HTTP/1.1 200"
        self.answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if end and len(body) == int(length or 0) and self.answer is not None and not self.answer.done():
            assert head.startswith(self.expected), head
            self.buffer = b""
            self.answer.set_result(body)

    def ask(self, method: str, topic: object, known: object = None) -> asyncio.Future[bytes]:
        condition = "" if known is None else f'If-None-Match: "{known}"\r\nPrefer: wait=300\r\n'
        self.transport.write(f"{method} /{topic} HTTP/1.1\r\nHost: x\r\n{condition}\r\n".encode())
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


async def connect(port: int, number: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(number)]


async def park(server: Server, number: int) -> list[Connection]:
    connections = await connect(server.port, number)
    for topic, connection in enumerate(connections):
        connection.ask("GET", topic, 0)
        if topic % 100 == 99:
            await asyncio.sleep(0)
    (last,) = await connect(server.port, 1)
    await last.ask("GET", "last")  # answered after all that came before it
    await asyncio.sleep(0.5)
    return connections


async def memory(server: Server, args: argparse.Namespace) -> dict[str, float]:
    (first,) = await connect(server.port, 1)
    for _ in range(100):
        await first.ask("POST", "warm")
        await first.ask("GET", "warm")
    before = memory_of(process=server.process.pid)
    parked = await park(server, args.polls)
    return {"bytes_per_poll": (memory_of(process=server.process.pid) - before) / len(parked)}


async def rate(server: Server, args: argparse.Namespace) -> dict[str, float]:
    pollers, posters = await connect(server.port, args.pairs), await connect(server.port, args.pairs)
    await posters[0].ask("POST", "first")  # its imports are done
    answered = 0

    async def pair(topic: int, poller: Connection, poster: Connection) -> None:
        nonlocal answered
        for version in range(1, 1_000_000):
            poll = poller.ask("GET", topic, version - 1)
            await asyncio.sleep(args.park)
            posted = poster.ask("POST", topic)
            await posted
            await poll
            answered += 1

    async with asyncio.TaskGroup() as group:
        pairs = [group.create_task(pair(i, *both)) for i, both in enumerate(zip(pollers, posters, strict=True))]
        await asyncio.sleep(0.5)
        start, cpu, before = time.monotonic(), server.cpu(), answered
        await asyncio.sleep(args.seconds)
        seconds, cpu, polls = time.monotonic() - start, server.cpu() - cpu, answered - before
        for task in pairs:
            task.cancel()
    return {"polls_per_second": polls / seconds, "server_cpu_us_per_poll": cpu / polls * 1e6}


async def latency(server: Server, args: argparse.Namespace) -> dict[str, float]:
    parked = await park(server, args.polls)
    posters = await connect(server.port, 64)
    free = asyncio.Queue[Connection]()
    for poster in posters:
        free.put_nowait(poster)
    latencies, versions = list[float](), [0] * args.polls
    posted_at = [0.0] * args.polls

    def answered(topic: int, poll: asyncio.Future[bytes]) -> None:
        latencies.append(time.monotonic() - posted_at[topic])
        versions[topic] += 1
        follow(topic)

    def follow(topic: int, known: int | None = None) -> None:
        poll = parked[topic].answer if known == 0 else parked[topic].ask("GET", topic, versions[topic])
        assert poll is not None
        poll.add_done_callback(lambda poll: None if poll.cancelled() else answered(topic, poll))

    async def post(topic: int) -> None:
        poster = await free.get()
        posted_at[topic] = time.monotonic()
        await poster.ask("POST", topic)
        free.put_nowait(poster)

    for topic in range(args.polls):
        follow(topic, 0)
    order = random.sample(range(args.polls), args.polls)
    start, cpu = time.monotonic(), server.cpu()
    async with asyncio.TaskGroup() as group:
        for event in range(int(args.seconds * args.events)):
            await asyncio.sleep(start + event / args.events - time.monotonic())
            group.create_task(post(order[event % len(order)]))
    seconds = time.monotonic() - start
    await asyncio.sleep(0.5)
    ranked = sorted(latencies)
    return {
        "events_per_second": len(ranked) / seconds,
        **{f"p{share}_ms": ranked[len(ranked) * share // 100] * 1e3 for share in (50, 99)},
        "server_cpu_share": (server.cpu() - cpu) / seconds,
    }


async def stop(server: Server, args: argparse.Namespace) -> dict[str, float]:
    parked = await park(server, args.polls)
    answers = [connection.answer for connection in parked if connection.answer is not None]
    for connection in parked:
        connection.expected = b"HTTP/1.1 503"
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait(answers)
    answered = time.monotonic() - start
    await asyncio.to_thread(server.process.wait)
    return {"answered_ms": answered * 1e3, "exit_ms": (time.monotonic() - start) * 1e3}


MEASURES: dict[str, Callable[[Server, argparse.Namespace], Coroutine[Any, Any, dict[str, float]]]] = {
    "memory": memory,
    "rate": rate,
    "latency": latency,
    "stop": stop,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("competitors", nargs="*", help="default: ours event, for rate also listening")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="uvloop", help="the server's event loop")
    parser.add_argument("--polls", type=int, default=10_000, help="polls parked at once (memory, latency, stop)")
    parser.add_argument("--pairs", type=int, default=64, help="pairs of a poller and a publisher (rate)")
    parser.add_argument("--park", type=float, default=0.0, help="seconds until a poll is answered (rate)")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration (rate, latency)")
    parser.add_argument("--events", type=int, default=1_000, help="events per second (latency)")
    args = parser.parse_args()
    more_files()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    peers = {"stop": [], "rate": ["event", "listening"]}.get(args.measure, ["event"])
    competitors = args.competitors or ["ours", *peers]
    print(json.dumps({"compiled": COMPILED}), flush=True)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in competitors}
    for _ in range(args.rounds):
        for name in competitors:
            with serving(name, args.loop) as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(MEASURES[args.measure](server, args))
            print(json.dumps({"competitor": name, **figures}), flush=True)
            found[name].append(figures)
    first = competitors[0]
    for name in competitors:
        for figure in found[name][0]:
            values = [round_[figure] for round_ in found[name]]
            ratios = [mine[figure] / (value or 1) for mine, value in zip(found[first], values, strict=True)]
            print(f"{name:9} {figure:40} {median(values):12,.1f}   {first} / {name} {median(ratios):.2f}")


if __name__ == "__main__":
    main()
