from __future__ import annotations

from itertools import count

import pytest

_numbers = count()


@pytest.fixture
def topic() -> str:
    """One that nothing was published on."""
    return f"topic-{next(_numbers)}"
