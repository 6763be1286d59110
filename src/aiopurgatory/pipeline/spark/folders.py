"""Folders and small files, wherever Spark can reach them: local, HDFS, an object store."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def exists(spark: SparkSession, path: str) -> bool:
    """Whether anything is at *path*."""
    system, place = _place(spark, path)
    return bool(system.exists(place))


def remove(spark: SparkSession, path: str) -> None:
    """Remove *path* and all that is in it, if it is there."""
    system, place = _place(spark, path)
    system.delete(place, True)


def replace(spark: SparkSession, new: str, old: str, pattern: str) -> None:
    """Move what *pattern* finds in the folder *new* to the same places in *old*, instead of what is there."""
    system, place = _place(spark, new)
    target = _place(spark, old)[1]
    system.mkdirs(target)
    root = system.makeQualified(place).toUri()
    for found in system.globStatus(_place(spark, f"{new}/{pattern}")[1]) or []:
        inside = _place(spark, f"{old}/{root.relativize(found.getPath().toUri()).getPath()}")[1]
        system.mkdirs(inside.getParent())
        system.delete(inside, True)
        _rename(system, found.getPath(), inside)


def write(spark: SparkSession, path: str, text: str) -> None:
    """Make a file of *text*, in place of one that is there: whole or not at all."""
    system, place = _place(spark, path)
    new = place.suffix(".new")
    file = system.create(new, True)
    try:
        file.write(bytearray(text.encode()))
    finally:
        file.close()
    system.delete(place, False)  # some stores do not rename onto a file
    _rename(system, new, place)


def read(spark: SparkSession, path: str) -> str:
    """The text of a file."""
    system, place = _place(spark, path)
    file = system.open(place)
    try:
        return bytes(file.readAllBytes()).decode()
    finally:
        file.close()


def _rename(system: Any, old: Any, new: Any) -> None:
    if not system.rename(old, new):  # some say so, and do not raise
        raise OSError(f"{old} could not be renamed to {new}")


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext  # what is Java's has no types
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(context._jsc.hadoopConfiguration()), place
