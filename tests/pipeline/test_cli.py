"""The command: every stage explains itself, and what goes wrong is one line."""

from __future__ import annotations

import importlib
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from aiopurgatory.cli import STAGES, main

from .journals import operation, write


def test_pipeline_help_explains_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for stage, about in STAGES.items():
        assert f"{stage} {about}" in said


@pytest.mark.parametrize(
    "stage", [name for name in STAGES if importlib.util.find_spec(f"aiopurgatory.pipeline.{name}")]
)
def test_stage_help_is_its_docstring(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", stage, "--help"])
    module = importlib.import_module(f"aiopurgatory.pipeline.{stage}")
    assert module.__doc__ is not None
    assert module.__doc__.strip() in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["pipeline"], ["pipeline", "digest"], ["pipeline", "ingest"]])
def test_incomplete_command_says_what_is_missing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "error:" in capsys.readouterr().err


def test_missing_extra_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("aiopurgatory.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["pipeline", "ingest", "a", "b"]) == 1
    assert 'pip install "aiopurgatory[pipeline]"' in capsys.readouterr().err


def test_help_needs_no_extra() -> None:
    script = "import sys, aiopurgatory.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "pandas", "matplotlib"} & set(loaded)


@pytest.mark.slow
def test_command_quiet_and_tidy(tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)])
    (tmp_path / "here").mkdir()

    def said(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "aiopurgatory", "pipeline", *arguments, "--master", "local[1]"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "here")
        return done.returncode, done.stdout, done.stderr

    counted = "operations: 3 rows of 1 files: 3 clean, 0 duplicates\n"
    assert said("ingest", "../journal", "../clean") == (0, counted, "")
    assert said("report", "../clean", "../report") == (0, "../report/report.html\n", "")
    status, out, error = said("ingest", "../none", "../clean")
    assert (status, out) == (1, "")
    assert error == "aiopurgatory pipeline ingest: journal must be a folder with operations in it, got ../none\n"
    assert {path.name for path in tmp_path.iterdir()} == {"here", "journal", "clean", "report"}
    assert not list((tmp_path / "here").iterdir())
    assert not list(tmp_path.glob("*/.spark-*"))


@pytest.mark.slow
def test_command_on_a_terminal_shows_its_progress(tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "aiopurgatory", "pipeline", "ingest", "journal", "clean", "--master", "local[1]"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # which is how Linux says that nobody writes to it any more
        while part := os.read(ours, 1024):
            shown += part
    os.close(ours)
    assert running.wait() == 0
    assert b"[Stage " in shown
