"""How an operation ended."""

from enum import Enum


class Outcome(Enum):
    """The four ways to end; an operation takes exactly one (I5)."""

    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
