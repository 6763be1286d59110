"""How many checks there were, and how many of them had no effect."""

from __future__ import annotations

from typing import Final, final


@final
class CheckCounts:
    """Counts each check when it is known whether it had an effect. So neither count ever goes back.

    Most checks are known at once: they end an operation or none. A check that only woke conditions that have to be
    awaited is *undecided* until these have read. It had an effect if one of the reads ended its wait.
    """

    __slots__ = ("_called_for", "_current", "_paused", "checks", "without_effect")

    def __init__(self) -> None:
        #: Checks of a watched key, and those of them without effect.
        self.checks = 0
        self.without_effect = 0
        #: The running check, if it is undecided; and a check in slices between two of them.
        self._current: Undecided | None = None
        self._paused: Undecided | None = None
        #: The checks that call for the next read of each awaited operation.
        self._called_for: dict[object, Undecided] = {}

    def count(self, ended: int) -> None:
        """Count the running check, which is through and has ended so many operations."""
        current = self._current
        if current is None:
            self.checks += 1
            if ended == 0:
                self.without_effect += 1
        else:
            self._current = None
            current.leave(ended > 0)

    def pause(self) -> None:
        """The running check goes on later."""
        self._paused = self._current
        self._current = None

    def resume(self) -> None:
        """The paused check goes on; or ends, while another runs."""
        self._current, self._paused = self._paused, self._current

    def drop(self) -> None:
        """An exception ended the running check: do not count it."""
        if self._current is not None:
            self._current.drop()
            self._current = None

    def clear(self) -> None:
        """Decide all: no read will be awaited. The running check goes on, and is counted by itself."""
        self.drop()
        self.resume()
        self.drop()
        calls = list(self._called_for.values())
        self._called_for.clear()
        for undecided in calls:
            undecided.decide(False)

    def call_for_read(self, op: object) -> None:
        """The running check calls for a read of *op*: it is undecided.

        Checks that call for the same read are decided together, so a check of a hot key needs no object of its own.
        """
        earlier = self._called_for.get(op)
        if self._current is None:
            self._current = Undecided(self) if earlier is None else earlier
            self._current.join(1)
        if earlier is None:
            self._current.join(0)
            self._called_for[op] = self._current

    def call_for_next_read(self, earlier: Undecided | None) -> Undecided:
        """Same, for an operation that keeps the checks that call for its next read, and decides them when it ends.

        Args: earlier: the checks that have called for that read until now.
        """
        if self._current is None:
            self._current = Undecided(self) if earlier is None else earlier
            self._current.join(1)
        if earlier is None:
            self._current.join(0)
            return self._current
        return earlier

    def take_calls(self, op: object) -> Undecided | None:
        """Return the checks that call for a read of *op*, which begins now. Call decide() on them when it is done."""
        return self._called_for.pop(op, None)

    def add(self, checks: int, without_effect: int) -> None:
        self.checks += checks
        self.without_effect += without_effect


@final
class Undecided:
    """Checks that called for the same reads."""

    __slots__ = ("_checks", "_counts", "_had_effect", "_known", "_open")

    def __init__(self, counts: CheckCounts) -> None:
        self._counts: Final = counts
        self._checks = 0
        #: Checks known to have had an effect, even if the reads find nothing.
        self._known = 0
        #: Reads to come, and checks that are not through.
        self._open = 0
        self._had_effect = False

    def join(self, checks: int) -> None:
        """Wait for one more read, or for one more check to be through."""
        self._checks += checks
        self._open += 1

    def leave(self, ended: bool) -> None:
        """A check is through. *ended*: it has ended an operation, too."""
        if ended:
            self._known += 1
        self._close()

    def drop(self) -> None:
        """Do not count one of the checks, which is not through."""
        self._checks -= 1
        self._close()

    def decide(self, ended: bool) -> None:
        """A read is through. *ended*: that ended its wait."""
        if ended:
            self._had_effect = True
        self._close()

    def _close(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._counts.add(self._checks, 0 if self._had_effect else self._checks - self._known)
