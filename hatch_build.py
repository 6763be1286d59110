"""Compiles with mypyc, adds the docstrings of the sources, makes the README's links absolute; see pyproject.toml."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# Functions import mypyc and setuptools, because hatchling reads this file before they are installed.

#: With these, compiled functions call each other directly and can be inlined, as nothing outside the module may replace
#: them. An operation is a tenth quicker. -Wno-error: a newer compiler's warnings must not prevent an installation.
FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt", "-Wno-error"]

#: The places for docstrings in mypyc's C. Each match ends there, and its group is the C name.
ROOM = r'(?:NULL|"(?:[^"\\]|\\.)*")'
PLACES = [
    r'"([\w.]+)",\s*NULL(?=, /\* docstring \*/)',  # modules
    rf"\b(CPyType_\w+)_template_ = {{[^{{}}]*\.tp_doc = PyDoc_STR\({ROOM}",  # classes
    rf'\b(CPyPy_\w+),[^"{{}};]*PyDoc_STR\({ROOM}',  # functions and methods
    r"\(getter\)(\w+),\s*(?:NULL|\(setter\)\w+),\s*NULL",  # properties
]


class CompilingBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a compiled module beside an edited source would win silently
            return
        # Outside of the checkout, for the same reason. finalize() is called once the wheel is written.
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        with chdir(self.root):  # tracebacks show the paths that mypyc is given
            paths = sorted(self._paths("include") - self._paths("exclude"))
            extensions = generate(paths, folder / "c")
            missing = add_docstrings(paths, [Path(source) for extension in extensions for source in extension.sources])
        if missing:  # help() knows less then; that is no reason to refuse an installation
            self.app.display_warning(
                f"no place for the docstring of {', '.join(missing)} in the C of mypyc; if mypyc is a new version, "
                "look at the C, and correct PLACES in hatch_build.py"
            )
        for library in build(extensions, folder):
            build_data["force_include"][str(library)] = library.relative_to(folder / "lib").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()

    def _paths(self, option: str) -> set[Path]:
        return {path for pattern in self.config[option] for path in Path().glob(pattern)}


class ReadmeHook(MetadataHookInterface):
    """The README as the package's description, with absolute links if README_LINKS says where they lead."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, os.environ.get("README_LINKS", "")),
        }


def absolute_links(text: str, base: str) -> str:
    """Return the Markdown *text* with its relative links made absolute, except in blocks of code.

    Args: base: URL of the checkout's files, such as https://github.com/OWNER/NAME/blob/TAG/. Empty: nothing changes.
        That is a page about each file. Images lead to the file itself, at ``raw``.
    """
    if not base:
        return text
    base = f"{base.rstrip('/')}/"

    def absolute(link: re.Match[str]) -> str:
        return link[0] + (base.replace("/blob/", "/raw/") if link[0].startswith("!") else base)

    parts = re.split(r"(?ms)(^```.*?^```$)", text)  # every second one is a block of code
    parts[::2] = [re.sub(r"(!\[[^]]*)?\]\((?![a-z]+:|#|/)", absolute, part) for part in parts[::2]]
    return "".join(parts)


def generate(paths: list[Path], folder: Path) -> list[Any]:
    """Have mypyc write its C. Returns: the extensions that setuptools is to build."""
    import setuptools  # noqa: F401  # first: without it, mypyc uses distutils
    from mypyc.build import mypycify

    # Without the checkout's configuration, and without a cache in the checkout. Silent about modules that are not
    # compiled: those of packages with extras import libraries that are not installed here.
    say(f"mypyc checks the types of {len(paths)} modules, and writes C")
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={folder / 'cache'}"]
    return mypycify([*options, *(path.as_posix() for path in paths)], opt_level="3", target_dir=str(folder))


