"""One Spark for the whole run, on real rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.session import session

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marked = any(map(item.get_closest_marker, ("spark", "slow")))
        if HERE in item.path.parents and (marked or "spark" in getattr(item, "fixturenames", ())):
            item.add_marker("spark")
            if item.get_closest_marker("timeout") is None:
                # The first job compiles much of Spark; others queue for the cores.
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    master = os.environ.get("AIOPURGATORY_MASTER", "local[2]")  # make test-sail
    with session(master, large=False) as made:
        if master == "sail":
            os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # pyspark.testing of its client asks for one
        yield made
