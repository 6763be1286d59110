"""Uses of the public API that mypy and pyright must accept, with the types they must infer, or must refuse: an
"ignore" that is not needed is also an error. Checked, never run.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, assert_type

from starlette.applications import Starlette

from aiopurgatory import (
    Clock,
    DelayedOperation,
    Following,
    GoneError,
    NotFoundError,
    Observer,
    Outcome,
    Purgatory,
    PurgatoryClosedError,
    Statistics,
)
from aiopurgatory.operations import (
    Feed,
    Generation,
    Heartbeats,
    JoinBarrier,
    Replicas,
    SourceError,
    Thresholds,
    fetch,
    produce,
)
from aiopurgatory.streams import (
    EndedError,
    Event,
    EventLog,
    Follow,
    LogStatistics,
    MemoryLog,
    Run,
    StoreDownError,
    StoreError,
)
from aiopurgatory.streams.store import Change, Commit, Page, Store
from aiopurgatory.testing import ManualClock
from aiopurgatory.timer import Timer, TimerTask
from aiopurgatory.web import LongPolling, LongPollRoute, PurgatoryMiddleware, while_connected
from aiopurgatory.web.inspector import Inspector


class DelayedFetch(DelayedOperation[list[bytes]]):
    __slots__ = ("min_bytes",)

    def __init__(self, min_bytes: int, timeout: float) -> None:
        super().__init__(timeout)
        self.min_bytes = min_bytes

    def try_complete(self) -> bool:
        return self.min_bytes == 0 and self.force_complete()

    def on_complete(self) -> list[bytes]:
        return []

    def on_undelivered(self, result: list[bytes]) -> None:
        result.clear()


class Printer(Observer):
    def ended(self, purgatory: Any, op: object, outcome: Outcome, waited: float, lateness: float | None) -> None:
        print(op, outcome, waited, lateness)


async def row() -> str | None:
    return "row"


def begun() -> asyncio.Task[list[int]]:
    return asyncio.create_task(asyncio.sleep(0.0, [7]))


async def newer(since: int | None) -> tuple[int, bytes] | None:
    return None if since == 7 else (7, b"value")


async def use() -> None:
    clock: Clock = ManualClock()
    async with Purgatory("x", clock=clock, observers=[Printer()], max_pending=10) as purgatory:
        assert_type(purgatory, Purgatory)
        op = purgatory.watch(DelayedFetch(1, timeout=1.0), keys=[("orders", 0), "other"])
        assert_type(op, DelayedFetch)
        assert_type(await op, list[bytes])
        assert_type(op.result(), list[bytes])
        assert_type(op.outcome, Outcome | None)
        assert_type(op.timeout, float | None)
        assert_type(await purgatory.wait_for(lambda: 42, ["key"], timeout=1.0), int)
        jobs = ["job"]
        job = purgatory.wait_for(
            lambda: jobs.pop() if jobs else None, ["jobs"], timeout=1.0, on_undelivered=jobs.append
        )
        assert_type(await job, str)
        assert_type(await purgatory.wait_for(lambda: 42, ["key"], timeout=1.0, default=None), int | None)
        assert_type(await purgatory.wait_for(row, ["key"], timeout=1.0), str)
        assert_type(await purgatory.wait_for(lambda: row(), ["key"], timeout=1.0), str)
        assert_type(await purgatory.wait_for(partial(row), ["key"], timeout=1.0, on_undelivered=jobs.append), str)
        assert_type(await purgatory.wait_for(row, ["key"], timeout=1.0, default=None), str | None)
        assert_type(await purgatory.wait_for(begun, ["key"], timeout=1.0), list[int])
        assert_type(await purgatory.wait_for(partial(int, "7"), ["key"], timeout=1.0, retry_on=OSError), int)
        assert_type(await purgatory.wait_for(row, ["key"], timeout=1.0, retry_on=OSError, default=7), str | int)
        assert_type(purgatory.follow(["key"], newer), Following[bytes])
        assert_type(purgatory.follow(["key"], newer, 3, idle=15.0, retry_on=(OSError,)), Following[bytes | None])
        assert_type(purgatory.follow(["key"], newer, every=9.0, timeout=60.0), Following[bytes])
        assert_type(await purgatory.wait_for(row, ["key"], timeout=1.0, every=0.5), str)
        async for changed in purgatory.follow(["key"], newer):
            assert_type(changed, bytes)
        assert_type(purgatory.check_and_complete(("orders", 0)), int)
        assert_type(purgatory.reschedule(op, None), bool)
        assert_type(purgatory.cancel_for_key("other"), list[DelayedOperation[Any]])
        assert_type(purgatory.complete_for_key("other"), list[DelayedOperation[Any]])
        assert_type(purgatory.statistics(), Statistics)


async def collections_of_keys(purgatory: Purgatory, polling: LongPolling[str]) -> None:
    op = DelayedFetch(1, timeout=1.0)
    by_shop: dict[tuple[str, int], str] = {}
    for keys in (("a", 1), {"a"}, frozenset([1]), by_shop, by_shop.keys(), deque([b"a"]), range(3), (k for k in "ab")):
        purgatory.watch(op, keys)
    purgatory.watch(op, "key")  # type: ignore[arg-type]
    purgatory.watch(op, b"key")  # type: ignore[arg-type]
    purgatory.watch(op, 7)  # type: ignore[arg-type]
    purgatory.try_complete_else_watch(op, "key")  # type: ignore[arg-type]
    await purgatory.wait_for(lambda: 42, "key", timeout=1.0)  # type: ignore[call-overload]
    purgatory.follow("key", newer)  # type: ignore[call-overload]
    await polling.answer("room", keys="key")  # type: ignore[arg-type]
    LongPollRoute(polling, keys=lambda request: ["key"])
    LongPollRoute(polling, keys=lambda request: "key")  # type: ignore[arg-type,return-value]
    LongPollRoute(polling, methods="GET")  # type: ignore[arg-type]
    Inspector([purgatory], allowed_hosts="example.com")  # type: ignore[arg-type]
    Replicas(purgatory, "orders", "leader")  # type: ignore[arg-type]
    JoinBarrier(purgatory, "billing", rebalance_timeout=None, expected="ann")  # type: ignore[arg-type]


def timer() -> None:
    wheel = Timer(tick=1, wheel_size=20, start=0)
    assert_type(wheel.add(TimerTask(5)), bool)
    assert_type(wheel.next_expiration(), int | None)
    assert_type(wheel.advance(10, print), int)


class Log:
    def readable(self, position: int) -> int:
        return 0

    def read(self, position: int, size: int) -> bytes:
        return b""


async def ready_made(purgatory: Purgatory, key: tuple[str, int]) -> None:
    feed = Feed(purgatory, key, Log())
    assert_type(feed, Feed[tuple[str, int], bytes])
    assert_type(await feed.fetch(0, min_bytes=1, timeout=30.0), bytes)
    assert_type(feed.key, tuple[str, int])
    positions = {"orders": (Log(), 0)}
    assert_type(await fetch(purgatory, positions, timeout=30.0, max_bytes=None), dict[str, bytes | SourceError])

    replicas = Replicas(purgatory, "orders", ["leader", "follower"], min_in_sync=2)
    assert_type(replicas, Replicas[str])
    assert_type(replicas.in_sync, Mapping[str, int])
    assert_type(replicas.error_for(7), Exception | None)
    assert_type(await replicas.acked(7, timeout=30.0), int)
    thresholds = Thresholds(purgatory, "log")
    assert_type(await thresholds.reached(7, timeout=None), int)
    required = {"orders": (replicas, 7)}
    assert_type(await produce(purgatory, required, timeout=1.0), dict[str, Exception | None])
    assert_type(await produce(purgatory, {1: OSError(), 2: (thresholds, 7)}, timeout=1.0), dict[int, Exception | None])

    barrier = JoinBarrier[str](purgatory, "billing", rebalance_timeout=None, expected=["ann"])
    barrier.expect("bob")
    assert_type(await barrier.join("ann"), Generation[str])
    assert_type(
        Heartbeats(purgatory, "x", timeout=1.0, on_missed=barrier.leave, excused=barrier.is_waiting), Heartbeats[str]
    )


async def streams(store: Store) -> None:
    async with MemoryLog(name="answers", keep_events=100, max_listeners=10, observers=[Printer()]) as log:
        assert_type(log, MemoryLog)
        assert_type(log.statistics(), LogStatistics)
        assert_type(log.purgatory, Purgatory)
        async with log.run("answers/7", lease=5.0, resume=True) as run:
            assert_type(run, Run)
            assert_type(await run.append("text", "token"), str)
            assert_type(run.last_id, str | None)
            await run.end("stopped")
        assert_type(await log.append("chat", "hello", id="order 7", timeout=1.0), str)
        assert_type(await log.end("chat", "closed"), str)
        assert_type(await log.last_id("chat"), str | None)
        async for event in log.follow("answers/7", after=None):
            assert_type(event, Event)
            assert_type((event.id, event.data, event.name, event.is_end), tuple[str, str, str | None, bool])
            assert_type(event.sse(), bytes)
        async with log.follow("chat") as events:
            assert_type(events, Follow)
            assert_type(await anext(events), Event)
            await events.aclose()
        try:
            await anext(log.follow("chat", "k3f9xq2p-17"))
        except GoneError as exc:
            assert_type(exc.after, str | None)
        except (NotFoundError, EndedError, StoreDownError, StoreError, PurgatoryClosedError):
            pass
    other: EventLog = EventLog(store, keep_bytes=1 << 20, keep_seconds=3_600, window_bytes=0, unknown_timeout=1)
    async with other.lifespan():
        await other.aclose()


class EmptyStore:
    """A store, by its shape."""

    error = None

    async def open(self, notify: Callable[[str, Change | None], object], notify_all: Callable[[], object]) -> None: ...

    async def aclose(self) -> None: ...

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        return Page("", "", 0.0, 0.0, "", [])

    async def commit(self, topic: str, commit: Commit) -> Page:
        return Page(commit.version, commit.state, 0.0, 0.0, commit.server, [])


def stores() -> Store:
    return EmptyStore()


class Memory:
    def version(self, resource: str, /) -> str:
        return "1"

    def read(self, resource: str, since: str | None, version: str, /) -> bytes:
        return b""


class Rows:
    async def version(self, resource: int, /) -> str:
        return "1"

    async def read(self, resource: int, since: str | None, version: str, /) -> bytes | tuple[str, bytes]:
        return version, b""


def sources(purgatory: Purgatory) -> None:
    assert_type(LongPolling(purgatory, Memory()), LongPolling[str])
    assert_type(LongPolling(purgatory, Rows()), LongPolling[int])


async def block_of_a_handler(app: Starlette, purgatory: Purgatory) -> int:
    app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
    PurgatoryMiddleware(app, purgatory)
    async with while_connected():
        return await purgatory.wait_for(lambda: 7, ["key"], timeout=None)
