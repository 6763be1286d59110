"""The files for people, on this machine: the page, the model, the advice. Tables are written by Spark."""

from __future__ import annotations

import argparse
from pathlib import Path
from uuid import uuid4

MODEL, ADVICE, PAGE = "model.json", "advice.md", "report.html"


def argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option of the folder for *what*."""
    about = f"folder on this machine for {what} (default: OUT, or the working folder if OUT is in a store)"
    parser.add_argument("--documents", type=Path, metavar="FOLDER", help=about)


def folder(given: Path | None, out: str) -> Path:
    """Return the folder for documents: the one *given*, else *out* if it is on this machine, else this one."""
    local = out.removeprefix("file://").removeprefix("file:")
    return given or Path("." if "://" in local else local)


def write(path: Path, content: str) -> None:
    """Write or replace a file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        new.write_text(content, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
