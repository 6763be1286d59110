"""What pages keep in memory: job-queue, kafka-operations, limits-and-leases, raw-tcp and your-own-protocol."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from web.proxies.recipes import blocks  # type: ignore[import-not-found]

from aiopurgatory import Purgatory

from .helpers import DOCS, block, until


def program_of(page: str) -> dict[str, Any]:
    """The names that the blocks of *page* define, in a process of their own."""
    names = dict[str, Any]()
    source = "\n".join(blocks(page, "python"))
    source = source.partition("async def get_by_hand")[0]  # of your-own-protocol.md: it needs more names
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


async def test_member_with_an_empty_part_of_the_plan_gets_it() -> None:
    page = (DOCS / "kafka-operations.md").read_text("utf-8")
    (wait,) = re.findall(r"^\| `DelayedSync` .*?`(wait_for\(.*?\))`", page, re.MULTILINE)
    async with Purgatory("sync") as purgatory:
        plans = dict[str, bytes]()
        names = {"wait_for": purgatory.wait_for, "plans": plans, "member": "b", "group": "g"}
        syncing = asyncio.create_task(eval(wait, names))
        await asyncio.sleep(0)
        assert purgatory.check_and_complete(("sync", "g")) == 0  # there is no plan yet
        plans.update(a=b"orders 0", b=b"")  # more members than partitions
        assert purgatory.check_and_complete(("sync", "g")) == 1
        assert await syncing is True


async def test_lines_of_telnet_are_commands_of_the_raw_server() -> None:
    names = dict[str, Any]()
    exec(block("raw-tcp.md", "lines.py"), names)
    async with names["purgatory"]:
        server = await asyncio.get_running_loop().create_server(names["Client"], "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"push one\r\npop\r\npop\n")
        assert [await reader.readline() for _ in range(3)] == [b"pushed\n", b"one\n", b"none\n"]
        writer.close()
        server.close()


@pytest.mark.parametrize(
    ("asked", "status"), [("a\2g\2x\1", 200), ("a\2g\2x,y\1", 200), ("", 400), ("\1", 400), ("a\2g\1", 400)]
)
async def test_odd_list_of_configs_is_no_error_of_the_server(asked: str, status: int) -> None:
    names = program_of("your-own-protocol.md")
    transport = httpx.ASGITransport(names["nacos"], raise_app_exceptions=False)
    async with names["configs"], httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        form, headers = {"Listening-Configs": asked}, {"Long-Pulling-Timeout": "100"}
        answer = await client.post("/nacos/v1/cs/configs/listener", data=form, headers=headers)
        assert answer.status_code == status


async def test_users_that_call_no_more_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    names = program_of("limits-and-leases.md")
    await names["main"]()
    await until(lambda: not names["started"])
    assert capsys.readouterr().out == "['at once', 'at once', 'waited', 'at once']\n"
