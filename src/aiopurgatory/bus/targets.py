"""The targets of a bus: purgatories, long polls, and other objects that check keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, TypeVar, final, runtime_checkable

from ..arguments import require_items, require_methods

T = TypeVar("T")


@runtime_checkable
class Target(Protocol):
    """Checks keys for a bus, as Purgatory and LongPolling do. The bus calls both methods in the event loop."""

    def notify(self, key: Hashable, /, *, limit: int | None = None) -> object:
        """Called when the state behind *key* may have changed. Must not block.

        Args: limit: of the publish; given only if it has one. A target to which it means nothing calls everything.
        """

    def notify_all(self) -> object:
        """Called when messages may have been lost: any state may have changed. Must not block."""


class DataTarget(ABC):
    """A target for the data of a log, and for no keys. Other targets never see such data."""

    @abstractmethod
    def hear(self, message: str) -> object:
        """Called with each message of any log on the bus. Must not block."""

    @abstractmethod
    def notify_all(self) -> object:
        """Called when messages may have been lost."""

    def notify(self, key: Hashable, /, *, limit: int | None = None) -> None:  # noqa: B027 for it, no key means anything
        """Do nothing."""


@final
class Targets:
    """Calls every target of a bus.

    Args: report: called with each exception of a target. It affects neither the other targets nor the bus.
    """

    __slots__ = ("_report", "_targets")

    def __init__(self, targets: Iterable[Target], report: Callable[[BaseException], object]) -> None:
        require_items("targets", targets, "Purgatory or LongPolling instance")
        self._targets: tuple[Target, ...] = ()
        self._report = report
        for target in targets:
            self.add(target, "targets")

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, target: Target, parameter: str = "target") -> None:
        """Also call *target*, unless it is called already. Raises: TypeError: it lacks a method."""
        require_methods(parameter, target, ("notify", "notify_all"), "Purgatory")
        if not any(target is other for other in self._targets):
            self._targets = (*self._targets, target)  # a new one: check() may be iterating

    def remove(self, target: Target) -> None:
        """Call *target* no more. Idempotent."""
        self._targets = tuple(other for other in self._targets if other is not target)

    def check(self, keys: Iterable[Hashable], limit: int | None = None) -> None:
        for key in keys:
            for target in self._targets:
                try:
                    if limit is None:
                        target.notify(key)
                    else:
                        target.notify(key, limit=limit)
                except (Exception, CancelledError) as exc:  # I11: an operation's failure may be either
                    self._report(exc)

    def check_all(self) -> None:
        tell_each(self._targets, lambda target: target.notify_all(), self._report)

    def tell(self, message: str) -> None:
        """Pass a message with data on to the targets for data."""
        tell_each(self._targets, lambda target: isinstance(target, DataTarget) and target.hear(message), self._report)


def tell_each(those: Iterable[T], tell: Callable[[T], object], report: Callable[[BaseException], object]) -> None:
    """Call *tell* with each of *those*. What it raises is reported, and affects no other."""
    for each in those:
        try:
            tell(each)
        except (Exception, CancelledError) as exc:
            report(exc)
