"""Every worked example in a docstring runs, and its assertions hold."""

from __future__ import annotations

import ast
import asyncio
import re
import textwrap
from pathlib import Path
from types import CodeType

import pytest

import aiopurgatory
from aiopurgatory import operations

EXAMPLE = re.compile(r"^ {4}\S.*(?:\n {4}.*|\n(?=\n* {4}))*", re.MULTILINE)
# From the sources, which a compiled wheel brings along: a compiled class has no docstring.
DOCSTRINGS = {
    node.name: ast.get_docstring(node) or ""
    for path in Path(str(operations.__file__)).parent.rglob("*.py")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, (ast.ClassDef, ast.AsyncFunctionDef)) and node.name in operations.__all__
}
EXAMPLES = {
    name: found.group()
    for name, text in DOCSTRINGS.items()
    if (found := EXAMPLE.search(text)) and "async with" in found.group()
}


def test_every_front_has_an_example() -> None:
    fronts = ["Feed", "Heartbeats", "JoinBarrier", "Replicas", "Thresholds", "fetch", "produce"]
    assert sorted(EXAMPLES) == fronts


@pytest.mark.parametrize("name", EXAMPLES)
async def test_example_in_docstring_runs(name: str) -> None:
    source = textwrap.dedent(EXAMPLES[name])
    code: CodeType = compile(source, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {each: getattr(operations, each) for each in operations.__all__}
    names |= {"Purgatory": aiopurgatory.Purgatory, "asyncio": asyncio, "__name__": "example"}
    await eval(code, names)
