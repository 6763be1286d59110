"""One Spark for the whole run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.spark.session import session

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
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["TZ"] = "UTC"  # collect() gives the times of day of this process
    time.tzset()
    settings = {"spark.sql.shuffle.partitions": "2"}
    scratch = tmp_path_factory.mktemp("spark")
    with session("tests", scratch=scratch, master="local[2]", settings=settings) as spark:
        yield spark
