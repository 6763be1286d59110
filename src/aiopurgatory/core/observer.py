"""Hooks for code that only observes: Observer for metrics and the journal, Finder for mistakes. And their calls."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, cast, final
from weakref import ref

from mypy_extensions import mypyc_attr

from ..arguments import described, require_items
from .loop import Loop
from .operation import EXPIRED, OUTCOMES, Awaiters, Operation, lateness, waited
from .outcome import Outcome
from .watchers import ALL, Watchers


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Observes purgatories, buses, long polling and logs. Subclass it and override the methods you need.

    Calls are synchronous, and ended() is called for every operation: keep them short. They may use the purgatory. An
    exception goes to the event loop's exception handler and changes nothing else.
    """

    def opened(self, what: Any) -> None:
        """A purgatory, bus, LongPolling or log has opened, in the running event loop.

        Args: what: the object. Its ``statistics()`` may be read from now on.
        """

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        """The operation *op* of *purgatory* has ended. It still has its keys.

        Do not call its result() or exception() here: that counts as retrieving it, and would hide a failure or an
        undelivered result that no task receives.

        Args:
            waited: seconds since it was watched; 0 if it never had to wait.
            lateness: seconds between its deadline and now if it expired, else None. For an awaited condition, without
                the time of its last read: that is part of *waited* alone.
        """

    def missed(self, purgatory: Any, op: Any) -> None:
        """The operation *op* missed a check. Called just before ended().

        Its condition held at the deadline, and it completed then, but none of its keys had been checked: a call of
        ``check_and_complete()`` is missing. Not told of an awaited condition if a check with a limit has come since its
        read before: the last read may find what another operation was to read.
        """

    def closed(self, what: Any) -> None:
        """A purgatory, bus, LongPolling or log has closed.

        A purgatory has reported the end of every operation by then, except one that closes it by its own hook.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Finder:
    """The hook for the code that finds mistakes. This one finds none; see misuse. None of its methods may raise.

    Args: loop, watchers: the parts of the purgatory to examine.
    """

    __slots__ = ("checks_of_twins", "loop", "missed_kinds", "watchers")

    def __init__(self, loop: Loop, watchers: Watchers) -> None:
        self.loop: Final = loop
        self.watchers: Final = watchers
        #: Missed checks by class and kind of key.
        self.missed_kinds: Final[dict[tuple[str, str], int]] = {}
        #: How many of the checks of unwatched keys were of a watched key's twin.
        self.checks_of_twins = 0

    def unwatched(self, key: Hashable) -> int:
        """The *key* was checked, and nothing watches it.

        Returns: how many more such checks until the next call: most of them need none.
        """
        return ALL

    def count_twin(self) -> None:
        """A check was of a watched key's twin."""
        self.checks_of_twins += 1

    def missed(self, op: Operation) -> None:
        """The operation *op* missed a check; see Observer.missed()."""

    def endless(self, key: Hashable, entry: object) -> None:
        """Checks without effect lead to each other. The newest was of *key*, with *entry*."""

    def endless_reads(self, op: Operation) -> None:
        """Reads for *op* follow at once on each other."""

    def failed_read(self, op: Operation, exc: BaseException) -> None:
        """A read for *op* raised *exc*, which ``retry_on=`` survives."""


def checked_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return *observers*, each once. Raises: TypeError: one is not an Observer."""
    given: Any = observers  # not typed: compiled code would refuse an item by itself, without naming the parameter
    require_items("observers", given, "Observer")
    each: dict[int, Any] = {id(one): one for one in given}
    for observer in each.values():
        if not isinstance(observer, Observer):
            raise TypeError(f"observers must be instances of Observer, got {described(observer)}")
    return tuple(each.values())


@final
class Observers:
    """Calls the observers of a purgatory, and reports their exceptions."""

    def __init__(self, loop: Loop, observers: tuple[Observer, ...]) -> None:
        self._loop: Final = loop
        #: Returns the purgatory. Weakly: the clock keeps an open one, and a closed one is freed without the gc.
        self._purgatory: Callable[[], Any] = lambda: None
        #: The first awaiter of the operation whose end the observers hear of now.
        self._head: Awaiters | None = None
        self.observers: Final = observers

    def observe(self, purgatory: Any) -> None:
        """Called once, with the purgatory whose operations are told of."""
        self._purgatory = ref(purgatory)

    def ended(self, op: Operation, state: int, head: Awaiters | None) -> None:
        """Tell that *op* has ended. *head*: its first awaiter."""
        before, self._head = self._head, head  # an observer may end another operation
        purgatory = self._purgatory()
        outcome = cast(Outcome, OUTCOMES[state])
        now = self._loop.time()
        late: float | None = lateness(op, now) if state == EXPIRED else None
        try:
            for observer in self.observers:
                try:
                    observer.ended(purgatory, op, outcome, waited(op, now), late)
                except (Exception, CancelledError) as exc:
                    self._loop.report(op, exc, "observer raised")
        finally:
            self._head = before

    def context(self) -> Any:
        """During ended(): the contextvars context of the first awaiter of the operation; None if there was none."""
        return None if self._head is None else self._head.context

    def missed(self, op: Operation) -> None:
        """Tell that *op* missed a check."""
        self.tell(op, lambda observer: observer.missed(self._purgatory(), op))

    def tell_opened(self, what: object, more: tuple[Observer, ...] = ()) -> None:
        """Tell these observers, and *more*, that *what* has opened: the purgatory, or what is built on it."""
        self.tell(None, lambda observer: observer.opened(what), more)

    def tell_closed(self, what: object, more: tuple[Observer, ...] = ()) -> None:
        """Tell these observers, and *more*, that *what* has closed."""
        self.tell(None, lambda observer: observer.closed(what), more)

    def tell(self, op: object, call: Callable[[Observer], object], more: tuple[Observer, ...] = ()) -> None:
        """Call *call* with each of these observers, and of *more*: once."""
        for observer in checked_observers((*self.observers, *more)):
            try:
                call(observer)
            except (Exception, CancelledError) as exc:
                self._loop.report(op, exc, "observer raised")
