"""How an operation ended, and what every operation shows. Interpreted: an enum, and a protocol.

A parameter whose type is a protocol of this module takes anything in compiled code, which else checks the class of an
argument by itself; its message would name no remedy.
"""

from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """The four ways to end; an operation takes exactly one (I5).

    COMPLETED: its condition held, or force_complete() was called. EXPIRED: its time was up. CANCELLED: by cancel(), by
    cancel_for_key(), or with the task that awaited it. FAILED: by fail(), by an exception of a hook, or because the
    purgatory was closed.
    """

    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class AnyOperation(Protocol):
    """An operation."""

    @property
    def outcome(self) -> Outcome | None: ...

    def try_complete(self) -> bool: ...

    def force_complete(self) -> bool: ...
