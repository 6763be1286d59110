"""Errors of the library."""


class PurgatoryError(Exception):
    """Base class of the library's own errors."""


class PurgatoryClosedError(PurgatoryError):
    """The purgatory is closed: pending operations fail with this, and watch() is refused until the next start()."""


class DeadlineError(PurgatoryError, TimeoutError):
    """The deadline of a wait came before its condition held.

    It is a TimeoutError. An exception of the condition itself, such as a database's TimeoutError, is no DeadlineError.
    """


class PurgatoryFullError(PurgatoryError):
    """``max_pending`` operations are already pending. The refused operation is unchanged and may be watched later."""


class GoneError(PurgatoryError):
    """A client cannot resume from its version or event id: that is no longer kept. Over HTTP, the answer is 410.

    Sources and event logs raise it.

    Args: after: the id from which to go on; None (default): from scratch, or unknown.
    """

    def __init__(self, *args: object, after: str | None = None) -> None:
        super().__init__(*args)
        self.after = after


class NotFoundError(PurgatoryError):
    """There is no such resource or topic. A source raises it. Over HTTP, the answer is 404."""
