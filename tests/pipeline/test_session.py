"""The session: quiet, in UTC, tidy."""

from __future__ import annotations

from pyspark.sql import SparkSession


def test_session_time_zone_is_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT string(timestamp_seconds(0)) AS epoch").collect()[0]
    assert row.epoch == "1970-01-01 00:00:00"


def test_session_python_worker_is_this_python(spark: SparkSession) -> None:
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
