"""Many listeners, and many topics: no loop iteration is long, and memory has its bounds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from sys import getsizeof

import pytest

from aiopurgatory.streams import Event, EventLog, MemoryLog
from aiopurgatory.streams.tail import EVENT_SIZE, Window, Windows
from aiopurgatory.testing.manual_clock import settle

from .conftest import until
from .faulty import FaultyStore


class Stalls:
    """Measures the longest iteration of the loop, in time of this thread: other processes do not count.

    Nor do collections of garbage, which take longer the more tests have run before.
    """

    def __init__(self) -> None:
        self._longest = self._begin = self._last = 0.0
        self.begin()
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self._longest = max(self._longest, now - self._last)
            self._last = now

    def begin(self) -> None:
        gc.disable()
        self._longest = 0.0
        self._begin = self._last = time.thread_time()

    def share(self) -> float:
        """Of all work since begin(), the part that was in the longest iteration. All at once, it is more than half."""
        return self._longest / (self._last - self._begin)

    def stop(self) -> None:
        gc.enable()
        self._task.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(("listeners", "topics"), [(10_000, 1), (5_000, 5_000)], ids=["event", "gap"])
async def test_crowd_of_listeners_stalls_nobody(listeners: int, topics: int) -> None:
    """An event for all of them, or a gap, after which every topic may have changed."""
    store = FaultyStore()
    async with EventLog(store) as log:
        for number in range(topics):
            await log.append(f"x{number}", "a")
        got = 0

        async def listen(number: int) -> None:
            nonlocal got
            async for _ in log.follow(f"x{number % topics}"):
                got += 1

        tasks = [asyncio.create_task(listen(number)) for number in range(listeners)]
        await until(lambda: got == listeners, 50.0)
        await settle(lambda: True)
        assert log.statistics().topics == topics
        stalls = Stalls()
        await asyncio.sleep(0.05)
        stalls.begin()
        before = log.statistics().reads
        if topics == 1:
            await log.append("x0", "b")
            await until(lambda: got == 2 * listeners, 50.0)
            assert log.statistics().reads == before
        else:
            store.notify_all()
            store.notify_all()
            await until(lambda: log.statistics().reads >= before + topics, 50.0)
            assert log.statistics().reads <= before + topics + 100
        stalls.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert stalls.share() < 0.25
        found = log.statistics()
        assert (found.listeners, found.topics, found.window_bytes) == (0, 0, 0)


async def test_window_bytes_bound_all_topics() -> None:
    async with MemoryLog(window_bytes=50_000) as log:
        follows = [log.follow(f"x{number}") for number in range(20)]
        for number in range(20):
            await log.append(f"x{number}", "begin")
        for follow in follows:
            await anext(follow)
        for size in (10, 5_000, 100):
            for _ in range(20):
                for number in range(20):
                    await log.append(f"x{number}", "x" * size)
                    await asyncio.sleep(0)
                    assert log.statistics().window_bytes <= 50_000
        # Listeners that are behind get everything, nevertheless.
        for follow in follows:
            assert [len((await anext(follow)).data) for _ in range(60)] == [10] * 20 + [5_000] * 20 + [100] * 20
            await follow.aclose()
        assert log.statistics().window_bytes == 0


def test_windows_drop_from_each_in_turn() -> None:
    size = 2 * getsizeof("x" * 10) + EVENT_SIZE
    windows = Windows(10 * size)  # ten events
    first, second = Window(), Window()
    for number in range(20):
        windows.add(Event(f"e-{number}", "x" * 10), (first, second)[number // 10])
        assert windows.size == min(number + 1, 10) * size
    assert len(first.events) >= 1
    assert len(second.events) >= 4


def test_windows_forget_what_they_have_counted() -> None:
    # A driver's C code asks a text for its UTF-8, which the text keeps: from then on, it is larger.
    as_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8
    as_utf8.argtypes = [ctypes.py_object]
    windows, window = Windows(100_000), Window()
    for number in range(100):
        event = Event(f"e-{number}", f"{number}" + "é€" * 500)
        before = getsizeof(event.data)
        windows.add(event, window)
        as_utf8(event.data)
        assert getsizeof(event.data) > before
    assert 90_000 < windows.size <= 100_000
    windows.clear(window)
    assert windows.size == 0


async def test_window_counts_wide_characters() -> None:
    async with MemoryLog() as log, log.follow("x") as follow:
        await log.append("x", "😀" * 1_000)
        await anext(follow)
        assert log.statistics().window_bytes > 8_000


def test_event_is_rendered_once() -> None:
    made = Event("e-1", "a\r\nb\rc\n\u2028", "token")
    assert made.sse() == "event: token\nid: e-1\ndata: a\ndata: b\ndata: c\ndata: \u2028\n\n".encode()
    assert made.sse() is made.sse()
    assert made == Event("e-1", "a\r\nb\rc\n\u2028", "token")


def test_event_that_all_share_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Event("e-1", "x").data = "other"  # type: ignore[misc]
