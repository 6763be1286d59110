"""A run makes every stage once, then only those with changed inputs; also after kill -9."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.advise import AdviceError
from aiopurgatory.pipeline.cleaning.versions import published
from aiopurgatory.pipeline.run import PARTS, BusyError, Options, run_all
from aiopurgatory.pipeline.spark.scratch import PREFIX
from aiopurgatory.pipeline.spark.tasks import Spark

from .journals import NOON, expired, operation, snapshot, write

SMALL = Options(rows=2_000, ticks=(1.0,), purge_intervals=(0,))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path / "journal", [operation(n, waited_us=1_000 + n * 37) for n in range(3_000)])
    write(tmp_path / "journal", [expired(n) for n in range(3_000, 3_200)], "host-1-1")
    return tmp_path / "journal"


def unused() -> Any:
    raise AssertionError("no session is needed")


def called(
    spark: Spark, journal: Path, out: Path, capsys: pytest.CaptureFixture[str], options: Options = SMALL
) -> tuple[str, list[str]]:
    """Run; return the advice, and the stages made."""
    capsys.readouterr()
    said = run_all(spark, str(journal), out, options)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == list(PARTS)
    return said, [line.split(":")[0] for line in lines if "done in" in line]


def test_run_makes_what_has_changed_and_no_more(
    spark: Spark, journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    said, made = called(spark, journal, out, capsys)
    assert made == list(PARTS)
    assert "`Purgatory(" in said
    assert said in (out / "advice.md").read_text()
    assert "purge_interval=0" in (out / "report" / "report.html").read_text()
    assert called(spark, journal, out, capsys) == (said, [])

    (out / "advice.md").unlink()
    assert called(spark, journal, out, capsys) == (said, ["advise"])
    (out / "report" / "report.html").unlink()
    assert called(spark, journal, out, capsys) == (said, ["report", "advise"])
    more = Options(rows=2_000, ticks=(1.0, 10.0), purge_intervals=(0,))
    assert called(spark, journal, out, capsys, more)[1] == ["simulate", "advise"]

    write(journal, [operation(n, waited_us=1_000 + n % 3_000 * 37) for n in range(3_200, 3_300)], "host-1-2")
    assert called(spark, journal, out, capsys, more)[1] == ["ingest", "report", "fit", "advise"]  # the model is near
    assert "3,300 operations" in (out / "advice.md").read_text()
    write(journal, [operation(n) for n in range(3_300, 9_000)], "host-1-3")
    assert called(spark, journal, out, capsys, more)[1] == list(PARTS)


def test_run_small_model_changes_do_not_add_up(
    spark: Spark, journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []
    for number in range(8):  # each adds 3 % to the rate
        begin = 10_000 + 100 * number
        write(journal, [operation(n, waited_us=1_000 + n * 3) for n in range(begin, begin + 100)], f"host-2-{number}")
        made += called(spark, journal, tmp_path / "out", capsys)[1]
    assert 1 < made.count("simulate") < 8


def test_run_keeps_versions_as_long_as_told(spark: Spark, journal: Path, tmp_path: Path) -> None:
    def versions_after(keep_hours: float, name: str) -> int:
        for number in range(2):
            write(journal, [operation(100_000 + number)], f"{name}-{number}")
            run_all(spark, str(journal), tmp_path / name, replace(SMALL, keep_hours=keep_hours))
        return len(list((tmp_path / name / "clean" / "manifests").glob("[0-9]*.json")))

    assert versions_after(0, "short") == 1
    assert versions_after(200, "long") == 2


def test_run_new_file_of_a_small_journal_needs_no_session(journal: Path, tmp_path: Path) -> None:
    run_all(unused, str(journal), tmp_path / "out", SMALL)
    write(journal, [operation(n) for n in range(3_200, 3_300)], "host-1-2")
    run_all(unused, str(journal), tmp_path / "out", SMALL)
    assert "3,300 operations" in (tmp_path / "out" / "report" / "report.html").read_text()


def test_run_after_one_new_file_the_report_is_that_of_a_full_run(journal: Path, tmp_path: Path) -> None:
    for day in range(1, 5):
        at, own = NOON + timedelta(days=day), {"instance": f"day-{day}"}
        rows = [operation(n, watched_at=at + timedelta(seconds=n), purgatory="fp"[n % 2], **own) for n in range(400)]
        rows += [expired(n, watched_at=at, waited_us=90_000_000_000 + n, **own) for n in range(400, 600)]
        write(journal, rows, f"host-{day}", at=at)
        counters = [snapshot(at + timedelta(minutes=n), checks=n * day, dropped_rows=n, **own) for n in range(3)]
        write(journal, counters, f"host-{day}", table="statistics", at=at)
    run_all(unused, str(journal), tmp_path / "out", SMALL)
    before = (tmp_path / "out" / "report" / "report.html").read_text()
    at = NOON + timedelta(days=3)
    write(
        journal,
        [operation(n, watched_at=at, waited_us=43_100_000_000, instance="late") for n in range(500)],
        "late",
        at=at,
    )
    run_all(unused, str(journal), tmp_path / "out", SMALL)
    run_all(unused, str(journal), tmp_path / "whole", SMALL)

    def tables(name: str) -> dict[str, list[dict[str, Any]]]:
        report = tmp_path / name / "report"
        return {
            str(path.relative_to(report)): pq.ParquetFile(path).read().to_pylist()
            for path in sorted(report.rglob("*.parquet"))
        }

    def page(name: str) -> str:
        return (tmp_path / name / "report" / "report.html").read_text().split('<section id="advice">')[0]

    assert tables("out") == tables("whole")
    assert page("out") == page("whole")
    assert page("out") not in before


def test_run_old_page_stays_until_the_new_one_has_its_advice(
    spark: Spark, journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "out" / "report" / "report.html"
    run_all(spark, str(journal), tmp_path / "out", SMALL)
    assert "A first page" in capsys.readouterr().out
    write(journal, [operation(n) for n in range(3_200, 9_000)], "host-1-2")
    run_all(spark, str(journal), tmp_path / "out", SMALL)
    assert "A first page" not in capsys.readouterr().out
    assert "9,000 operations" in page.read_text()

    write(journal, [operation(n) for n in range(9_000, 19_000)], "host-1-3")
    with pytest.raises(AdviceError):
        run_all(spark, str(journal), tmp_path / "out", replace(SMALL, rows=500))
    assert "19,000 operations" in page.read_text()
    assert "There is no advice yet" in page.read_text()


def test_run_after_a_failed_stage_goes_on_there(
    spark: Spark, journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(AdviceError):
        run_all(spark, str(journal), out, Options(rows=500, ticks=(1.0,), purge_intervals=(0,)))
    assert json.loads((out / "run.json").read_text())["made_from"].keys() == {*PARTS} - {"advise"}
    assert called(spark, journal, out, capsys)[1] == ["generate", "simulate", "advise"]


def test_run_impossible_setting_is_refused_first(journal: Path, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match="tick"):
        run_all(unused, str(journal), tmp_path / "out", Options(ticks=(0.0,)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(rows=-5), "rows must be >= 1, got -5"),
        (Options(max_lateness_ms=float("nan")), "max_lateness_ms must be"),
        (Options(keep_hours=-1.0), "keep_hours must be from 0 to 876,000, got -1"),
        (Options(keep_hours=float("nan")), "keep_hours must be"),
    ],
)
def test_run_impossible_option_is_refused_first(journal: Path, tmp_path: Path, options: Options, message: str) -> None:
    with pytest.raises(PurgatoryError, match=message):
        run_all(unused, str(journal), tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


def test_run_without_a_journal_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match="journal must be a folder with operations in it"):
        run_all(unused, str(tmp_path / "none"), tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()


def test_run_with_nothing_new_imports_no_spark(spark: Spark, journal: Path, tmp_path: Path) -> None:
    run_all(spark, str(journal), tmp_path / "out", SMALL)
    script = (
        "import sys\nfrom pathlib import Path\nfrom aiopurgatory.pipeline.run import Options, run_all\n"
        f"run_all(None, {str(journal)!r}, Path({str(tmp_path / 'out')!r}), {SMALL!r})\n"
        "print(*{'pyspark', 'pandas', 'scipy'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("\n", 0)


def test_run_two_at_once_second_is_refused(
    spark: Spark, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.pipeline.simulate.AT_HOME", 0)  # so that it needs Spark

    def meanwhile() -> Any:
        with pytest.raises(BusyError, match="another run is using"):
            run_all(spark, str(journal), tmp_path / "out", SMALL)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run_all(meanwhile, str(journal), tmp_path / "out", SMALL)


def test_run_without_session_removes_scratch_of_killed_run(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    abandoned = out / f"{PREFIX}killed"
    abandoned.mkdir(parents=True)
    run_all(unused, str(journal), out, SMALL)
    assert not abandoned.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_killed_at_any_moment_second_call_completes(spark: Spark, journal: Path, tmp_path: Path) -> None:
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
    counts = [published(str(tmp_path / name / "clean")).counts for name in ("whole", "killed")]
    assert counts[0] == counts[1]
    assert counts[0]["operations"]["rows_out"] == 3_200
    for name in ("model.json", "advice.md"):
        assert (tmp_path / "killed" / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert not list((tmp_path / "killed").glob(".spark-*"))
