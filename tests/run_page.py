"""Runs the Python of a Markdown page: python tests/run_page.py PAGE [--apart]

Blocks run in their order, in one namespace; with --apart, each in its own. The output of a block must be the
block of text that follows it. A block with a title is a file: it is written to the current folder and imported, or
run by pytest if its name begins with test_. An HTML comment that begins with "python" is run, too, and not shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^```python(?: title=\"(?P<title>[^\"]+)\")?\n(?P<shown>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?"
    r"|^<!-- python\n(?P<hidden>.*?)^-->\n",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    source: str
    line: int
    title: str | None
    output: str


def blocks(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(page):
        part = "shown" if found["hidden"] is None else "hidden"
        line = page.count("\n", 0, found.start(part))
        yield Block(found[part], line, found["title"], found["output"] or "")


def run(block: Block, page: Path, names: dict[str, Any]) -> None:
    if block.title is None:
        # With these empty lines, a traceback has the line numbers of the page.
        exec(compile("\n" * block.line + block.source, page, "exec"), names)
        return
    Path(block.title).write_text(block.source)
    if block.title.startswith("test_"):
        options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"]
        command = [sys.executable, "-m", "pytest", *options, block.title]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{page.name}, {block.title}:\n{done.stdout}{done.stderr}")
    else:
        import_module(block.title.removesuffix(".py"))


def main(page: Path, apart: bool) -> None:
    sys.path.insert(0, str(Path.cwd()))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text("utf-8")):
        if apart:
            names = {"__name__": "__main__"}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run(block, page, names)
        if printed.getvalue() != block.output:
            sys.exit(f"{page.name}, line {block.line}: it printed\n{printed.getvalue()}and not\n{block.output}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--apart" in sys.argv)
