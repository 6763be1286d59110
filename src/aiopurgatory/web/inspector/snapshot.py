"""Snapshots of purgatories for the live page, and the source of its polls: figures, timing wheels, busiest keys and
their names, oldest operations, and a search.

A snapshot holds the event loop for at most a few milliseconds at a time, however much is pending. It keeps no ended
operation alive.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import re
import reprlib
import secrets
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context
from dataclasses import asdict
from hashlib import blake2b
from heapq import nlargest, nsmallest
from itertools import islice
from math import inf
from operator import itemgetter
from time import perf_counter
from typing import Any, Final

from ...bus import Bus
from ...clock import running_loop
from ...core.kit import NS, Core, core_of, deadline_seconds, is_pending, keys_of, watched_at
from ...purgatory import Purgatory
from ...streams import EventLog
from ..polling import LongPolling

#: Seconds between two snapshots of a purgatory.
REFRESH: Final = 1.0
#: Seconds within which an opened or closed purgatory is noticed.
NOTICE: Final = 0.1
#: The most rows of the history.
HISTORY: Final = 300

#: The statistics in the charts.
CHARTED: Final = ("pending", "completed", "expired", "cancelled", "failed")
#: The most keys that a snapshot visits: those watched longest and, if there are more, NEWEST of the newest.
MAX_KEYS: Final = 20_000
NEWEST: Final = 500
#: Seconds that a snapshot may take of one loop iteration.
TURN: Final = 0.001
#: The most operations visited under each key, oldest first.
PER_KEY: Final = 10
#: Rows of a table.
ROWS: Final = 10
#: A name in the kind of a key.
_NAMED: Final = re.compile("'[^']*'")
#: The most parts of a ring. In a wheel with more buckets, a part shows several.
MAX_PARTS: Final = 120

Row = dict[str, Any]
#: Called with a key, the number of its watchers, and the oldest of them that are pending.
Visit = Callable[[Hashable, int, list[Any]], None]


#: The most characters of a name.
MAX_NAME: Final = 120


class Names(reprlib.Repr):
    """Names keys for the page.

    Args:
        shown: True: a key's name is its ``repr()``, shortened. False: a keyed hash, which does not reveal the key and
            stays the same as long as this object lives.
    """

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.shown = shown
        self.secret = secrets.token_bytes(16)
        self.maxlevel = 3
        self.maxstring = self.maxlong = self.maxother = MAX_NAME

    def of(self, key: Hashable) -> str:
        """The name of *key*, at most MAX_NAME characters. Never raises, even if the key's own methods do."""
        try:
            if self.shown:
                return self.repr(key)[:MAX_NAME]
            number = str(hash(key)).encode()
        except Exception:  # from its own __repr__ or __hash__
            return f"<{kind_of(key)}>"
        return blake2b(number, digest_size=6, key=self.secret).hexdigest()

    def of_kind(self, kind: str) -> str:
        """The kind of a key, as statistics() has it; without the name in it unless keys are shown."""
        return kind if self.shown else _NAMED.sub("str", kind)

    def repr_bytes(self, key: bytes, level: int) -> str:
        return repr(key[: self.maxstring])


def kind_of(thing: object) -> str:
    """The name of the class of *thing*, at most MAX_NAME characters."""
    return type(thing).__qualname__[:MAX_NAME]


def readings(text: str) -> list[Any]:
    """The keys that *text* may mean: the text itself, and its value as a Python literal, hashable or not."""
    found: list[Any] = [text]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for an invalid escape sequence
        found.append(ast.literal_eval(text))
    return found


def take_figures(purgatory: Purgatory, names: Names) -> Row:
    """Return the statistics and the timing wheels: equal to the last ones if nothing has changed.

    Cost: a walk over the buckets.
    """
    core = core_of(purgatory)
    timer = core.deadlines.timer
    state = "open" if purgatory.is_open else "not started" if core.loop.running is None else "closed"
    statistics = asdict(purgatory.statistics())
    statistics["missed_kinds"] = [
        {"kind": kind[:MAX_NAME], "key": names.of_kind(key), "count": count}
        for kind, key, count in statistics["missed_kinds"]
    ]
    rings = [take_ring(wheel) for wheel in timer.wheels]
    timed = len(timer)
    due = timed - sum(statistics["pending_by_level"])
    untimed = purgatory.num_delayed - (timed - statistics["timeouts"])
    return {"state": state, "statistics": statistics, "rings": rings, "due": due, "untimed": untimed}


