"""Scratch folders. Each is locked while its process lives; the next process removes those of killed processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = ".spark-"


@contextmanager
def scratch_folder(parent: str | Path) -> Iterator[Path]:
    """Remove the scratch folders of killed processes from *parent*, and make a new one for the block.

    They are removed once more at the end: the JVM of a killed process may write to its folder for a moment.

    The lock is on the folder itself. The system releases it when the process ends, even by SIGKILL. File systems
    without locks keep the folders of killed processes.
    """
    parent = Path(parent).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent)
    folder, lock = _new(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        remove_abandoned(parent)


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders of ended processes from *parent*."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # gone by now, or no folder of ours
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its process lives, or this file system has no locks
            pass
        finally:
            os.close(lock)


def _new(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it. If another process removes it before it is locked, make another."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # being removed
                os.close(lock)
                continue
            except OSError:  # no locks here: nobody else can take one, either
                return folder, lock
            if folder.exists():
                return folder, lock
            os.close(lock)
