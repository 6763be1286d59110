"""What docs/job-queue.md, kafka-operations.md and limits-and-leases.md keep in memory."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from web.proxies.recipes import blocks  # type: ignore[import-not-found]

from aiopurgatory import Purgatory

from .helpers import until


def program_of(page: str) -> dict[str, Any]:
    """The names that the blocks of *page* define, in a process of their own."""
    names = dict[str, Any]()
    source = "\n".join(blocks(page, "python"))
    exec(re.sub(r"^(print\()?asyncio\.run\(.*$", "", source, flags=re.MULTILINE), names)
    return names


async def taken(names: dict[str, Any], worker: httpx.AsyncClient) -> str:
    names["queue"].lease_seconds = 30.0
    names["queue"].put("tidy up")
    return str((await worker.get("/next")).json()["lease"])


async def test_lease_of_before_a_restart_ends_no_lease_of_now() -> None:
    old = "none"
    for _ in range(2):
        names = program_of("job-queue.md")
        transport = httpx.ASGITransport(names["app"])
        async with names["purgatory"], httpx.AsyncClient(transport=transport, base_url="http://test") as worker:
            lease = await taken(names, worker)
            assert (await worker.delete(f"/leases/{old}")).json() is False
            assert (await worker.delete(f"/leases/{lease}")).json() is True
        old = lease


async def test_records_for_two_members_released_at_once_wake_both() -> None:
    names = program_of("kafka-operations.md")
    async with Purgatory("share fetch") as purgatory:
        queue = names["ShareQueue"](purgatory, "orders")

        async def member() -> list[str]:
            found: list[str] = await purgatory.watch(names["DelayedShareFetch"](queue, 30.0), ["orders"])
            return found

        members = [asyncio.create_task(member()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.release([str(number) for number in range(15)])  # a fetch takes up to 10
        await asyncio.sleep(0.05)
        assert [member.done() for member in members] == [True, True, False]
        members[2].cancel()
        await asyncio.wait(members)


async def test_users_that_call_no_more_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    names = program_of("limits-and-leases.md")
    await names["main"]()
    await until(lambda: not names["started"])
    assert capsys.readouterr().out == "['at once', 'at once', 'waited', 'at once']\n"