def take_ring(wheel: Any) -> Row:
    """Return how many tasks each part of *wheel* has, where it has any."""
    counts = [bucket.count for bucket in wheel.buckets]
    filled, parts = Counter[int](), min(wheel.size, MAX_PARTS)
    for place, count in enumerate(counts):
        if count:
            filled[place * parts // wheel.size] += count
    return {
        "level": wheel.level,
        "tick": wheel.tick / NS,
        "size": wheel.size,
        "buckets": len(counts) - counts.count(0),
        "parts": parts,
        "filled": sorted(filled.items()),
    }


def take_hands(purgatory: Purgatory) -> list[float]:
    """Return the position of each wheel's hand, as a fraction of its interval."""
    core = core_of(purgatory)
    timer = core.deadlines.timer
    now = max(core.loop.now(), timer.now)
    return [now % wheel.interval / wheel.interval for wheel in timer.wheels]


async def take_keys(purgatory: Purgatory, names: Names) -> Row:
    """Return the keys with the most watchers, the keys waited for longest, and the oldest pending operations."""
    #: Of each key: its watchers, since when the oldest pending one waits, and the key.
    keys: list[tuple[int, float, Hashable]] = []
    #: By the time of the watch, and a number that tells operations of the same time apart.
    oldest: dict[tuple[float, int], Row] = {}
    latest = inf  # time among those, once there are ROWS of them

    def visit(key: Hashable, count: int, ops: list[Any]) -> None:
        nonlocal latest
        keys.append((count, watched_at(ops[0]) if ops else inf, key))
        for op in ops:
            since = watched_at(op)
            if since >= latest:
                break
            oldest[since, id(op)] = describe(op, names)
            if len(oldest) > ROWS:
                del oldest[max(oldest)]
                latest = max(oldest)[0]

    scope = await visit_in_slices(core_of(purgatory), visit)
    top = nlargest(ROWS, keys, key=itemgetter(0))  # of equal ones, the first
    slowest = nsmallest(ROWS, keys, key=itemgetter(1))
    return {
        "most_watched": [{"key": names.of(key), "watchers": count} for count, _, key in top],
        "slowest": [
            {"key": names.of(key), "watchers": count, "since": since} for count, since, key in slowest if since < inf
        ],
        "oldest": [oldest[since] for since in sorted(oldest)],
        "scope": scope,
    }


async def find(purgatory: Purgatory, names: Names, text: str) -> Row:
    """Return the keys that *text* may mean, and the oldest operations under each."""
    core = core_of(purgatory)
    hits: dict[Hashable, Row] = {}

    def add(key: Hashable, count: int, ops: list[Any]) -> None:
        hits[key] = {"key": names.of(key), "watchers": count, "oldest": [describe(op, names) for op in ops]}

    def add_if_named(key: Hashable, count: int, ops: list[Any]) -> None:
        if len(hits) < ROWS:
            name = names.of(key)
            if text == name or (names.shown and text in name):
                add(key, count, ops)

    for key in readings(text):
        visit_key(core, key, add)
    scope = await visit_in_slices(core, add_if_named)
    return {"hits": list(hits.values()), "scope": scope, "clock": core.loop.time()}


async def visit_in_slices(core: Core, visit: Visit) -> Row:
    """Call *visit* with each key, see visit_key(), in slices of TURN seconds.

    Keys come in the order in which they were first watched, so the first MAX_KEYS have been watched longest without a
    break. The oldest operation is under one of them, and keys with many watchers tend to be among them.

    Returns: the number of keys visited, the number of all keys, and whether some were left out.
    """
    by_key = core.watchers.by_key
    keys = list(islice(by_key, MAX_KEYS))
    partial = len(keys) < len(by_key)
    if partial:
        keys += islice(reversed(by_key), min(NEWEST, len(by_key) - len(keys)))
    stop = perf_counter() + TURN
    for key in keys:
        visit_key(core, key, visit)
        if perf_counter() >= stop:
            await asyncio.sleep(0)  # nothing here refers to an operation meanwhile
            stop = perf_counter() + TURN
    return {"keys": len(keys), "of": max(len(by_key), len(keys)), "partial": partial}


def visit_key(core: Core, key: Hashable, visit: Visit) -> None:
    """Call *visit* with *key*, if something watches it."""
    try:
        count = core.watchers.count(key)
        ops = core.watchers.waiting(key, PER_KEY)
    except Exception:  # the key is not hashable, or its own __hash__ or __eq__ raises
        return
    if count:
        visit(key, count, [op for op in ops if is_pending(op)])


def describe(op: Any, names: Names) -> Row:
    """The row of the page for the pending *op*."""
    keys = keys_of(op)
    return {
        "kind": kind_of(op),
        "key": names.of(keys[0]),
        "keys": len(keys),
        "since": watched_at(op),
        "deadline": deadline_seconds(op),
    }


class View:
    """Takes snapshots of a purgatory, and keeps their history.

    It follows the purgatory through closing and starting again, in this event loop or the next.
    """

    def __init__(self, shown: Purgatory | LongPolling[Any] | EventLog, buses: Sequence[Bus], names: Names) -> None:
        self.polling = shown if isinstance(shown, LongPolling) else None
        self.log = shown if isinstance(shown, EventLog) else None
        self.purgatory = shown if isinstance(shown, Purgatory) else shown.purgatory
        self.buses = buses
        self.names = names
        self.run = secrets.token_hex(4)  # distinguishes this view's versions from an earlier process's
        self.number = 0
        self.snapshot: Row = {}
        self.began_at = -inf  # the last snapshot
        self.was_open = False
        #: For each snapshot the number with which it is sent, its time, and the values that the charts show.
        self.history: deque[tuple[int, list[float]]] = deque(maxlen=HISTORY)

    @property
    def version(self) -> str:
        """The version of the last snapshot."""
        return f"{self.run}-{self.number}"

    def is_elsewhere(self) -> bool:
        """Whether the purgatory belongs to another event loop that still exists."""
        loop = core_of(self.purgatory).loop.running
        if loop is None or loop is asyncio.get_running_loop():
            return False
        return self.purgatory.is_open or not loop.is_closed()

    def is_due(self) -> bool:
        """Whether it is time for another snapshot."""
        is_old = time.monotonic() >= self.began_at + REFRESH
        is_due = is_old or not self.snapshot or self.purgatory.is_open != self.was_open
        return is_due and not self.is_elsewhere()

    async def look(self) -> None:
        """Take a snapshot, if anything has changed since the last one."""
        self.was_open, self.began_at = self.purgatory.is_open, time.monotonic()
        polling = None if self.polling is None else asdict(self.polling.statistics())
        log = None if self.log is None else asdict(self.log.statistics())
        buses = [asdict(bus.statistics()) for bus in self.buses]
        new = take_figures(self.purgatory, self.names) | {"polling": polling, "log": log}
        if self.snapshot | new != self.snapshot:
            new |= await take_keys(self.purgatory, self.names)
        new["buses"] = buses  # their ages change all the time: that costs no visit of the keys
        has_changed = self.snapshot | new != self.snapshot
        self.snapshot = self.snapshot | new
        self.number += has_changed
        row = [time.monotonic(), *[self.snapshot["statistics"][name] for name in CHARTED]]
        self.history.append((self.number if has_changed else self.number + 1, row))

    def since(self, version: str | None) -> Row:
        """The last snapshot, the time, and the history since *version*: all of it if *version* is unknown."""
        seen = next((number for number, _ in self.history if version == f"{self.run}-{number}"), -1)
        return self.snapshot | {
            "cursor": self.version,
            "now": time.monotonic(),
            "clock": core_of(self.purgatory).loop.time(),
            "hands": take_hands(self.purgatory),
            "history": [row for number, row in self.history if number > seen],
        }


class Views:
    """The source of the pages' polls. Its resources are the numbers of the views.

    While a page polls, each view takes a snapshot every REFRESH seconds; otherwise, never.

    Args:
        common: a part of every answer.
        polls: the purgatory in which the polls wait.
    """

    def __init__(self, views: Sequence[View], common: Row, polls: Purgatory) -> None:
        self._views, self._common, self._polls = views, common, polls
        self._following: asyncio.Task[None] | None = None

    async def version(self, number: int) -> str:
        following, loop = self._following, running_loop()
        if following is None or following.done() or following.get_loop() is not loop:
            # In an empty context: it outlives the request of the first page.
            self._following = Context().run(loop.create_task, self._follow(), name="aiopurgatory inspector")
        view = self._views[number]
        if view.is_due():
            await view.look()
        return view.version

    async def read(self, number: int, since: str | None, version: str) -> bytes:
        # Not by JSONResponse, which fails if a name is not valid UTF-8.
        common = self._common | {"pid": os.getpid()}
        return json.dumps(common | self._views[number].since(since), allow_nan=False).encode()

    async def _follow(self) -> None:
        """Notify the polls of due snapshots, until no poll waits."""
        while True:
            await asyncio.sleep(min(NOTICE, REFRESH))
            if not self._polls.num_delayed:
                break
            for number, view in enumerate(self._views):
                if view.is_due():
                    self._polls.notify(number)
