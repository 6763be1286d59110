"""make wheels: build what a release uploads into dist/, and try each file before it gets there.

The sdist first; from it a pure wheel, and a compiled one for every Python found. With Docker, cibuildwheel builds and
tests the compiled wheels, for every Linux; without, ``build`` makes them for this machine. Each wheel is
looked into, installed into a clean virtual environment, and tested there. dist/ changes only if all of it went well.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CIBUILDWHEEL = PROJECT["tool"]["cibuildwheel"]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
#: The README's first program, and what it prints.
FIRST_PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
#: Lines of a failed command's output that are shown.
TAIL = 40
CHECK_FORM = """
import sys, aiopurgatory, aiopurgatory.operations, aiopurgatory.testing, aiopurgatory.web
assert aiopurgatory.__file__.startswith(sys.prefix), aiopurgatory.__file__
assert aiopurgatory.COMPILED is {compiled}, aiopurgatory.__file__
"""


class FailedError(Exception):
    """A step failed; the message says what to do about it, or shows the output."""


class Release:
    """The files of one release, made and tried in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dist = folder / "dist"
        self.dist.mkdir()

    def sdist(self) -> Path:
        """Build the sdist, and unpack it: all wheels are built from it."""
        with Step("sdist") as step:
            run(sys.executable, "-m", "build", "--sdist", "--outdir", self.dist, ROOT)
            (path,) = self.dist.glob("*.tar.gz")
            with tarfile.open(path) as archive:
                archive.extractall(self.folder / "source", filter="data")
            step.note(size(path))
        return path

    @property
    def source(self) -> Path:
        (source,) = (self.folder / "source").iterdir()
        return source

    def pure(self) -> Path:
        """Build the wheel for every Python."""
        return self._build("pure wheel", sys.executable, compiles="0")

    def compiled(self, version: str, python: str) -> Path:
        """Build the wheel for this machine and *python*."""
        builder = venv(python, self.folder / f"build-{version}", "build")
        return self._build(f"Python {version}: compiled wheel", builder, compiles="1")

    def cibuildwheel(self) -> list[Path]:
        """Build and test the wheels for other machines, in containers."""
        with Step("compiled wheels by cibuildwheel, in containers") as step:
            run(sys.executable, "-m", "cibuildwheel", "--output-dir", self.dist, cwd=ROOT)
            wheels = [path for path in self.dist.glob("*.whl") if not is_pure(path)]
            step.note(f"{len(wheels)} wheels")
        for path in wheels:
            look_into(path)
        return wheels

    def _build(self, name: str, python: str, compiles: str) -> Path:
        before = set(self.dist.iterdir())
        with Step(name) as step:
            run(python, "-m", "build", "--wheel", "--outdir", self.dist, self.source, HATCH_BUILD_HOOKS_ENABLE=compiles)
            (path,) = set(self.dist.iterdir()) - before
            look_into(path)
            step.note(size(path))
        return path

    def install(self, version: str, python: str, path: Path, what: str) -> str:
        """Install *path* into an empty virtual environment, run the README's program. Returns: the Python there."""
        with Step(f"Python {version}: {what} installed"):
            installed = venv(python, self.folder / f"{version}-{path.name}", str(path))
            run(installed, "-m", "pip", "check")
            run(installed, "-c", CHECK_FORM.format(compiled=path.suffix == ".whl" and not is_pure(path)))
            run_first_program(installed)
        return installed

    def test(self, version: str, installed: str, path: Path, what: str) -> None:
        """Run the test command of cibuildwheel's settings."""
        with Step(f"Python {version}: {what} tested") as step:
            run(installed, "-m", "pip", "install", *QUIET, *PROJECT["dependency-groups"]["wheel-test"])
            command = shlex.split(CIBUILDWHEEL["test-command"].format(package=ROOT, project=ROOT))
            form = "interpreted" if is_pure(path) else "compiled"
            out = run(installed, "-m", *command, AIOPURGATORY_FORM=form, cwd=ROOT)
            step.note(out.strip().splitlines()[-1].strip("= "))

    def check_metadata(self) -> None:
        with Step("metadata (twine)"):
            run(sys.executable, "-m", "twine", "check", "--strict", *sorted(self.dist.iterdir()))

    def publish(self, dist: Path) -> None:
        """Replace what an earlier run left in *dist*."""
        dist.mkdir(exist_ok=True)
        for old in [*dist.glob("aiopurgatory-*.whl"), *dist.glob("aiopurgatory-*.tar.gz")]:
            old.unlink()
        for path in sorted(self.dist.iterdir()):
            shutil.move(path, dist / path.name)
            print(f"  {dist.name}/{path.name}: {size(dist / path.name)}")


