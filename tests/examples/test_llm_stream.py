"""The example of a model's answers: as a script, and in several workers with a real Redis."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any, cast

import httpx
import pytest
from llm_stream import listen
from private_servers import Redis, free_port, program

from .helpers import ENV, EXAMPLES, start

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


@pytest.mark.slow
@needs_redis
def test_answer_is_followed_in_each_of_three_workers() -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--workers", "3", "--port", str(port), "--log-level", "warning"]
    with Redis() as redis:
        env = ENV | {"REDIS_URL": redis.url()}
        served = subprocess.Popen([*command, "--app-dir", str(EXAMPLES), "llm_stream:app"], env=env)
        try:
            asyncio.run(listen_often(f"http://127.0.0.1:{port}"))
        finally:
            served.terminate()
            assert served.wait(20) == 0


async def listen_often(address: str) -> None:
    limits = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each
    async with httpx.AsyncClient(base_url=address, timeout=20.0, limits=limits) as client:
        end = time.monotonic() + 20
        while True:
            try:
                answer = (await client.post("/answers", params={"prompt": "Why?"})).json()
                break
            except httpx.ConnectError:
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
        whole = asyncio.gather(*(listen(client, answer) for _ in range(20)))
        after = ""
        pieces: list[list[str]] = []
        while not pieces or pieces[-1][0] != "event: end":
            found = await listen(client, answer, after, most=20)
            pieces += found
            after = found[-1][1].removeprefix("id: ")
        assert [pieces] * 20 == await whole
        assert len(pieces) == 201
