"""Release workflows and settings agree, and the checks refuse a faulty wheel."""

from __future__ import annotations

import importlib.util
import re
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / ".ci" / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_wheel(folder: Path, name: str, *files: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        for file in ("aiopurgatory/py.typed", "pytest_aiopurgatory.py", *files):
            wheel.writestr(file, "")
    return path


PURE, COMPILED = "aiopurgatory-1-py3-none-any.whl", "aiopurgatory-1-cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(("name", "files"), [(PURE, ()), (COMPILED, ("aiopurgatory/timer/timer.so",))])
def test_look_into_wheel_as_it_should_be_passes(
    wheels: ModuleType, tmp_path: Path, name: str, files: tuple[str, ...]
) -> None:
    wheels.look_into(make_wheel(tmp_path, name, *files))


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        (PURE, "tests/test_form.py", "carries tests/test_form.py"),
        (PURE, "aiopurgatory/timer/timer.c", "carries aiopurgatory/timer/timer.c"),
        (PURE, "aiopurgatory/timer/timer.so", "has 1 compiled modules"),
        (COMPILED, "aiopurgatory/more.py", "has 0 compiled modules"),
    ],
)
def test_look_into_wheel_with_a_fault_names_it(
    wheels: ModuleType, tmp_path: Path, name: str, file: str, message: str
) -> None:
    with pytest.raises(wheels.FailedError, match=re.escape(message)):
        wheels.look_into(make_wheel(tmp_path, name, file))


def test_run_failed_command_shows_its_output(wheels: ModuleType) -> None:
    with pytest.raises(wheels.FailedError, match=r"(?s)no such thing.*false' failed"):
        wheels.run("sh", "-c", "echo no such thing; false")


NAMING = [*WORKFLOWS, ROOT / ".github/CONTRIBUTING.md", ROOT / ".pre-commit-config.yaml"]


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.name)
def test_every_make_target_named_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"(?:`|: |&& |sudo )make ([a-z][a-z-]+)", path.read_text("utf-8"))
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name} names make {target}"


def test_every_python_is_tested_and_built(wheels: ModuleType) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]
    built = [f"cp{version.replace('.', '')}-*" for version in wheels.VERSIONS]
    assert settings["build"].split() == [*built, "cp314t-*"]  # free-threaded, too
    versions = ", ".join(f'"{version}"' for version in wheels.VERSIONS)
    assert f"python: [{versions}]" in (ROOT / ".github/workflows/test.yml").read_text("utf-8")
