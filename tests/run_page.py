"""Runs the Python of a Markdown page: python tests/run_page.py PAGE [--apart]

Blocks run in their order, in one namespace; with --apart, each in its own. The output of a block must be the
block of text that follows it. A block with a title is a file: it is written to the current folder and imported, or
run by pytest if its name begins with test_. An HTML comment that begins with "python" is also run, and not shown. At
last, the routes of the page's apps are asked while their purgatories are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
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


async def ask_when_closed(page: Path) -> None:
    """Ask each GET route of the page's apps while its purgatory is closed: it may answer 503, with Retry-After."""
    import httpx
    from starlette.applications import Starlette
    from starlette.routing import Route

    from aiopurgatory import Purgatory

    for purgatory in [each for each in gc.get_objects() if isinstance(each, Purgatory)]:
        await purgatory.start()
        purgatory.close()
    for app in [each for each in gc.get_objects() if isinstance(each, Starlette)]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for route in app.routes:
                if isinstance(route, Route) and "GET" in (route.methods or {"GET"}):
                    path = re.sub(r"\{.*?\}", "7", route.path)
                    answer = await client.get(path, params={"token": "x", "wait": 1})
                    if answer.status_code >= 500 and "retry-after" not in answer.headers:
                        sys.exit(f"{page.name}: {path} answers {answer.status_code} when its purgatory is closed")


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
    if "starlette.applications" in sys.modules:
        asyncio.run(ask_when_closed(page))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--apart" in sys.argv)
