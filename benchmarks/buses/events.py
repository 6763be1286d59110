"""The table of events, in memory that all processes share: each key's version, and the time of that version.

A key is watched by one process and written by one, so nothing here needs a lock. With W processes, key k is watched by
k % W and written by k // W % W: an event is as likely to be for a poll here as for one in any other process.
"""

from __future__ import annotations

import mmap
from random import Random

#: Bytes of a key.
ROW = 16


def keys_for(polls: int, workers: int) -> int:
    """Return at least *polls* keys, so many that all workers watch and write equally many."""
    return -(-polls // workers**2) * workers**2


def watcher(key: int, workers: int) -> int:
    return key % workers


def writer(key: int, workers: int) -> int:
    return key // workers % workers


def random_key(random: Random, keys: int, workers: int, number: int) -> int:
    """A key that worker *number* writes."""
    return random.randrange(keys // workers**2) * workers**2 + number * workers + random.randrange(workers)


class Events:
    """Args: path: of a file of ROW * keys bytes."""

    def __init__(self, path: str, keys: int) -> None:
        with open(path, "r+b") as file:
            whole = memoryview(mmap.mmap(file.fileno(), ROW * keys))
        self.versions = whole[: 8 * keys].cast("q")
        #: By CLOCK_MONOTONIC, which all processes share.
        self.stamps = whole[8 * keys :].cast("d")
