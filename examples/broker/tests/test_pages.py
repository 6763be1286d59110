"""Metrics and the live page show the operations that wait in the broker."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

from .asks import batch, create, fetch_values, produce
from .served import Served, get, wait_until
from .wires import Wire


async def test_metrics_count_what_waits(own_served: Served) -> None:
    async with await Wire.open(own_served.port) as wire, await Wire.open(own_served.port) as helper:
        await create(helper, "metrics")
        await helper.call("metadata", topics=None)
        begin = own_served.pending("fetch")
        await wire.send("fetch", **fetch_values("metrics", 0, wait=60.0))
        wait_until(lambda: own_served.pending("fetch") == begin + 1, "the fetch is counted")
        await produce(helper, "metrics", batch(b"x"))
        await wire.receive()
        wait_until(lambda: own_served.pending("fetch") == begin, "its end, too")


async def test_page_shows_all_purgatories_and_their_keys(own_served: Served) -> None:
    assert "<title>Purgatory</title>" in get(own_served.page_url)
    begin = own_served.pending("fetch")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(await Wire.open(own_served.port)) for _ in range(4)]
        await create(wires[0], "on-the-page")
        for wire in wires:  # it shows the keys that most wait for
            await wire.send("fetch", **fetch_values("on-the-page", 0, wait=60.0))
        wait_until(lambda: own_served.pending("fetch") >= begin + 6, "all wait, as do the followers")
        wait_until(lambda: "on-the-page" in get(f"{own_served.page_url}state"), "the page shows the key")
        shown = json.loads(get(f"{own_served.page_url}state"))["purgatories"]
        assert shown == ["fetch", "produce", "group"]
