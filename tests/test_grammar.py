"""One grammar: every public name follows docs/reference/glance.md, which names all of them, and explains itself."""

from __future__ import annotations

import ast
import asyncio
import builtins
import dataclasses
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import aiopurgatory
from aiopurgatory import DelayedOperation, Observer, Purgatory, PurgatoryError

ROOT = Path(__file__).parents[1]
GLANCE = (ROOT / "docs/reference/glance.md").read_text()

pytest.importorskip("opentelemetry.trace")
pytest.importorskip("prometheus_client")
pytest.importorskip("pyarrow")
pytest.importorskip("starlette")

MODULES = [
    importlib.import_module(f"aiopurgatory{name}")
    for name in (
        *("", ".bus", ".journal", ".metrics", ".operations", ".otel", ".streams", ".testing", ".timer", ".web"),
        ".web.inspector",
    )
]
PUBLIC = {f"{module.__name__}.{name}": getattr(module, name) for module in MODULES for name in module.__all__}
for path in (
    "bus.engine.Engine",
    "bus.engine.Link",
    "bus.postgres.PostgresBus",
    "bus.postgres.trigger_sql",
    "bus.redis.RedisBus",
    "bus.targets.Target",
    "journal.schema.OPERATIONS",
    "journal.schema.SCHEMA_VERSION",
    "journal.schema.STATISTICS",
    "streams.postgres.PostgresLog",
    "streams.postgres.tables_sql",
    "streams.redis.RedisLog",
    "streams.store.Change",
    "streams.store.Commit",
    "streams.store.Page",
    "streams.store.Store",
    "web.aiohttp.setup",
):
    module, _, name = f"aiopurgatory.{path}".rpartition(".")  # imported by path: each needs an extra, or is for authors
    PUBLIC[f"{module}.{name}"] = getattr(importlib.import_module(module), name)
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
#: Long-lived objects. Each has a life, a name, statistics and observers.
LONG_LIVED = [
    "aiopurgatory.Purgatory",
    "aiopurgatory.bus.Bus",
    "aiopurgatory.bus.LocalBus",
    "aiopurgatory.journal.Journal",
    "aiopurgatory.streams.EventLog",
    "aiopurgatory.web.LongPolling",
]
#: The grammar leaves out the timer for the core, the store for a log, and the server for a bus in memory.
INNER = {"aiopurgatory.timer.Timer", "aiopurgatory.streams.store.Store", "aiopurgatory.testing.MemoryServer"}
#: Observers observe; they are not observed.
UNOBSERVED = {"aiopurgatory.journal.Journal"}


#: The source is the same, and the interpreted form tells.
needs_annotations = pytest.mark.skipif(aiopurgatory.COMPILED, reason="compiled functions have no annotations")


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that *kind* has of this library."""
    for base in kind.__mro__:
        if base.__module__.startswith("aiopurgatory"):
            yield from ((name, member) for name, member in vars(base).items() if not name.startswith("_"))


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function and method, with a name for messages."""
    for name, thing in PUBLIC.items():
        if inspect.isclass(thing):
            yield from ((f"{name}.{method}", member) for method, member in methods(thing) if callable(member))
        elif callable(thing):
            yield name, thing


def explained() -> Iterator[tuple[str, Any]]:
    """Every public class and function, method and property: what an editor shows the docstring of."""
    for name, thing in PUBLIC.items():
        if callable(thing):
            yield name, thing
        for member, _ in methods(thing) if inspect.isclass(thing) else ():
            found = getattr(thing, member)
            if inspect.isroutine(found) or isinstance(found, property | cached_property):
                yield f"{name}.{member}", found


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def returned(function: Any) -> str:
    return str(function.__annotations__.get("return"))


def test_public_names_have_docstrings_and_signatures() -> None:
    for name, found in explained():
        assert inspect.getdoc(found), name
        if not inspect.isclass(found) and not isinstance(found, property | cached_property):
            assert inspect.signature(found).parameters, name


def test_public_docstrings_explain_every_field() -> None:
    for name, found in CLASSES.items():
        fields = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
        for field in getattr(found, "_fields", fields):
            said = re.search(rf"^ *{field}: ", inspect.getdoc(found) or "", re.MULTILINE)
            assert said or field.startswith("_"), f"{name}.{field} is not explained"


