"""Errors of the library."""


class PurgatoryError(Exception):
    """Base class of the library's own errors."""


class PurgatoryClosedError(PurgatoryError):
    """The purgatory is closed: pending operations fail with this, and watch() is refused until the next start()."""


class PurgatoryFullError(PurgatoryError):
    """``max_pending`` operations are already pending. The refused operation is unchanged and may be watched later."""
