"""Hierarchical timing wheels. Time is an integer argument: no clock, no asyncio."""

from .ring import Entry, EntrySlots, TimerTask
from .slots import fill_slots
from .timer import Timer

fill_slots(Entry, EntrySlots)

__all__ = ["Timer", "TimerTask"]
