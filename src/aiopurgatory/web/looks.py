"""What there is to see in a purgatory, for the live page.

Nothing here holds the event loop for more than a few milliseconds, whatever is pending, and nothing that has ended is
kept for longer than that.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import heapq
import itertools
import reprlib
import secrets
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from hashlib import blake2b
from itertools import islice
from math import inf
from operator import itemgetter
from time import perf_counter
from typing import Any, Final, cast

from ..core.moments import NS, rounded_down
from ..core.operation import Operation
from ..core.watchers import Watchers
from ..purgatory import Purgatory

#: Keys looked at, of those that are watched: those watched longest and, if there are more, some new ones.
MAX_KEYS: Final = 20_000
NEWEST: Final = 500
#: Seconds of one turn of the event loop.
TURN: Final = 0.001
#: Operations looked at under each key, the oldest ones.
PER_KEY: Final = 10
#: Rows of a table, and parts of a ring: a wheel with more buckets has several of them in one part.
ROWS: Final = 10
PARTS: Final = 120
#: Characters of a name that is shown.
MAX_NAME: Final = 120

Row = dict[str, Any]


def look_at_figures(purgatory: Purgatory) -> Row:
    """What has changed if anything has. Cost: a walk over the buckets."""
    statistics = asdict(purgatory.statistics())
    state = "open" if purgatory._open else "closed" if purgatory._closed else "not started"
    timer = purgatory._timer
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    buckets: Counter[int] = Counter()
    for level, first, _, count in timer.occupied():
        wheel = timer._wheels[level]
        bucket = (first - 1) // wheel.tick % wheel.size
        counts[level][bucket * min(wheel.size, PARTS) // wheel.size] += count
        buckets[level] += 1
    rings = [
        {
            "level": wheel.level,
            "tick": wheel.tick / NS,
            "size": wheel.size,
            "buckets": buckets[wheel.level],
            "parts": min(wheel.size, PARTS),
            "filled": sorted(counts[wheel.level].items()),
        }
        for wheel in timer._wheels
    ]
    timed = len(timer)
    due = timed - sum(statistics["pending_by_level"])
    return {"state": state, "statistics": statistics, "rings": rings, "due": due, "untimed": purgatory._pending - timed}


def hands(purgatory: Purgatory) -> list[float]:
    """Where the hand of every wheel stands, as a part of its round."""
    timer = purgatory._timer
    now = max(rounded_down(purgatory._time()), timer.now)
    return [now % wheel.interval / wheel.interval for wheel in timer._wheels]


async def in_slices(watchers: Watchers, look: Callable[[Hashable, object], None]) -> Row:
    """Show keys and what waits there to *look*, for TURN seconds of each turn of the loop.

    Keys are in the order in which they came to be watched, so that the first MAX_KEYS are those that were watched for
    the longest time without a break: who has waited longest is under one of them, and keys with many watchers tend to
    be. The NEWEST are shown, too.

    Returns: how many were shown, of how many, and whether only a part was to be shown.
    """
    by_key = watchers._by_key
    keys = list(islice(by_key, MAX_KEYS))
    partial = len(keys) < len(by_key)
    if partial:
        keys += islice(reversed(by_key), min(NEWEST, len(by_key) - len(keys)))
    stop = perf_counter() + TURN
    for key in keys:
        entry = entry_of(watchers, key)
        if entry is not None:
            look(key, entry)
        if perf_counter() >= stop:
            del entry  # nothing that ends now is kept
            await asyncio.sleep(0)
            stop = perf_counter() + TURN
    return {"keys": len(keys), "of": max(len(by_key), len(keys)), "partial": partial}


def entry_of(watchers: Watchers, key: Hashable) -> object:
    try:
        return watchers.get(key)
    except Exception:  # it is not hashable, or its own __hash__ or __eq__ raises
        return None


async def look_at_keys(purgatory: Purgatory, names: Names) -> Row:
    """The keys with the most watchers, and who has waited longest."""
    most: list[tuple[int, int, Hashable]] = []  # a heap; the second item counts down, and no key is compared
    oldest: dict[tuple[float, int], Row] = {}
    latest = inf  # of the oldest ones

    def look(key: Hashable, entry: object) -> None:
        nonlocal latest
        count = watchers(entry)
        if len(most) < ROWS:
            heapq.heappush(most, (count, -next(order), key))
        elif count > most[0][0]:
            heapq.heapreplace(most, (count, -next(order), key))
        for op in first_waiters(entry):
            if op._op_watched_at >= latest:
                break
            oldest[op._op_watched_at, id(op)] = describe(op, names)
            if len(oldest) > ROWS:
                del oldest[max(oldest)]
                latest = max(oldest)[0]

    order = itertools.count()
    scope = await in_slices(purgatory._watchers, look)
    top = [{"key": names.of(key), "watchers": count} for count, _, key in sorted(most, key=itemgetter(0, 1))[::-1]]
    return {"most_watched": top, "oldest": [oldest[since] for since in sorted(oldest)], "scope": scope}


async def find(purgatory: Purgatory, names: Names, text: str) -> Row:
    """The keys that *text* may mean, and who waits there."""
    by_key = purgatory._watchers
    hits: dict[Hashable, Row] = {}

    def hit(key: Hashable, entry: object) -> None:
        ops = [describe(op, names) for op in first_waiters(entry)]
        hits[key] = {"key": names.of(key), "watchers": watchers(entry), "oldest": ops}

    def look(key: Hashable, entry: object) -> None:
        if len(hits) < ROWS:
            name = names.of(key)
            if text == name or (names.shown and text in name):
                hit(key, entry)

    for key in readings(text):
        entry = entry_of(by_key, key)
        if entry is not None:
            hit(key, entry)
    scope = await in_slices(by_key, look)
    return {"hits": list(hits.values()), "scope": scope, "clock": purgatory._time()}


def readings(text: str) -> list[Any]:
    """What somebody may mean by *text*: itself, and what it is as a Python literal, hashable or not."""
    found: list[Any] = [text]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape that is none
        found.append(ast.literal_eval(text))
    return found


def watchers(entry: object) -> int:
    return len(entry) if isinstance(entry, dict) else 1


def first_waiters(entry: object) -> Iterator[Operation]:
    """The oldest few of what waits under a key, oldest first."""
    for op in islice(entry.values(), PER_KEY) if isinstance(entry, dict) else (cast(Operation, entry),):
        if op._op_outcome is None:
            yield op


def describe(op: Operation, names: Names) -> Row:
    return {
        "kind": type(op).__qualname__[:MAX_NAME],
        "key": names.of(op._op_keys[0]),
        "keys": len(op._op_keys),
        "since": op._op_watched_at,
        "deadline": None if op._op_timeout == inf else op._ring_deadline / NS,
    }


class Names(reprlib.Repr):
    """How keys are called on the page.

    Args: shown: as they are, shortened; else by a number that only this process can tell from the key.
    """

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.shown = shown
        self.secret = secrets.token_bytes(16)
        self.maxlevel = 3
        self.maxstring = self.maxlong = self.maxother = MAX_NAME

    def of(self, key: Hashable) -> str:
        try:
            if self.shown:
                return self.repr(key)[:MAX_NAME]
            number = str(hash(key)).encode()
        except Exception:  # its own __repr__ or __hash__
            return f"<{type(key).__qualname__[:MAX_NAME]}>"
        return blake2b(number, digest_size=6, key=self.secret).hexdigest()

    def repr_bytes(self, key: bytes, level: int) -> str:
        return repr(key[: self.maxstring])
