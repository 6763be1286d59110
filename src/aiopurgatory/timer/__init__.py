"""Hierarchical timing wheels. Time is an integer argument: no clock, no asyncio."""

from .ring import TimerTask
from .timer import Timer

__all__ = ["Timer", "TimerTask"]
