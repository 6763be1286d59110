"""The session: quiet, tidy even after kill -9."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.spark.scratch import PREFIX, remove_abandoned, scratch_folder
from aiopurgatory.pipeline.spark.session import session
from aiopurgatory.pipeline.spark.tasks import Spark, spread

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


def test_session_python_worker_is_this_python(spark: Spark) -> None:
    assert spark().range(3).mapInArrow(lambda batches: batches, "id long").count() == 3


def test_session_master_that_is_not_there_says_so_soon(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        begun = time.monotonic()
        made = session("nobody", scratch=tmp_path / "out", master=master)
        with pytest.raises(PurgatoryError, match=f"master {master} cannot be reached: .*refused"), made:
            pass
    assert time.monotonic() - begun < 10
    assert not (tmp_path / "out").exists()


def test_spread_one_task_needs_no_session_more_come_in_order(spark: Spark) -> None:
    def never() -> Any:
        raise AssertionError("no session is needed")

    assert spread(never, math.sqrt, []) == []
    assert spread(never, math.sqrt, [4.0]) == [2.0]
    assert spread(spark, math.sqrt, [float(n * n) for n in range(20)]) == list(range(20))


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
