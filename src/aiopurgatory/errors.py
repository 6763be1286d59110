"""The library's own errors."""


class PurgatoryError(Exception):
    """Base class of the library's own errors."""


class PurgatoryClosedError(PurgatoryError):
    """The purgatory is closed. Nothing can be watched until it is started again; pending operations fail with this."""


class PurgatoryFullError(PurgatoryError):
    """``max_pending`` operations are already pending. The refused operation is unchanged and may be watched later."""
