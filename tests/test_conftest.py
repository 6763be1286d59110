"""The suite always ends, also with hanging tests, and with signals ignored by its starter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HANGING = """
import asyncio
import pytest
import uvloop

def test_run() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.sleep(60))

def test_cleanup() -> None:
    async def sleep_twice() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(sleep_twice())

async def test_await() -> None:
    await asyncio.sleep(60)

def test_next() -> None:
    pass
"""
INTERRUPTED = """
import signal
import subprocess
import sys
import pytest

def test_here() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM"])
def test_program(name: str) -> None:
    raises = f"import signal; signal.raise_signal(signal.{name}); print('goes on')"
    ran = subprocess.run([sys.executable, "-c", raises], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (-getattr(signal, name), "")
"""


def run(folder: Path, test: str, *options: str, ignored: str = "HUP") -> str:
    """Run *test* with the root's conftest.py and settings, in a shell that ignores *ignored*. Returns the output."""
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest", *options]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        ["sh", "-c", f'trap "" {ignored}; exec "$@"', "sh", *command, "-p", "no:cacheprovider", "test_it.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=40,
    )
    return ran.stdout


@pytest.mark.parametrize("options", [["-k", "not await"], ["-k", "await or next", "-n", "1"]])
def test_timeout_on_uvloop_fails_that_test_alone(tmp_path: Path, options: list[str]) -> None:
    pytest.importorskip("uvloop")
    said = run(tmp_path, HANGING, "--timeout", "1", *options)
    assert "2 failed, 1 passed" in said, said
    assert said.count("TimedOut: Timeout (>1.0s)") >= 2


def test_signals_ignored_by_the_shell_reach_tests_and_programs(tmp_path: Path) -> None:
    assert "4 passed" in run(tmp_path, INTERRUPTED, ignored="INT QUIT TERM")
