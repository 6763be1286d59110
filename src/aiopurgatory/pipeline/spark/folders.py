"""Folders and small files on any file system that Spark can reach: local, HDFS, an object store.

The driver uses Hadoop's file systems, except for local files. Tasks read and write data through pyarrow's file systems.
For HDFS these need libhdfs on the machines that run tasks.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from aiopurgatory.errors import PurgatoryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In these stores a file appears when it is whole. They can be told to create it only if none exists.
_STORES: Final = ("s3a", "s3", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs")
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"


def qualified(spark: SparkSession, path: str) -> str:
    """Return *path* in full: absolute if it is local, else with its file system."""
    system, place = _place(spark, path)
    if system.getScheme() == "file":
        return absolute(path)
    return str(place.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())


def absolute(path: str) -> str:
    """Return *path* in full, as far as possible without Spark: a local one absolute, any other as it is."""
    local = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    return local if "://" in local else os.path.abspath(local)


def literal(path: str) -> str:
    """Return *path* so that Spark, which reads paths as patterns, finds it alone."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def is_local(path: str) -> bool:
    """Whether a qualified *path* is local to this machine."""
    return "://" not in path


def arrow_place(path: str) -> tuple[FileSystem, str]:
    """Return pyarrow's file system for a qualified *path*, and the path in it."""
    if is_local(path):
        return LocalFileSystem(), os.path.abspath(path)
    return FileSystem.from_uri(quote(path.replace("s3a://", "s3://", 1), safe=":/@"))  # type: ignore[no-any-return]


def refuse_overlap(journal: str, out: str) -> None:
    """Raises: PurgatoryError: the two folders are the same, or one is in the other."""
    one, other = (
        (each if "://" in each else os.path.realpath(each.removeprefix("file:"))).rstrip("/") + "/"
        for each in (journal, out)
    )
    if one.startswith(other) or other.startswith(one):
        raise PurgatoryError(f"out must not overlap with the journal's folder, got {journal} and {out}")


def exists(spark: SparkSession, path: str) -> bool:
    """Whether anything is at *path*."""
    if is_local(path):
        return os.path.exists(path)
    system, place = _place(spark, path)
    return bool(system.exists(place))


def names(spark: SparkSession, path: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    if is_local(path):
        return sorted(os.listdir(path)) if os.path.isdir(path) else []
    system, place = _place(spark, path)
    found = system.listStatus(place) if system.exists(place) else []
    return sorted(str(each.getPath().getName()) for each in found)


def remove(spark: SparkSession, path: str) -> None:
    """Remove *path* and everything in it, if it exists."""
    if is_local(path):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)  # another process may be removing it, too
        else:
            Path(path).unlink(missing_ok=True)
        return
    system, place = _place(spark, path)
    system.delete(place, True)


def read(spark: SparkSession, path: str) -> str:
    """Return the text of a file."""
    if is_local(path):
        with open(path, encoding="utf-8") as local:
            return local.read()
    system, place = _place(spark, path)
    file = system.open(place)
    try:
        return bytes(file.readAllBytes()).decode()
    finally:
        file.close()


def write_table(path: str, table: pa.Table) -> None:
    """Write *table* to a Parquet file at a qualified *path*, atomically. Tasks may call it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", store_schema=False)
    write_bytes(path, sink.getvalue())


def write_bytes(path: str, content: bytes | pa.Buffer) -> None:
    """Write or replace a file at a qualified *path*, atomically. Uses pyarrow only, so tasks may call it."""
    system, place = arrow_place(path)
    folder, _, name = place.rpartition("/")
    new = f"{folder}/.{name}.{uuid4().hex}"
    system.create_dir(folder, recursive=True)
    try:
        with system.open_output_stream(new) as file:
            file.write(content)
        if not is_local(path) and system.get_file_info(place).is_file:
            system.delete_file(place)  # HDFS does not rename onto a file
        system.move(new, place)
    except BaseException:
        if system.get_file_info(new).is_file:
            system.delete_file(new)
        raise


def replace_file(path: str, content: bytes) -> None:
    """Write or replace a file at any *path*, atomically, and remove the remains of killed processes.

    Only one process may write to *path* at a time.
    """
    write_bytes(absolute(path), content)
    system, place = arrow_place(absolute(path))
    folder, _, name = place.rpartition("/")
    for other in system.get_file_info(FileSelector(folder)):
        if other.base_name.startswith(f".{name}."):
            system.delete_file(other.path)


def put_first(spark: SparkSession, path: str, text: str) -> bool:
    """Make a file of *text*, atomically, unless one exists; return whether this call has made it.

    If several try at once, one succeeds. A local disk ensures that by a link, and HDFS by a rename that replaces
    nothing. Object stores do it by a conditional write (S3 since Hadoop 3.4.2, Google's, Azure's). In a store without
    one, two at once may both succeed, and the later file stays.

    Raises: PurgatoryError: the local disk has no links, as with exFAT.
    """
    if not is_local(path) and path.split(":", 1)[0] in _STORES:
        return _put_in_store(spark, path, text)
    new = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{uuid4().hex}"
    _create(spark, new, text)
    try:
        if is_local(path):
            _link(new, path)
            return True
        system, place = _place(spark, path)
        return not system.exists(place) and bool(system.rename(_place(spark, new)[1], place))
    except FileExistsError:
        return False
    finally:
        remove(spark, new)


def _link(there: str, path: str) -> None:
    try:
        os.link(there, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise PurgatoryError(f"{path} cannot be linked ({error.strerror}): choose a folder on another disk") from None


def _put_in_store(spark: SparkSession, path: str, text: str) -> bool:
    system, place = _place(spark, path)
    if system.exists(place):
        return False
    try:
        file = system.createFile(place).overwrite(False).opt(_CONDITIONAL, True).build()
        file.write(bytearray(text.encode()))
        file.close()
    except Py4JJavaError:
        if system.exists(place) and read(spark, path) != text:
            return False
        raise
    return True


def _create(spark: SparkSession, path: str, text: str) -> None:
    if is_local(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as local:
            local.write(text)
            local.flush()
            os.fsync(local.fileno())
        return
    system, place = _place(spark, path)
    file = system.create(place, False)
    try:
        file.write(bytearray(text.encode()))
    finally:
        file.close()


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext  # Java's objects have no types
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(context._jsc.hadoopConfiguration()), place
