"""Every public name says what it is, and shows how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import aiopurgatory
from aiopurgatory import operations, testing, timer

MODULES: list[ModuleType] = [aiopurgatory, operations, testing, timer]


def public_names() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name in module.__all__:
            if name != "COMPILED":
                yield name, getattr(module, name)


def public_methods() -> Iterator[tuple[str, Any]]:
    for name, value in public_names():
        if inspect.isclass(value):
            for method in dir(value):
                found = getattr(value, method)
                if not method.startswith("_") and inspect.isroutine(found):
                    yield f"{name}.{method}", found


@pytest.mark.parametrize(
    ("name", "found"), list(public_methods()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_method_has_docstring_and_signature(name: str, found: Any) -> None:
    if name.endswith((".with_traceback", ".add_note")):
        return  # Python's own
    assert inspect.signature(found).parameters
    if not aiopurgatory.COMPILED:  # mypyc 2.4 keeps the signatures of methods, and not their docstrings
        assert inspect.getdoc(found)


@pytest.mark.skipif(aiopurgatory.COMPILED, reason="mypyc 2.4 drops the docstrings of compiled classes")
@pytest.mark.parametrize(
    ("name", "found"), list(public_names()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_name_has_docstring(name: str, found: Any) -> None:
    assert inspect.getdoc(found)
