"""The docstrings of compiled modules, and the files and pages that tools make of docs/."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import aiopurgatory

ROOT = Path(__file__).parents[1]


def compiled_modules() -> list[str]:
    """The modules that a compiled wheel has compiled; whether this one is does not matter."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    hook = wheel["hooks"]["custom"]
    found = {path for pattern in hook["include"] for path in ROOT.glob(pattern)}
    found -= {path for pattern in hook["exclude"] for path in ROOT.glob(pattern)}
    return sorted(".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in found)


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(node: Documented, found: Any) -> Iterator[tuple[Any, str]]:
    """*found* and its members that have a docstring in the source, and the docstring."""
    doc = ast.get_docstring(node)
    if doc:
        yield found, doc
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            # Python wraps special methods of compiled classes, and documents them itself.
            if isinstance(child, Documented) and not child.name.startswith("__"):
                yield from documented(child, getattr(found, child.name))


@pytest.mark.parametrize("name", compiled_modules())
def test_docstrings_are_those_of_the_source(name: str) -> None:
    module = import_module(name)
    source = Path(str(module.__file__)).with_name(f"{name.rpartition('.')[2]}.py")
    expected = list(documented(ast.parse(source.read_text("utf-8")), module))
    assert expected
    for found, doc in expected:
        assert inspect.getdoc(found) == doc, found


def test_llms_full_has_every_page_and_public_name(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "llms.py"), str(tmp_path)], timeout=50, check=True)
    listed = (tmp_path / "llms.txt").read_text("utf-8")
    full = (tmp_path / "llms-full.txt").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").as_posix()
        assert len(re.findall(rf"^- \[.+\]\({path}\): .+\.$", listed, re.MULTILINE)) == 1
        assert (tmp_path / path).read_text("utf-8") in full
    for name in set(aiopurgatory.__all__) - {"COMPILED"}:
        assert (inspect.getdoc(getattr(aiopurgatory, name)) or "") in full, f"{name} is on no page"
    assert not re.search("^(:::|--8<--|<!-- python)", full, re.MULTILINE)
    assert not re.search(r"^#+ .*( at 0x|Ellipsis|\.with_traceback)", full, re.MULTILINE)  # Python's, and not ours


def test_guarantees_name_tests_that_exist_for_each_number() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    rows = re.findall(r"^\| ([IC]\d+) \|.*`test_", text, re.MULTILINE)
    assert rows == [*(f"I{number}" for number in range(1, 16)), *(f"C{number}" for number in range(1, 6))]
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in sources] == []
