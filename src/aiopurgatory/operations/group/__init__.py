"""The join-group barrier: members wait for each other, then continue together as a generation."""

from .barrier import JoinBarrier
from .generation import Generation, GroupFullError, JoinError

__all__ = ["Generation", "GroupFullError", "JoinBarrier", "JoinError"]