def test_hovers_have_no_numbers_and_sources_of_the_code() -> None:
    for name, found in explained():
        numbers = re.findall(r"\bI\d+\b|^ *(?:Source|Invariants):.*", inspect.getdoc(found) or "", re.MULTILINE)
        assert not numbers or name.endswith(".check_invariants"), f"{name}: {numbers}"


def test_no_method_has_two_names_for_soon() -> None:
    assert [name for name, _ in functions() if name.endswith(("_soon", "_later", "_async"))] == []


def test_threadsafe_methods_have_a_twin_without_the_suffix() -> None:
    names = {name for name, _ in functions()}
    threadsafe = {name for name in names if name.endswith("_threadsafe")}
    assert {name.rpartition(".")[2] for name in threadsafe} == {"notify_threadsafe", "publish_threadsafe"}
    assert {name.removesuffix("_threadsafe") for name in threadsafe} <= names


@needs_annotations
def test_notify_returns_nothing_and_check_a_number() -> None:
    for name, function in functions():
        method = name.rpartition(".")[2]
        if name.startswith("aiopurgatory.bus.targets.Target"):
            continue  # code of others may return anything
        if method in ("notify", "notify_all", "notify_threadsafe", "publish", "publish_threadsafe"):
            assert returned(function) == "None", name
        if method in ("check_and_complete", "check_all", "expire_all"):
            assert returned(function) in ("int", "<class 'int'>"), name


def test_timeout_is_a_keyword() -> None:
    for name, function in functions():
        timeout = parameters(function).get("timeout")
        if timeout is not None and not name.endswith(".reschedule"):  # there it is the subject of the method
            assert timeout.kind is inspect.Parameter.KEYWORD_ONLY, name


@needs_annotations
@pytest.mark.parametrize("name", LONG_LIVED)
def test_what_lives_long_has_one_life_cycle(name: str) -> None:
    kind: Any = PUBLIC[name]
    for method in ("start", "aclose", "__aenter__", "__aexit__"):
        assert inspect.iscoroutinefunction(getattr(kind, method)), method
    snapshot = next(
        thing
        for thing in CLASSES.values()
        if dataclasses.is_dataclass(thing) and thing.__name__ in returned(kind.statistics)
    )
    assert snapshot.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "name" in {field.name for field in dataclasses.fields(snapshot)}
    assert "name" in parameters(kind)
    assert ("observers" in parameters(kind)) is (name not in UNOBSERVED)


def test_errors_are_public_and_below_the_root() -> None:
    builtin = (TypeError, ValueError, RuntimeError, TimeoutError)
    for name, thing in CLASSES.items():
        if issubclass(thing, BaseException):
            assert issubclass(thing, (PurgatoryError, *builtin)), name


def test_packages_export_few_names() -> None:
    assert sum(len(module.__all__) for module in MODULES) <= 80


def test_one_class_for_each_name() -> None:
    root = Path(str(aiopurgatory.__file__)).parent
    found = Counter(
        node.name
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in found.items() if count > 1 or hasattr(builtins, name)] == []


def test_every_public_name_is_at_a_glance() -> None:
    named = set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", " ".join(re.findall(r"`([^`]+)`", GLANCE))))
    for name, thing in PUBLIC.items():
        assert name.rpartition(".")[2] in named, name
        if inspect.isclass(thing) and not dataclasses.is_dataclass(thing) and name not in INNER:
            missing = {method for method, _ in methods(thing)} - named
            assert not missing, f"{name}: {missing}"


def test_every_method_at_a_glance_exists() -> None:
    exists = {name.rpartition(".")[2] for name, _ in functions()} | set(dir(asyncio)) | set(dir(builtins))
    exists |= {name.rpartition(".")[2] for name in CLASSES}
    called = set(re.findall(r"`(?:await |async with )?(?:\w+\.)*(\w+)\(", GLANCE))
    assert called - exists == set()
    assert {Purgatory, DelayedOperation, Observer} <= set(PUBLIC.values())
