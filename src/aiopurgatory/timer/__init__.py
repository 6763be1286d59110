"""Hierarchical timing wheels. Integer time, handed in; no clock, no asyncio."""

from .ring import TimerTask
from .timer import Timer

__all__ = ["Timer", "TimerTask"]
