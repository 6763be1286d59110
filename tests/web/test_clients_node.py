"""poll.js and events.js in Node: tests of pages, Electron and scripts use them there."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import EventRoute, LogPolling, LongPollRoute, Policy

from .browser import Site

NODE = shutil.which("node")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NODE is None, reason="node is not installed")]
USE = """
import {{ {client} }} from "./{file}.js";
for await (const news of {client}(process.argv[2], {{ wait: 1.5 }}))
  for (const event of [news].flat()) console.log(JSON.stringify(event.data));
"""
POLICY = Policy(retry_after=(1, 1))
CLIENTS = pytest.mark.parametrize(
    ("client", "file", "path"),
    [("poll", "poll", "polls"), ("events", "events", "events"), ("shared", "tabs", "events")],
)


@pytest.fixture
async def log() -> AsyncIterator[MemoryLog]:
    async with MemoryLog() as log:
        yield log


@pytest.fixture
def site(log: MemoryLog) -> Site:
    events, polls = EventRoute(LogPolling(log, POLICY)), LongPollRoute(LogPolling(log, POLICY))
    return Site(log.purgatory, {}, Route("/events/{topic}", events), Route("/polls/{topic}", polls))


@pytest.fixture
def use(tmp_path: Path) -> Callable[..., Any]:
    for name in ("poll", "events", "tabs"):
        text = files("aiopurgatory.web").joinpath("js", f"{name}.js").read_text("utf-8")
        (tmp_path / f"{name}.js").write_text(text, "utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    async def use(client: str, file: str, url: str) -> list[str]:
        """What the client prints until it ends by itself."""
        assert NODE is not None
        (tmp_path / "use.js").write_text(USE.format(client=client, file=file))
        process = await asyncio.create_subprocess_exec(
            NODE, str(tmp_path / "use.js"), url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(15):
            out, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")
        return [json.loads(line) for line in out.decode().splitlines()]

    return use


@CLIENTS
@pytest.mark.parametrize("refusal", [0, 503, 502])
async def test_client_gets_all_events_after_a_refusal(
    site: Site, log: MemoryLog, use: Any, client: str, file: str, path: str, refusal: int
) -> None:
    async with site.served(), log.run("n") as run:
        site.refusal = refusal, {"Retry-After": "1"} if refusal == 503 else {}
        using = asyncio.create_task(use(client, file, f"{site.address}/{path}/n"))
        while not site.requests:  # noqa: ASYNC110 no event announces it
            await asyncio.sleep(0.01)
        site.refusal = 0, {}
        await run.append("one")
        await asyncio.sleep(1.2)
        await run.append("two")
        await run.end("done")
        assert await using == ["one", "two", "done"]
