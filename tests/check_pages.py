"""Checks the types of the Python in README.md and docs/: python -m tests.check_pages

Each page becomes a folder in build/pages: a block with a title is a file of that name, and the others together are
page.py. mypy and pyright then check each folder, as they would check a user's copy. A page that asks for no
annotations gets none: mypy is not strict here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from mypy import api

from .run_page import blocks

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "pages"
#: Several blocks of a page have a main() each.
MYPY = ["--check-untyped-defs", "--disable-error-code=no-redef", "--config-file=", f"--cache-dir={FOLDER}/.mypy_cache"]
PYRIGHT = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "reportRedeclaration": False}


def write_pages() -> list[Path]:
    """The folders of the pages that have any Python."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    folders = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        files = defaultdict(list)
        for block in blocks(page.read_text("utf-8")):
            files[block.title or "page.py"].append(block.source)
        folder = FOLDER / page.stem.lower()
        for name, sources in files.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("\n".join(sources), "utf-8")
        folders += [folder] * bool(files)
    return folders


def mypy_errors(folder: Path) -> str:
    output, errors, code = api.run([*MYPY, *map(str, folder.glob("*.py"))])
    return output + errors if code else ""


def pyright_errors(folders: list[Path]) -> str:
    config = PYRIGHT | {"executionEnvironments": [{"root": str(folder)} for folder in folders]}
    (FOLDER / "pyrightconfig.json").write_text(json.dumps(config), "utf-8")
    checker = Path(sys.executable).with_name("basedpyright")
    done = subprocess.run(
        [checker, "--project", FOLDER, "--pythonpath", sys.executable], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode else ""


def main() -> None:
    folders = write_pages()
    errors = "".join(map(mypy_errors, folders)) + pyright_errors(folders)
    if errors:
        sys.exit(errors)
    print(f"Success: no issues found in the Python of {len(folders)} pages")


if __name__ == "__main__":
    main()
