"""The class archive: made once, never in the way of a start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiopurgatory.pipeline.spark.archive import ABANDONED, KEPT, class_archive
from aiopurgatory.pipeline.spark.java import find_java

SESSION = """
import sys
from aiopurgatory.pipeline.spark.session import session
with session("archive", scratch=sys.argv[1], master="local[1]") as spark:
    options = spark.conf.get("spark.driver.extraJavaOptions")
    print(spark.range(3).count(), "SharedArchiveFile" in options, "DumpLoadedClassList" in options)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "aiopurgatory" / "classes"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder like the home of Spark."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("old")
    return tmp_path / "spark"


def make(java: str, home: Path, content: str = "classes") -> Path:
    """Make the archive, as the wrapper does when the JVM has ended."""
    asked = class_archive(java, home)
    made = Path(f"{asked.target}-{len(content)}.jsa")
    made.write_text(content)
    Path(asked.recorded).parent.rmdir()
    return made


def test_class_archive_missing_is_recorded_then_used(home: Path) -> None:
    made = make("17", home)
    asked = class_archive("17", home)
    assert f'"-XX:SharedArchiveFile={made}"' in asked.options
    assert not asked.recorded


def test_class_archive_being_made_is_not_made_twice(home: Path) -> None:
    assert class_archive("17", home).recorded
    assert class_archive("17", home).options == ""


def test_class_archive_of_killed_maker_is_made_later(home: Path) -> None:
    abandoned = Path(class_archive("17", home).recorded).parent
    os.utime(abandoned, (0, time.time() - ABANDONED - 1))
    assert class_archive("17", home).recorded


@pytest.mark.parametrize("changed", ["java", "jar", "path"])
def test_class_archive_other_java_or_spark_has_its_own(home: Path, changed: str) -> None:
    made = make("17", home)
    if changed == "jar":
        (home / "jars" / "spark-core.jar").write_text("newer")
    if changed == "path":
        home = home.rename(home.parent / "moved")
    asked = class_archive("21" if changed == "java" else "17", home)
    assert not made.name.startswith(Path(asked.target).name)


def test_class_archive_torn_is_made_anew(home: Path) -> None:
    made = make("17", home)
    made.write_text("clas")
    assert class_archive("17", home).recorded
    assert not made.exists()


def test_class_archive_only_the_last_used_are_kept(home: Path, cache: Path) -> None:
    first = make("0", home)
    made = []
    for number in range(1, KEPT + 2):
        made.append(make(str(number), home))
        os.utime(made[-1], (0, number))
        class_archive("0", home)  # it is used all the time
    assert {*cache.iterdir()} == {first, *made[-KEPT + 1 :]}


def test_class_archive_unwritable_cache_starts_without(home: Path, cache: Path) -> None:
    cache.parent.parent.write_text("a file where the folder should be")
    assert class_archive("17", home).options == ""


@pytest.mark.parametrize("content", [b"", b"rubbish" * 100_000])
def test_class_archive_foreign_is_ignored_silently(home: Path, content: bytes) -> None:
    made = make("17", home)
    good = class_archive("17", home).options
    made.write_bytes(content)
    options = [option.strip('"') for option in good.split()]
    done = subprocess.run([f"{find_java().home}/bin/java", *options, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_class_archive_second_start_uses_that_of_the_first(tmp_path: Path, cache: Path) -> None:
    command = [sys.executable, "-c", SESSION, str(tmp_path / "out")]

    def said() -> tuple[str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert said() == ("3 False True\n", "")
    until = time.monotonic() + 300
    while not (made := list(cache.glob("*.jsa"))) and time.monotonic() < until:
        time.sleep(0.1)
    assert made, "the archive was not made"
    assert said() == ("3 True False\n", "")
    whole = made[0].read_bytes()
    made[0].chmod(0o644)
    made[0].write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))  # as after a power cut
    assert said() == ("3 True False\n", "")
