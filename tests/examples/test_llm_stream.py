"""The example of a model's answers: as a script, and in several workers with a real Redis."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from llm_stream import listen
from private_servers import Redis, program

from .helpers import ENV, EXAMPLES, block, served, start

THREE = ("--workers", "3")

needs_redis = pytest.mark.skipif(
    program(*Redis.programs) is None, reason="redis-server is not installed: make programs"
)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", pytest.param("redis", marks=needs_redis)])
def test_script_resumes_each_answer(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        if store == "redis":
            monkeypatch.setitem(cast(Any, ENV), "REDIS_URL", stack.enter_context(Redis()).url())
        process = start("llm_stream.py")
        out, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (0, "")
    first, second, third = out.splitlines()
    assert first.startswith("a page got 50 tokens, the first one ['event: token', ")
    assert first.endswith("'data: Why? '], and is loaded again")
    assert second.startswith("it got 150 more, and ['event: end', ")
    assert second.endswith("'data: done']; another page got the same: True")
    assert third.endswith("'data: stopped']")


@pytest.mark.chaos
@needs_redis
def test_answer_is_followed_in_each_of_three_workers() -> None:
    with Redis() as redis, served(EXAMPLES, "llm_stream:app", ENV | {"REDIS_URL": redis.url()}, *THREE) as address:
        asyncio.run(listen_often(address, "/answers", 201))


@pytest.mark.slow
@needs_redis
def test_service_of_the_page_is_followed_in_each_worker(tmp_path: Path) -> None:
    with Redis() as redis:
        service = block("streams.md", "answers.py")
        (tmp_path / "answers.py").write_text(service.replace("redis://127.0.0.1", redis.url()))
        with served(tmp_path, "answers:app", ENV, *THREE) as address:
            asyncio.run(listen_often(address, "/answers/7", 61))


async def listen_often(address: str, asked: str, events: int) -> None:
    limits = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each
    async with httpx.AsyncClient(base_url=address, timeout=20.0, limits=limits) as client:
        answer = (await client.post(asked, params={"prompt": "word " * (events - 1)})).json() or "7"
        whole = asyncio.gather(*(listen(client, answer) for _ in range(20)))
        after = ""
        pieces: list[list[str]] = []
        while not pieces or pieces[-1][0] != "event: end":
            found = await listen(client, answer, after, most=20)
            pieces += found
            after = found[-1][1].removeprefix("id: ")
        assert [pieces] * 20 == await whole
        assert len(pieces) == events
