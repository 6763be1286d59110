"""Mistakes that nothing else would show: checks that no operation waits for, operations that no check came for.

Most of these misses are normal. Some are due to a key of the wrong type, a wrong thread, or a purgatory not started.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.exceptions import CancelledError
from collections.abc import Hashable
from math import inf
from typing import Any, Final, final

from .arguments import described, shown
from .condition import ConditionWait
from .core.kit import keys_of
from .core.loop import Loop
from .core.observer import Finder
from .core.operation import Operation
from .core.watchers import Watchers, listed

logger = logging.getLogger("aiopurgatory")

#: Misses that are all examined, while something waits; after them, one in EVERY is, on average.
FIRST: Final = 1_000
EVERY: Final = 4096
#: The same while nothing waits: then there is little to examine.
EVERY_IDLE: Final = 256
#: The most warnings of a purgatory whose kind has a part of a key, which may be anything; and the most kinds of missed
#: checks that are counted apart.
MAX_WARNINGS: Final = 20
MAX_MISSED: Final = 20
#: Seconds between two warnings of failed reads.
QUIET: Final = 60.0
#: The class and the keys of all further ones.
OTHER: Final = ("other", "other")
#: Longer keys, and tuples of more items, are not examined: that would take too long.
MAX_LENGTH: Final = 200
MAX_ITEMS: Final = 8
#: The length of a UUID. Longer texts are not taken for a number.
MAX_PARSED: Final = 36
#: Longer texts are not taken for a name.
MAX_NAME: Final = 32


@final
class Misuse(Finder):
    """Finds the mistakes, and logs each kind once.

    The first misses are all examined, later ones at random distances, so that no rhythm of the keys hides one. In
    asyncio's debug mode, all are.
    """

    __slots__ = ("_examined", "_idle", "_quiet_until", "_random", "_warned")

    def __init__(self, loop: Loop, watchers: Watchers) -> None:
        super().__init__(loop, watchers)
        #: Misses examined while something waited, and while nothing did.
        self._examined = self._idle = 0
        self._random = 1
        #: When the next failed read is logged, by the purgatory's clock.
        self._quiet_until = -inf
        #: The kinds of mistakes that were logged.
        self._warned: set[Any] = set()

    def unwatched(self, key: Hashable) -> int:
        """Look for a mistake behind the check of *key*, which nothing watches."""
        is_idle = self.loop.is_left or not self.watchers.by_key
        try:
            if self.loop.running is None:
                if is_debug():
                    self._warn_once(
                        "start",
                        f"the check of {shown(key)} did nothing, since the purgatory is "
                        "not started; use 'async with' or await start() first",
                    )
            elif not self.loop.is_left and self.loop.is_foreign_thread():
                self._warn_once(
                    "thread",
                    f"check_and_complete({shown(key)}) raises RuntimeError as soon as something waits for the key: "
                    f"{self.loop.wrong_thread()}",
                )
            if not is_idle:
                self._examined += 1
                self._examine_key(key)
        except (Exception, CancelledError):
            pass  # of the key's own methods: they must not break a check
        if is_idle:
            self._idle += 1
            return 1 if self._idle <= FIRST or is_debug() else EVERY_IDLE
        if self._examined < FIRST or is_debug():
            return 1
        self._random = (self._random * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        return 1 + (self._random >> 16) % (2 * EVERY)

    def missed(self, op: Operation) -> None:
        key = keys_of(op)[0]
        kind = (type(op).__qualname__, kind_of(key))
        if kind not in self.missed_kinds and len(self.missed_kinds) >= MAX_MISSED:
            kind = OTHER
        self.missed_kinds[kind] = count = self.missed_kinds.get(kind, 0) + 1
        if count == 1 and kind != OTHER:
            keys = f"the key {shown(key)}" if is_debug() else f"a key of the kind {kind[1]}"
            self._warn(
                f"{name_of(op)}, waiting for {keys}, completed only at its deadline: its condition held, but none of "
                "its keys had been checked; call check_and_complete(key) where the state behind such a key changes. "
                "statistics().missed_kinds counts the next ones"
            )

    def endless(self, key: Hashable, entry: object) -> None:
        """Warn, once, that checks without effect lead to each other."""
        for op in listed(entry, 1):
            self._warn_once(
                "checks",
                f"try_complete() of {type(op).__name__}, waiting under {shown(key)}, "
                "checks keys though nothing has changed, and such checks lead to each other. They go on in slices of "
                "turn_budget, and take all the time of the loop: call check_and_complete() where the state changes",
            )

    def endless_reads(self, op: Operation) -> None:
        """Warn, once, that reads follow at once on each other."""
        self._warn_once(
            "reads",
            f"the reads for {described(op)} follow at once on each other, and take all the time of the loop. Does "
            "the read check its own key? Call check_and_complete() where the state changes",
        )

    def failed_read(self, op: Operation, exc: BaseException) -> None:
        """Warn, once a minute, why reads found nothing: else a mistake would pass for an outage, in silence."""
        now = self.loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            kind = kind_of(keys_of(op)[0])
            self._warn(
                f"a read for {name_of(op)}, waiting for a key of the kind {kind}, raised {described(exc)}. It has "
                "found nothing, as retry_on= says. This is said once a minute, for all reads"
            )

    def _examine_key(self, key: Hashable) -> None:
        twin = next((twin for twin in twins_of(key) if twin in self.watchers.by_key), None)
        if twin is not None:
            other = (
                f"{shown(twin)}, which is another key. Use one type for both: convert it in the route, as {{id:int}} "
                "does, or check and publish str(id)"
            )
        elif isinstance(key, tuple) and self._is_watched_in_parts(key):
            other = f"each of its parts, as keys of their own. Watch it as one key: watch(op, [{shown(key)}])"
        else:
            return
        self.count_twin()
        kinds = (kind_of(key), None if twin is None else kind_of(twin))
        self._warn_once(
            kinds, f"the key {shown(key)} was checked and nothing waits for it, but something waits for {other}"
        )

    def _is_watched_in_parts(self, key: tuple[Any, ...]) -> bool:
        """Does an operation wait for the items of *key*, because watch() took the tuple for an iterable of keys?"""
        oldest = listed(self.watchers.by_key.get(key[0]), 1) if len(key) > 1 else []
        return any(keys_of(op) == key for op in oldest)

    def _warn_once(self, kind: str | tuple[Any, ...], text: str) -> None:
        is_few = isinstance(kind, str) or len(self._warned) < MAX_WARNINGS  # a tuple has a part of a key
        if is_few and kind not in self._warned:
            self._warned.add(kind)
            self._warn(text)

    def _warn(self, text: str) -> None:
        logger.warning(f"purgatory {self.loop.name!r}: {text}")


def is_debug() -> bool:
    """Whether asyncio's debug mode is on, in the running loop or by the environment.

    Servers make loops that do not follow the environment: uvicorn passes ``debug=False``.
    """
    if sys.flags.dev_mode or (not sys.flags.ignore_environment and os.environ.get("PYTHONASYNCIODEBUG")):
        return True
    try:
        return asyncio.get_running_loop().get_debug()
    except RuntimeError:
        return False


def twins_of(key: Any) -> list[Any]:
    """Return the keys that *key* may be mistaken for: 7 for "7" and b"7", and the same within a tuple."""
    if not isinstance(key, tuple):
        return [form for form in forms_of(key) if type(form) is not type(key)]
    found: list[Any] = []
    if len(key) > MAX_ITEMS:
        return found
    for items in zip(*map(forms_of, key), strict=True):
        changed = [place for place, item in enumerate(items) if type(item) is not type(key[place])]
        if changed:
            found.append(items)
        if len(changed) > 1:
            found += [(*key[:place], items[place], *key[place + 1 :]) for place in changed]
    return found


def forms_of(key: Any) -> tuple[Any, Any, Any]:
    """Return *key* as text, as bytes, and as the int or UUID that this text is; *key* itself for what it has not."""
    if isinstance(key, int) and not isinstance(key, bool):
        text = str(int(key))
    elif isinstance(key, (str, bytes)) and len(key) <= MAX_LENGTH:
        text = key.decode() if isinstance(key, bytes) else key
    elif type(key).__name__ == "UUID":
        text = str(key)
    else:
        return key, key, key
    value = value_of(text)
    return text, text.encode(), key if value is None else value


def value_of(text: str) -> Any:
    """Parse *text* as an int or UUID. Returns: None if it is neither."""
    value: Any = None
    if len(text) > MAX_PARSED:
        return value
    if text.isdecimal() or (text.startswith("-") and text[1:].isdecimal()):
        value = int(text)
    elif len(text) == MAX_PARSED and text[8] == "-":
        module: Any = sys.modules.get("uuid")  # if a UUID is watched, this is imported
        if module is not None:
            value = module.UUID(text)
    return value if str(value) == text else None  # not for "007"


def kind_of(key: Any) -> str:
    """The kind of *key*: its type, of a tuple the types of its items. A name that a tuple begins with stays as it is.

    So the kind of ("orders", 7) is "('orders', int)". An address or an id is no name.
    """
    if type(key) is not tuple or not key:
        return type(key).__qualname__
    first, *others = key[:MAX_ITEMS]
    is_name = type(first) is str and len(first) <= MAX_NAME and first.replace("-", "_").replace(".", "_").isidentifier()
    kinds = [repr(first) if is_name else type(first).__qualname__, *[type(item).__qualname__ for item in others]]
    more = ", ..." if len(key) > MAX_ITEMS else "," if not others else ""
    return f"({', '.join(kinds)}{more})"


def name_of(op: Operation) -> str:
    """The class of *op*; of a wait_for() its condition, and where that is written."""
    if type(op) is not ConditionWait:
        return type(op).__qualname__
    code = getattr(op.condition, "__code__", None)
    place = "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"wait_for({getattr(op.condition, '__qualname__', described(op.condition))}){place}"
