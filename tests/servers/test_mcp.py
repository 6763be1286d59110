"""The MCP SDK on our bus: its own tests, and 40 listeners at three workers while the bus' server is in trouble."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_bus
import pytest
from private_servers import Redis

from aiopurgatory.bus.redis import RedisBus

pytestmark = pytest.mark.servers

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SDK's own tests of subscriptions, from its source distribution."""
    folder = tmp_path_factory.mktemp("mcp")
    options = ["--quiet", "--no-deps", "--no-binary=mcp", f"--dest={folder}", f"mcp=={version('mcp')}"]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options], capture_output=True, text=True)
    if "No matching distribution found" in done.stderr:
        pytest.skip(f"cannot fetch the tests of mcp: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        for part in ("server", "client"):
            member = tar.extractfile(f"{archive.name.removesuffix('.tar.gz')}/tests/{part}/test_subscriptions.py")
            assert member is not None
            (folder / f"test_{part}.py").write_bytes(member.read())
    (folder / "own.ini").write_text("[pytest]\n")
    return folder


@pytest.mark.parametrize(("part", "least"), [("server", 14), ("client", 31)])
def test_mcp_own_tests_pass_on_our_bus(suite: Path, redis: Redis, part: str, least: int) -> None:
    paths = [str(HERE), os.environ["PYTHONPATH"]]
    env = {"REDIS_URL": redis.url(), "PYTHONPATH": os.pathsep.join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["--config-file=own.ini", "-q", "-panyio", "-pmcp_suite_plugin", "-pno:cacheprovider", f"test_{part}.py"]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=suite, env=os.environ | env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= least, done.stdout


async def test_the_example_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await mcp_bus.main()
    assert capsys.readouterr().out == "ResourceUpdated(uri='note://todo')\n"


def test_a_server_without_the_middleware_is_told() -> None:
    bus = mcp_bus.PurgatoryBus(RedisBus("redis://127.0.0.1", []))
    with pytest.raises(RuntimeError, match=r"middleware=\[note_filter\]"):
        bus.subscribe(print)


def run(bus: str, engine: str, fault: str) -> dict[str, Any]:
    if engine == "postgres" and shutil.which("initdb") is None and not Path("/usr/lib/postgresql").exists():
        pytest.skip("PostgreSQL is not installed: make programs")
    command = [sys.executable, str(HERE / "mcp_run.py"), bus, engine, fault]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    print(done.stdout, end="")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["redis", "postgres"])
@pytest.mark.parametrize("fault", ["killed", "cut", "dead"])
def test_listeners_miss_nothing(engine: str, fault: str) -> None:
    found = run("ours", engine, fault)
    assert found["missed"] == 0
    assert found["errors"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "cut", "dead"])
def test_control_the_sketch_of_the_sdks_page_misses(fault: str) -> None:
    assert run("sketch", "redis", fault)["missed"] > 100


@pytest.mark.slow
def test_control_reconnecting_and_retrying_misses_what_is_lost_silently() -> None:
    assert run("tuned", "redis", "dead")["missed"] > 10
