"""The command: every stage explains itself, and every failure is one line."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aiopurgatory
from aiopurgatory.cli import INTERRUPTED, STAGES, main
from aiopurgatory.pipeline import session

from .journals import operation, write


def test_pipeline_help_explains_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["pipeline", "--help"])
    output = " ".join(capsys.readouterr().out.split())
    for stage, about in STAGES.items():
        assert f"{stage} {about}" in output


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


def test_version_is_the_library_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"aiopurgatory {aiopurgatory.__version__}\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aiopurgatory", "pipeline", *arguments, "--master", "local[1]"]


def test_conf_of_another_form_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pipeline", "ingest", "a", "b", "--conf", "spark.executor.memory"])
    assert "a setting must be NAME=VALUE, got 'spark.executor.memory'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "none", "out"], "there is no journal in none: give the folder that Journal() writes to"),
        (["ingest", "none", "out"], "there is no journal in none: give the folder that Journal() writes to"),
        (["report", "none"], "there are no sums in none: run ingest with this folder first"),
        (["fit", "none"], "there are no sums in none: run ingest with this folder first"),
        (["simulate", "none", "out"], "there is no trace in none: give the folder that generate has printed"),
        (["advise", "none"], "there are no simulations in none: run simulate with it first"),
        (["generate", "--workload", "few", "file/out"], "out must be a folder to write to, got file/out: "),
    ],
)
def test_command_wrong_folder_says_so_before_spark_starts(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(session, "session", None)  # else Spark starts
    assert main(["pipeline", *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"aiopurgatory pipeline {words[0]}: {message}")
    assert said.count("\n") == 1


def test_command_read_only_folder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("a read-only disk could not be mounted: that takes root, and a container that allows mount(2)")
    try:
        monkeypatch.setattr(session, "session", None)
        assert main(["pipeline", "ingest", str(tmp_path), f"{tmp_path}/out/deep"]) == 1
        assert f"got {tmp_path}/out/deep: {tmp_path} is not, choose another" in capsys.readouterr().err
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


COMMAND = re.compile(r"^\$ aiopurgatory pipeline (\w+) ([^#\n]*)", re.MULTILINE)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark", "sail"])
def test_docs_commands_work_in_their_order(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> None:
    """Each command of the page that needs no other machine. Those for Sail run in its own environment."""
    if (os.environ.get("AIOPURGATORY_MASTER") == "sail") != (engine == "sail"):
        pytest.skip("runs on the other engine")
    request.getfixturevalue("spark")
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")
    commands = [found.groups() for found in COMMAND.finditer(page.replace("\\\n", " "))]
    of_engine = [each for each in commands if ("--master sail" in each[1]) == (engine == "sail")]
    here = [(name, words) for name, words in of_engine if "://" not in words]
    assert len(here) >= (2 if engine == "sail" else 7)
    write(tmp_path / "journal", [operation(n, waited_us=1_000 + n) for n in range(1_500)])
    for name, relative in here:
        words = re.sub(r"(?<=[ ^])(?=journal/|out/)|^(?=journal/|out/)", f"{tmp_path}/", relative)
        small = ["--rows", "2000"] if name in ("run", "generate") else []
        assert main(["pipeline", name, *words.split(), *small]) == 0, (name, words)
    assert (tmp_path / "out" / ("simulations" if engine == "sail" else "report.html")).exists()


@pytest.mark.slow
def test_command_quiet_and_tidy(tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)])
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()

    def call(*arguments: str) -> tuple[int, str, str]:
        known = os.environ | {"TMPDIR": str(temporary)}
        done = subprocess.run(command(*arguments), capture_output=True, text=True, cwd=here, env=known)
        return done.returncode, done.stdout, done.stderr

    status, out, error = call("ingest", "../journal", "../out")
    assert (status, error.count("\n")) == (0, 1)
    assert "3" in out
    assert re.fullmatch(r"ingest: done in \d+\.\d s\n", error)
    status, out, error = call("report", "../out/")
    assert (status, out) == (0, "../out/report.html\n")
    assert re.fullmatch(r"report: done in \d+\.\d s\n", error)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "temporary", "journal", "out"}
    assert not list(here.iterdir())
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_command_stopped_ends_silently_and_soon(tmp_path: Path) -> None:
    arguments = command("generate", "--workload", "few", "--rows", "20000000", "out")
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    time.sleep(12)
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)
    assert (*running.communicate(timeout=60), running.returncode) == ("", "", INTERRUPTED)
    assert time.monotonic() - begun < 20.0  # a second on an idle machine; its jobs would take minutes


@pytest.mark.slow
def test_command_job_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "out" / "trace").mkdir(parents=True)
    (tmp_path / "out" / "trace" / "part.parquet").write_bytes(b"no Parquet")
    done = subprocess.run(command("simulate", "out/trace", "out"), capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("aiopurgatory pipeline simulate: ")
    assert done.stderr.count("\n") == 1
