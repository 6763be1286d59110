"""One Spark for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.spark.session import session
from aiopurgatory.pipeline.spark.tasks import Spark

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and (
            "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("slow")
        ):
            item.add_marker("spark")
            if item.get_closest_marker("timeout") is None:
                # The first job compiles much of Spark; others queue for the cores.
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Start Spark when a test first calls it. Most need no Spark, as their work is a single task."""
    settings = {"spark.sql.shuffle.partitions": "2"}
    scratch = tmp_path_factory.mktemp("spark")
    with ExitStack() as stack:

        @cache
        def start() -> SparkSession:
            return stack.enter_context(session("tests", scratch=scratch, master="local[2]", settings=settings))

        yield start
