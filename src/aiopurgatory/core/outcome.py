"""How an operation ended, and what every operation shows. Interpreted: an enum, and a protocol.

A parameter whose type is a protocol of this module takes anything in compiled code, which else checks the class of an
argument by itself; its message would name no remedy.
"""

from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """The four ways to end; an operation takes exactly one (I5)."""

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
