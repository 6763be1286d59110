"""How an operation ended, and the protocol of every operation. Interpreted: an enum and a protocol.

Compiled code checks the class of an argument by itself, with a message that names no remedy. A parameter typed by a
protocol is not checked.
"""

from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """How an operation ended: exactly one of four ways.

    COMPLETED: its condition held, or force_complete() was called. EXPIRED: its time was up. CANCELLED: by cancel(), by
    cancel_for_key(), or with the task that awaited it. FAILED: by fail(), by fail_for_key(), by an exception from a
    hook, or because the purgatory was closed.
    """

    # Invariants: I5.

    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class AnyOperation(Protocol):
    """Any operation."""

    def try_complete(self) -> bool: ...

    def force_complete(self) -> bool: ...
