"""How long a poll may wait, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..helpers import Served

#: A wait that no test sees the end of.
LONG = 20


@contextmanager
def ends(served: Served, **expected: int) -> Iterator[None]:
    """So many polls end in here as completed, expired, cancelled or failed, and that much sooner than LONG."""
    before = served.statistics()
    start = time.monotonic()
    yield
    served.wait_for(pending=0, **{how: before[how] + count for how, count in expected.items()})
    assert time.monotonic() - start < LONG / 4
