"""Hierarchical timing wheels. Integer time, handed in; no clock, no asyncio."""

from .timer import Timer
from .ring import TimerTask

__all__ = ["Timer", "TimerTask"]