class Step:
    """A line of progress: what is done, and when it is done, how it went."""

    def __init__(self, name: str) -> None:
        self._name, self._notes = name, ""
        self._began = time.monotonic()

    def __enter__(self) -> Step:
        print(f"{self._name} ...", end=" ", flush=True)
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: object, tb: object) -> None:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        print("stopped" if exc_type is KeyboardInterrupt else "FAILED" if exc_type else f"{self._notes}{seconds}")

    def note(self, text: str) -> None:
        self._notes = f"{text}, "


QUIET = ("--quiet", "--disable-pip-version-check")


def clean_environ() -> dict[str, str]:
    """The environment without the checkout's Python path and options."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")}


def run(*command: str | Path, cwd: Path | None = None, **environ: str) -> str:
    """Run *command*, apart from the checkout's Python path and options. Returns: what it printed."""
    with subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd or ROOT,
        env=clean_environ() | environ,
        process_group=0,  # Ctrl-C reaches this process alone, which ends those that its children have started, too
    ) as process:
        try:
            out, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        tail = "\n".join(out.splitlines()[-TAIL:])
        raise FailedError(f"{tail}\n{shlex.join(map(str, command))} failed")
    return out


def venv(python: str, folder: Path, *packages: str) -> str:
    """Make a virtual environment with *packages* in it. Returns: the Python there."""
    run(python, "-m", "venv", folder)
    inside = str(folder / "bin" / "python")
    run(inside, "-m", "pip", "install", *QUIET, *packages)
    return inside


def run_first_program(python: str) -> None:
    """Run the README's first program as its reader does."""
    found = FIRST_PROGRAM.search((ROOT / "README.md").read_text("utf-8"))
    if found is None:
        raise FailedError("README.md has no program that is followed by its output")
    program, expected = found.groups()
    if (out := run(python, "-c", program)) != expected:
        raise FailedError(f"the README's first program printed\n{out}and not\n{expected}")


def look_into(path: Path) -> None:
    """Check what is in a wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = [PurePosixPath(name) for name in wheel.namelist()]
    stray = [str(name) for name in names if name.suffix in (".c", ".h", ".pyc") or "tests" in name.parts]
    if stray:
        raise FailedError(f"{path.name} carries {', '.join(stray[:5])}")
    libraries = [str(name) for name in names if name.suffix in (".so", ".pyd")]
    if bool(libraries) == is_pure(path):
        raise FailedError(f"{path.name} has {len(libraries)} compiled modules")
    for name in ("aiopurgatory/py.typed", "pytest_aiopurgatory.py"):
        if PurePosixPath(name) not in names:
            raise FailedError(f"{path.name} lacks {name}")


def is_pure(path: Path) -> bool:
    return path.name.endswith("-none-any.whl")


def size(path: Path) -> str:
    return f"{path.stat().st_size / 1e3:,.0f} kB"


def pythons(wanted: Sequence[str]) -> dict[str, str]:
    """Of *wanted*, the versions that are installed, and where: on the PATH, or in pyenv, which shows one at a time."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {}
    for version in wanted:
        places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
        for place in (str(place) for place in places if place):
            code = "import sys; print(sys.executable)"
            done = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found[version] = done.stdout.strip()
                break
        else:
            print(f"Python {version} not found, not built for.")
    return found


def has_docker() -> bool:
    docker = shutil.which("docker")
    return bool(docker) and subprocess.run([str(docker), "info"], capture_output=True, check=False).returncode == 0


def make(release: Release, found: dict[str, str], is_pure_only: bool) -> None:
    sdist, wheel = release.sdist(), release.pure()
    newest = list(found)[-1]
    release.install(newest, found[newest], sdist, "sdist")
    for version, python in found.items():
        release.test(version, release.install(version, python, wheel, "pure wheel"), wheel, "pure wheel")
    if is_pure_only:
        pass
    elif has_docker():
        release.cibuildwheel()
    elif any(map(shutil.which, ("cc", "gcc", "clang"))):
        for version, python in found.items():
            compiled = release.compiled(version, python)
            what = "compiled wheel"
            release.test(version, release.install(version, python, compiled, what), compiled, what)
    else:
        print("No C compiler found (cc, gcc or clang): no compiled wheels.")
    release.check_metadata()


def main() -> int | str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", choices=VERSIONS, help="only this version; may be repeated")
    parser.add_argument("--pure", action="store_true", help="the sdist and the pure wheel only")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    args = parser.parse_args()
    found = pythons(args.python or VERSIONS)
    if not found:
        return "none of these Pythons is installed"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix="aiopurgatory-wheels-", ignore_cleanup_errors=True) as folder:
            release = Release(Path(folder))
            make(release, found, args.pure)
            release.publish(args.dist)
    except FailedError as exc:
        return f"{exc}\n{args.dist} is as it was."
    except KeyboardInterrupt:
        print(f"{args.dist} is as it was.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
