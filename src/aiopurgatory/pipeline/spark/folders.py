"""Folders and small files on a local disk, or on a disk that all machines share under the same path."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError


def absolute(path: str | Path) -> str:
    """Return *path* in full. Raises: PurgatoryError: it is the address of a store."""
    local = str(path).removeprefix("file://").removeprefix("file:")
    if "://" in local:
        raise PurgatoryError(f"folders must be on a disk that every machine reaches under the same path, got {path}")
    return os.path.abspath(local)


def refuse_overlap(journal: str, out: str) -> None:
    """Raises: PurgatoryError: the two folders are the same, or one is in the other."""
    one, other = (os.path.realpath(absolute(each)).rstrip("/") + "/" for each in (journal, out))
    if one.startswith(other) or other.startswith(one):
        raise PurgatoryError(f"out must not overlap with the journal's folder, got {journal} and {out}")


def names(path: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def remove(path: str) -> None:
    """Remove *path* and everything in it, if it exists. Another process may be removing it, too."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write *table* to a Parquet file, atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", store_schema=False)
    write_bytes(path, sink.getvalue())


def write_bytes(path: str | Path, content: bytes | pa.Buffer) -> None:
    """Write or replace a file, atomically, and remove the remains of killed processes.

    Only one process may write to *path* at a time.
    """
    place = Path(absolute(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    new = _new(place)
    try:
        new.write_bytes(content)
        new.replace(place)
    finally:
        for remains in place.parent.glob(f".{glob.escape(place.name)}.*"):
            remains.unlink(missing_ok=True)


def put_first(path: str | Path, text: str) -> bool:
    """Make a file of *text*, atomically, unless one exists; return whether this call has made it.

    If several try at once, one succeeds.

    Raises: PurgatoryError: the disk has no links, as with exFAT.
    """
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    new = _new(place)
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, place)
    except FileExistsError:
        return False
    except OSError as error:
        if not new.exists() or new.stat().st_size < len(text):
            raise  # it was not even written
        raise PurgatoryError(f"{path} cannot be linked ({error.strerror}): choose a folder on another disk") from None
    finally:
        new.unlink(missing_ok=True)
    return True


def _new(place: Path) -> Path:
    return place.with_name(f".{place.name}.{uuid4().hex}")
