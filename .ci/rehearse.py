"""make rehearsal: from a clean clone to everything that a release needs, in build/release/.

The files for an index (see wheels.py), the site of the docs, and the tag's notes out of the changelog. Then the release
is installed by its name, with each extra, from an index in a folder, and runs the programs of the README. What is not
committed is not in it. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from wheels import PROJECT, ROOT, VERSIONS, FailedError, Step, clean_environ, pythons, run, venv

NAME = PROJECT["project"]["name"]
EXTRAS = tuple(PROJECT["project"]["optional-dependencies"])
#: What each extra is for.
MODULES = {
    "journal": f"{NAME}.journal",
    "metrics": f"{NAME}.metrics",
    "otel": f"{NAME}.otel",
    "pipeline": f"{NAME}.pipeline.session",
    "postgres": f"{NAME}.bus.postgres",
    "redis": f"{NAME}.bus.redis",
    "sail": "pysail",
    "uvloop": "uvloop",
    "web": f"{NAME}.web.inspector",
}


def notes_of(changelog: str, version: str) -> str:
    """The part of the changelog about *version*. Raises: FailedError: it has none."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None or not found[1].strip():
        raise FailedError(f"CHANGELOG.md has nothing under '## {version}'")
    return found[1].strip() + "\n"


def version_of(source: Path) -> str:
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (source / "src" / NAME / "__init__.py").read_text(), re.MULTILINE
    )
    return str(version)


def build_site(clone: Path, out: Path) -> None:
    """Build the docs of *clone* into one archive."""
    with Step("docs' site"):
        paths = {"PYTHONPATH": str(clone / "src")}
        tool = str(Path(sys.executable).with_name("zensical"))
        run(tool, "build", "--config-file", ".zensical.toml", "--clean", "--strict", cwd=clone, **paths)
        run(sys.executable, "docs/llms.py", "build/docs", cwd=clone, **paths)
        shutil.make_archive(str(out / "site"), "gztar", clone / "build" / "docs")


def make_wheels(clone: Path, dist: Path, options: list[str]) -> None:
    """Run the clone's wheels.py, which shows its own progress."""
    sys.stdout.flush()  # before its lines
    command = [sys.executable, clone / ".ci" / "wheels.py", "--dist", dist, *options]
    if subprocess.run(command, cwd=clone, env=clean_environ(), check=False).returncode:
        raise FailedError("wheels.py failed, see above")


def make_index(dist: Path, folder: Path) -> str:
    """Make a package index, as PEP 503 has it, of the files in *dist*. Returns: its address."""
    project = folder / "simple" / NAME
    project.mkdir(parents=True)
    links = []
    for path in sorted(dist.iterdir()):
        shutil.copy(path, project)
        links.append(f'<a href="{path.name}">{path.name}</a><br>')
    (project / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(links))
    return project.parent.as_uri()


def install(index: str, python: str, extra: str, clone: Path, folder: Path) -> None:
    """Install the release by its name with *extra*, and run the README's programs there."""
    name = f"{NAME}[{extra}]=={version_of(clone)}"
    with Step(f"pip install {name}, and the README's programs") as step:
        installed = venv(python, folder / f"with-{extra}", "--extra-index-url", index, name, "fastapi")
        run(installed, "-c", f"import {MODULES[extra]}", cwd=folder)
        work = folder / f"in-{extra}"
        work.mkdir()
        run(installed, "-W", "error", clone / "tests" / "run_page.py", clone / "README.md", "--apart", cwd=work)
        found = run(installed, "-c", f"import {NAME} as a; print(a.__version__, 'compiled' * a.COMPILED)", cwd=work)
        step.note(found.strip())


def rehearse(out: Path, options: list[str], extras: list[str], python: str) -> None:
    out.mkdir(parents=True)
    with TemporaryDirectory(prefix=f"{NAME}-rehearsal-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        clone = folder / "clone"
        run("git", "clone", "--quiet", ROOT, clone)
        version = version_of(clone)
        (out / "notes.md").write_text(notes_of((clone / "CHANGELOG.md").read_text("utf-8"), version))
        build_site(clone, out)
        make_wheels(clone, out / "dist", options)
        index = make_index(out / "dist", folder)
        for extra in extras:
            install(index, python, extra, clone, folder)
    print(f"{NAME} {version} is ready in {out.relative_to(ROOT)}. What is left: docs/releasing.md")


def main() -> int | str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", choices=VERSIONS, help="only this version; may be repeated")
    parser.add_argument("--pure", action="store_true", help="no compiled wheels")
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="only this extra; may be repeated")
    args = parser.parse_args()
    found = pythons(args.python or VERSIONS)
    if not found:
        return "none of these Pythons is installed"
    options = [part for version in args.python or () for part in ("--python", version)] + ["--pure"] * args.pure
    out = ROOT / "build" / "release"
    shutil.rmtree(out, ignore_errors=True)
    try:
        rehearse(out, options, args.extra or list(EXTRAS), found[next(iter(found))])
    except FailedError as exc:
        return str(exc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
