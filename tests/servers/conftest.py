"""A private Redis, and where the examples and their packages are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from private_servers import Redis

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = str(ROOT / "examples" / "servers")
sys.path.append(EXAMPLES)
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), EXAMPLES])

# Outside of make test-servers, some packages are missing: skip their tests silently.
PACKAGES = {"test_arq.py": "arq", "test_fastapi.py": "fastapi", "test_mcp.py": "mcp", "test_taskiq.py": "taskiq_redis"}
collect_ignore = [name for name, package in PACKAGES.items() if find_spec(package) is None]


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server
