"""Every public name has a docstring and a signature, in both forms."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import aiopurgatory
from aiopurgatory import bus, journal, metrics, operations, streams, testing, timer, web
from aiopurgatory.bus import postgres, redis
from aiopurgatory.streams import postgres as streams_postgres
from aiopurgatory.streams import redis as streams_redis
from aiopurgatory.web import aiohttp, inspector

MODULES: list[ModuleType] = [aiopurgatory, bus, journal, metrics, operations, streams, testing, timer, web]
MODULES += [postgres, redis, streams_postgres, streams_redis, aiohttp, inspector]
#: They are no class or function, and the page on the journal explains them.
CONSTANTS = {"COMPILED", "OPERATIONS", "STATISTICS", "SCHEMA_VERSION"}
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


def public_names() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        own = [name for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            if name not in CONSTANTS and not name.startswith("_"):
                yield name, getattr(module, name)


def public_methods() -> Iterator[tuple[str, Any]]:
    for name, value in public_names():
        if inspect.isclass(value):
            for method in dir(value):
                found = getattr(value, method)
                if not method.startswith("_") and (inspect.isroutine(found) or isinstance(found, property)):
                    yield f"{name}.{method}", found


@pytest.mark.parametrize(
    ("name", "found"), list(public_methods()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_method_has_docstring_and_signature(name: str, found: Any) -> None:
    method = name.rpartition(".")[2]
    if method in ("with_traceback", "add_note", "fromkeys") or found is getattr(dict, method, None):
        return  # Python's own
    assert inspect.getdoc(found)
    if not isinstance(found, property | cached_property):
        assert inspect.signature(found).parameters


@pytest.mark.parametrize(
    ("name", "found"), list(public_names()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_name_has_docstring_that_explains_its_fields(name: str, found: Any) -> None:
    said = inspect.getdoc(found) or ""
    assert said
    fields = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
    for field in getattr(found, "_fields", fields):
        if field.startswith("_"):
            continue
        assert re.search(rf"^ *{field}: ", said, re.MULTILINE), f"{name}.{field} is not explained"


def test_hovers_have_no_numbers_and_sources_of_the_code() -> None:
    for name, found in [*public_names(), *public_methods()]:
        said = inspect.getdoc(found) or ""
        found_there = re.findall(r"\bI\d+\b|^ *(?:Source|Invariants):.*", said, re.MULTILINE)
        assert not found_there or name == "check_invariants", f"{name}: {found_there}"


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
    for name in set(aiopurgatory.__all__) - CONSTANTS:
        assert (inspect.getdoc(getattr(aiopurgatory, name)) or "") in full, f"{name} is on no page"
    assert not re.search("^(:::|--8<--|<!-- python)", full, re.MULTILINE)
    assert not re.search(r"^#+ .*( at 0x|Ellipsis|\.with_traceback)", full, re.MULTILINE)  # Python's, and not ours


def test_guarantees_name_tests_that_exist_for_each_number() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    rows = re.findall(r"^\| ([IC]\d+) \|.*`test_", text, re.MULTILINE)
    assert rows == [*(f"I{number}" for number in range(1, 16)), *(f"C{number}" for number in range(1, 6))]
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in sources] == []
