"""A run makes every stage once, and nothing if nothing is new; also after kill -9."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.cli import main
from aiopurgatory.pipeline.advise import AdviceError
from aiopurgatory.pipeline.page.promises import Limits
from aiopurgatory.pipeline.run import run_all
from aiopurgatory.pipeline.simulate import grid

from .journals import expired, operation, write

ONE = grid([1.0], [20], [0])
STAGES = ["ingest", "report", "page", "fit", "simulate", "page"]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path / "journal", [operation(n, waited_us=1_000 + n * 37) for n in range(3_000)])
    write(tmp_path / "journal", [expired(n) for n in range(3_000, 3_200)], "host-1-1")
    return tmp_path / "journal"


def test_run_makes_everything_once_and_again_what_is_new(
    spark: SparkSession, journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def stages(*, rows: int = 2_000, limits: Limits | None = None) -> list[str]:
        capsys.readouterr()
        run_all(spark, str(journal), str(out), rows=rows, settings=ONE, limits=limits)
        return [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "done in" in line]

    assert stages() == STAGES
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "3,200 operations" in page
    assert "Keep the defaults: no other setting takes less CPU time." in page
    assert "Recorded: 3,200 operations" in (out / "advice.md").read_text(encoding="utf-8")
    assert stages() == ["ingest"]  # nothing is new
    write(journal, [operation(n) for n in range(3_200, 3_300)], "host-1-2")
    assert stages() == [*STAGES[:2], *STAGES[3:]]  # the old page stays until the new one has its advice
    assert "3,300 operations" in (out / "report.html").read_text(encoding="utf-8")
    assert stages(rows=3_000) == [*STAGES[:2], *STAGES[3:]]  # other options
    assert stages(rows=3_000, limits=Limits(max_expired_share=0.01)) == [*STAGES[:2], *STAGES[3:]]
    assert "the limit is 1.0%" in (out / "report.html").read_text(encoding="utf-8")
    with pytest.raises(AdviceError):
        run_all(spark, str(journal), str(out), rows=500, settings=ONE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "-5"], "rows must be >= 1, got -5"),
        (["--ticks", "0"], "tick must be from 1e-09"),
        (["--max-lateness-ms", "-1"], "max_lateness_ms must be >= 0, got -1"),
        (["--max-expired-share", "5"], "max_expired_share must be from 0 to 1, got 5"),  # as if in percent
    ],
)
@pytest.mark.usefixtures("spark")
def test_run_impossible_option_is_refused_first(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal").mkdir()
    assert main(["pipeline", "run", *options, str(tmp_path / "journal"), str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_run_two_at_once_do_not_harm_each_other(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()

    def make() -> None:
        said.append(run_all(spark, str(journal), str(out), rows=2_000, settings=ONE))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 2
    assert len(set(said)) == 1
    assert "3,200 operations" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_killed_at_any_moment_next_run_completes(journal: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(journal)]
    options = ["--rows", "2000", "--ticks", "1", "--purge-intervals", "0", "--master", "local[2]"]

    def start(out: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, str(out), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    begun = time.monotonic()
    start(tmp_path / "whole").communicate()
    lasts = time.monotonic() - begun
    moments = random.Random(16)
    for _ in range(4):
        running = start(tmp_path / "killed")
        time.sleep(moments.uniform(0.3, 0.9) * lasts)
        running.send_signal(signal.SIGKILL)
        running.communicate()
    completed = start(tmp_path / "killed")
    said = completed.communicate()[1]
    assert completed.returncode == 0, said
    for name in ("model.json", "advice.md", "report.html"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
