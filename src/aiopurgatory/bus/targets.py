"""The targets of a bus: purgatories, long polls, and other objects that check keys."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, final, runtime_checkable


@runtime_checkable
class Target(Protocol):
    """Checks keys for a bus, as Purgatory and LongPolling do. The bus calls both methods in the event loop."""

    def notify(self, key: Hashable, /) -> object:
        """Called when the state behind *key* may have changed. Must not block."""
        ...

    def notify_all(self) -> object:
        """Called when messages may have been lost: any state may have changed. Must not block."""
        ...


@final
class Targets:
    """Calls every target of a bus.

    Args: report: called with each exception of a target. It affects neither the other targets nor the bus.
    """

    __slots__ = ("_notify", "_notify_all", "_report")

    def __init__(self, targets: Iterable[Target], report: Callable[[BaseException], object]) -> None:
        if isinstance(targets, Target) or not isinstance(targets, Iterable):
            raise TypeError(
                f"targets must be an iterable of purgatories or long polls, such as [polls], got {targets!r}"
            )
        listed = tuple(targets)
        for target in listed:
            if not isinstance(target, Target):
                raise TypeError(f"targets must have the methods notify(key) and notify_all(), got {target!r}")
        self._notify = [target.notify for target in listed]
        self._notify_all = [target.notify_all for target in listed]
        self._report = report

    def check(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            for notify in self._notify:
                try:
                    notify(key)
                except (Exception, CancelledError) as exc:  # I11: an operation's failure may be either
                    self._report(exc)

    def check_all(self) -> None:
        for notify_all in self._notify_all:
            try:
                notify_all()
            except (Exception, CancelledError) as exc:
                self._report(exc)
