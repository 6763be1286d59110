"""What the library raises on its own account."""


class PurgatoryError(Exception):
    """The root of the library's own errors."""


class PurgatoryClosedError(PurgatoryError):
    """The purgatory is closed: nothing can be watched until it is started again. Pending operations ended with this."""


class PurgatoryFullError(PurgatoryError):
    """As many operations are pending as ``max_pending`` allows. The operation is untouched and may be watched later."""
