"""One Spark for the whole run, on real rows: UTC, one shuffle partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.session import session

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
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
    with session("local[2]", settings=settings) as made:
        yield made
