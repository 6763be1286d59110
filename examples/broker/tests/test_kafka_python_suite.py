"""kafka-python's own integration tests run against the broker.

They come with its source distribution, which is fetched for the test and not kept. aiokafka's has no tests in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final

import pytest

from .served import Served

pytestmark = pytest.mark.slow

#: Without the modules of administration, SASL and TLS, which the broker does not have.
MODULES: Final = [f"test_{name}_integration.py" for name in ("consumer", "producer")]
#: Tests that do not apply, and the feature that the broker lacks.
NOT_HERE: Final = {
    "test_transactional_producer_messages": "transactions",
    "test_transactional_producer_offsets": "transactions",
}
#: The Kafka that kafka-python takes the broker for, by the versions of its requests.
INFERRED: Final = "3.2"
#: The oldest Kafka with requests that are all known here. The client is told that it is this one, and asks nothing.
OLDEST: Final = "0.11"
#: A test that does not apply to a client that was told so: it asks the broker for its version.
NOT_TOLD: Final = ["test_kafka_version_infer"]
#: How many must pass at least. The others of snappy, lz4 and zstd are skipped where kafka-python lacks the library.
LEAST: Final = 24


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the tests of the kafka-python that is installed lie, with our fixtures in place of theirs."""
    folder = tmp_path_factory.mktemp("kafka-python")
    fetch(f"kafka-python=={installed('kafka-python')}", folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tests = [each for each in tar if each.name.split("/")[1:2] == ["test"]]
        tar.extractall(folder, tests, filter="data")
    root = folder / archive.name.removesuffix(".tar.gz")
    (root / "test" / "__init__.py").touch()  # it is missing, and there is a package of this name in Python
    shutil.copy(Path(__file__).with_name("kafka_python_fixtures.py"), root / "test" / "integration" / "fixtures.py")
    (root / "own.ini").write_text("[pytest]\n")
    yield root
    shutil.rmtree(folder)


def fetch(requirement: str, folder: Path) -> None:
    """Its source distribution. pip knows where from, and compares its hash with the index's."""
    name = requirement.partition("==")[0]
    options = ["--quiet", "--retries=1", "--no-deps", f"--no-binary={name}", f"--dest={folder}", requirement]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options], capture_output=True, text=True)
    for missing in ("No module named pip", "No matching distribution found"):
        if missing in done.stderr:
            pytest.skip(f"cannot fetch the tests of {requirement}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", [INFERRED, OLDEST])
def test_kafka_python_suite_passes(suite: Path, own_served: Served, tmp_path: Path, version: str) -> None:
    folder, report = Path("test", "integration"), tmp_path / "report.xml"
    left_out = [*NOT_HERE, *(NOT_TOLD if version == OLDEST else [])]
    paths = [where(suite, folder, name) for name in left_out]
    options = [f"--junitxml={report}", "--timeout=60", "-ra", "--tb=short", *[f"--deselect={path}" for path in paths]]
    own = ["--rootdir=.", "--config-file=own.ini", "-pno:cacheprovider", "-ppytest_timeout"]
    env = {"KAFKA_VERSION": version, "KAFKA_NEGOTIATES": "yes" if version == INFERRED else ""}
    env |= {"KAFKA_URI": f"tcp://{own_served.address}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", *own, *options, *[str(folder / module) for module in MODULES]]
    done = subprocess.run(command, cwd=suite, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed(report) >= LEAST, done.stdout
    assert own_served.stop() == (0, "")


def where(suite: Path, folder: Path, name: str) -> str:
    """The test's id. Raises: ValueError: there is no such test, or there are several."""
    (module,) = [each for each in MODULES if f"\ndef {name}(" in (suite / folder / each).read_text()]
    return f"{folder / module}::{name}"


def passed(report: Path) -> int:
    return sum(len(case) == 0 for case in ET.parse(report).iter("testcase"))