def build(extensions: list[Any], folder: Path) -> list[Path]:
    """Compile the C. Returns: the libraries; their paths in the wheel are those below ``folder / "lib"``."""
    from setuptools import Distribution, errors
    from setuptools.command.build_ext import build_ext

    for extension in extensions:
        if sys.platform != "win32":
            extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]  # the list is shared

    class Talking(build_ext):
        """Says which package it builds. All code is in the first extension, which has no package."""

        said = ""

        def build_extension(self, extension: Any) -> None:
            package = extension.name.rpartition(".")[0] or "the code of all modules, which takes longest"
            if package != self.said:
                say(f"the C compiler builds {package}")
            self.said = package
            super().build_extension(extension)

    command = Talking(Distribution({"ext_modules": extensions}))
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "objects")
    command.ensure_finalized()
    try:
        command.run()
    except (OSError, errors.BaseError, errors.CCompilerError) as exc:
        sys.exit(f"no C compiler, or it failed; without HATCH_BUILD_HOOKS_ENABLE the wheel is pure Python: {exc}")
    return [Path(output) for output in command.get_outputs()]


def say(progress: str) -> None:
    """Show *progress* at once: a build takes up to minutes. The Makefile shows these lines alone."""
    print(f"  {progress}", flush=True)


def add_docstrings(paths: list[Path], c_sources: list[Path]) -> list[str]:
    """Write the docstrings of *paths* into *c_sources*. mypyc 2.4 itself writes only signatures.

    Returns: the names whose docstrings found no place there.
    """
    docs = {c_name: (name, doc) for name, c_name, doc in docstrings(paths) if doc}
    filled = set()

    def fill(place: re.Match[str]) -> str:
        c_name = place[1]
        if c_name not in docs:
            return place[0]
        filled.add(c_name)
        return place[0].removesuffix("NULL") + c_literal(docs[c_name][1])

    for c_source in c_sources:
        text = c_source.read_text("utf-8")
        for pattern in PLACES:
            text = re.sub(pattern, fill, text)
        c_source.write_text(text, "utf-8")
    return [name for c_name, (name, _) in docs.items() if c_name not in filled]


def docstrings(paths: list[Path]) -> Iterator[tuple[str, str, str | None]]:
    """Yield the name, the name in C, and the raw docstring of each module, class, function and property.

    inspect.getdoc() removes the indentation. Done twice, that would remove it from lists below a first line, too.
    """
    from mypyc.namegen import NameGenerator

    modules = [".".join(path.with_suffix("").parts[1:]) for path in paths]
    c_names = NameGenerator([modules])
    for path, module in zip(paths, modules, strict=True):
        tree = ast.parse(path.read_bytes())
        yield module, module, ast.get_docstring(tree, clean=False)
        for names, node in definitions(tree):
            if isinstance(node, ast.ClassDef):
                c_name = "CPyType_" + c_names.private_name(module, ".".join(names))
            elif "property" in map(ast.unparse, node.decorator_list):
                c_name = c_names.private_name(module, "_get_".join(names))
            elif isinstance(node, ast.AsyncFunctionDef):
                c_name = f"the coroutine {module}.{'.'.join(names)}"  # has no C name, and cannot have a __doc__
            else:
                c_name = "CPyPy_" + c_names.private_name(module, ".".join(names))
            yield ".".join([module, *names]), c_name, ast.get_docstring(node, clean=False)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions(node: ast.Module | ast.ClassDef) -> Iterator[tuple[list[str], Definition]]:
    """Yield each definition of a module and its classes: the names on the path to it, and the node."""
    for child in node.body:
        if isinstance(child, Definition):
            yield [child.name], child
        if isinstance(child, ast.ClassDef):
            yield from (([child.name, *names], inner) for names, inner in definitions(child))


def c_literal(text: str) -> str:
    """Return C literals for *text*, one for each line: MSVC takes none of more than 16 kB."""
    from mypyc.codegen.cstring import c_string_initializer

    return "\n".join(c_string_initializer(line.encode()) for line in text.splitlines(keepends=True))
