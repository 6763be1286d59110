"""The cancellations of the running task, to tell them from those of a future that it awaits."""

from __future__ import annotations

import asyncio

from .clock import running_loop


def cancellations() -> int:
    """Return how often the running task was cancelled. It may go on nevertheless, as in a shielded clean-up.

    So compare this with its result from before an await.

    A function of its own: a frame that keeps its task, and is kept by that task's exception, is a cycle.
    """
    task = asyncio.current_task(running_loop())
    return 0 if task is None else task.cancelling()
