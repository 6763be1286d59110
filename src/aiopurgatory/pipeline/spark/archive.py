"""The class archive (AppCDS): Spark's classes as the JVM keeps them in memory, so that later starts need not load them.

The first start records the names of the classes that it loads. When that JVM has ended, its wrapper makes the archive
from them in the background, at the lowest priority. Every later start maps it. The JVM checks that an archive fits, and
starts without it if it does not.

  CACHE/aiopurgatory/classes/<fingerprint of Java and Spark>-<bytes>.jsa

The size is part of the name. A torn archive has another size, and is made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: How many archives to keep, the last used first. Other environments on this machine have their own.
KEPT: Final = 3
#: Seconds until a failed archive is tried again, also after its maker was killed.
ABANDONED: Final = 3600.0
# The JVM must not warn of a missing or unsuitable archive on the user's terminal.
_QUIET: Final = "-Xshare:auto -Xlog:disable"


@dataclass(frozen=True)
class ClassArchive:
    """The JVM's options, and the paths that its wrapper needs to make an archive; they are empty if there is one."""

    options: str = ""
    #: File with the names of the classes; the wrapper writes the archive beside it.
    recorded: str = ""
    #: Path of the finished archive, without its size.
    target: str = ""


def class_archive(java: str, spark: Path) -> ClassArchive:
    """Return the archive for this Java and this Spark, or how to make it; nothing if the cache cannot be written.

    Args:
        java: identifies the Java: its version, its vendor and its home.
        spark: home of Spark, with the folder jars in it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "aiopurgatory", "classes")
    key = _fingerprint(java, spark)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        found = _whole(cache, key)
        if found:
            os.utime(found)
        _remove_old(cache)
        if found:
            return ClassArchive(options=f'{_QUIET} "-XX:SharedArchiveFile={found}"')
        new = cache / f".new-{key}"
        new.mkdir()
    except OSError:  # not writable; or another process is making it
        return ClassArchive()
    recorded = str(new / "classes")
    return ClassArchive(f'{_QUIET} "-XX:DumpLoadedClassList={recorded}"', recorded, str(cache / key))


def _fingerprint(java: str, spark: Path) -> str:
    jars = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in sorted(spark.glob("jars/*.jar"))]
    return hashlib.sha256(repr((java, str(spark), jars)).encode()).hexdigest()[:20]


def _whole(cache: Path, key: str) -> Path | None:
    """Return the archive of *key*, and remove torn ones."""
    for archive in cache.glob(f"{key}-*.jsa"):
        if archive.stem == f"{key}-{archive.stat().st_size}":
            return archive
        archive.unlink(missing_ok=True)
    return None


def _remove_old(cache: Path) -> None:
    archives = sorted(cache.glob("*.jsa"), key=_used, reverse=True)
    for archive in archives[KEPT:]:
        archive.unlink(missing_ok=True)
    for unfinished in cache.glob(".new-*"):
        if time.time() - _used(unfinished) > ABANDONED:
            shutil.rmtree(unfinished, ignore_errors=True)


def _used(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
