"""Request purgatory for asyncio: park operations under watch keys with a timeout, and end each exactly once."""

from .clock import Clock
from .compiled import COMPILED
from .core.observer import Observer
from .core.outcome import Outcome
from .deadline import Deadline
from .delayed_operation import DelayedOperation
from .errors import (
    DeadlineError,
    GoneError,
    NotFoundError,
    PurgatoryClosedError,
    PurgatoryError,
    PurgatoryFullError,
)
from .following import Following
from .purgatory import Purgatory
from .statistics import Statistics

__version__ = "0.1.0"

__all__ = [
    "COMPILED",
    "Clock",
    "Deadline",
    "DeadlineError",
    "DelayedOperation",
    "Following",
    "GoneError",
    "NotFoundError",
    "Observer",
    "Outcome",
    "Purgatory",
    "PurgatoryClosedError",
    "PurgatoryError",
    "PurgatoryFullError",
    "Statistics",
]
