"""A private Redis. Without the clients' packages, only redis-py is tested: see make test-protocols."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from private_servers import Redis, program

collect_ignore = [] if find_spec("apollo_config") else ["test_queues.py", "test_watches.py"]


@pytest.fixture
def redis() -> Iterator[Redis]:
    if program(*Redis.programs) is None:
        pytest.skip("redis-server is not installed: make programs")
    with Redis() as server:
        yield server
