"""The session: quiet, in UTC, tidy even after kill -9."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from aiopurgatory.pipeline.spark.scratch import PREFIX, remove_abandoned, scratch_folder

HOLD = """
import sys
from aiopurgatory.pipeline.spark.scratch import scratch_folder
with scratch_folder(sys.argv[1]) as folder:
    (folder / "block").write_text("of a shuffle")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process with a scratch folder in *parent*; return both."""
    command = [sys.executable, "-c", HOLD, str(parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_session_time_zone_is_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT string(timestamp_seconds(0)) AS epoch").collect()[0]
    assert row.epoch == "1970-01-01 00:00:00"


def test_session_python_worker_is_this_python(spark: SparkSession) -> None:
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3


def test_scratch_folder_after_the_block_is_gone(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "out") as folder:
        assert folder.parent == tmp_path / "out"
        assert folder.name.startswith(PREFIX)
        assert folder.is_dir()
    assert not list((tmp_path / "out").iterdir())


def test_scratch_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    with holder(tmp_path) as (killed, abandoned), holder(tmp_path) as (_, living):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (abandoned / "block").exists()  # nobody has cleaned up yet
        with scratch_folder(tmp_path) as mine:
            assert {*tmp_path.iterdir()} == {mine, living}
            assert (living / "block").exists()


def test_scratch_folder_abandoned_meanwhile_is_removed_at_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path):
        late = tmp_path / f"{PREFIX}late"  # its JVM wrote while the folder was being removed
        late.mkdir()
        (late / "log").touch()
    assert not list(tmp_path.iterdir())


def test_scratch_folder_of_this_process_is_kept(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as first, scratch_folder(tmp_path) as second:
        remove_abandoned(tmp_path)
        assert {*tmp_path.iterdir()} == {first, second}


def test_scratch_folder_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    remove_abandoned(tmp_path)
    assert (elsewhere / "precious").exists()


def test_scratch_folder_many_at_once_each_has_its_own(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom aiopurgatory.pipeline.spark.scratch import scratch_folder\n"
        "for _ in range(200):\n"
        "    with scratch_folder(sys.argv[1]) as folder:\n"
        "        (folder / 'mine').touch()\n"
        "        assert (folder / 'mine').exists()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[1] for each in running] == [""] * 3
    assert not list(tmp_path.iterdir())
