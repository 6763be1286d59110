"""The queues in memory of docs/job-queue.md, as their reader would run them."""

from __future__ import annotations

import re
from typing import Any

import httpx

from .helpers import DOCS


def program_of(page: str) -> dict[str, Any]:
    """The names that the blocks of *page* define, in a process of their own."""
    names = dict[str, Any]()
    source = "\n".join(
        re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    exec(re.sub(r"^asyncio\.run\(.*$", "", source, flags=re.MULTILINE), names)
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
