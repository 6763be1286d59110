"""Every competitor ends every request once, and as the trace says."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from peers.base import Peer
from peers.events import EventPerKey, RayShape
from peers.futures import FuturePerRequest
from peers.old import Old
from peers.ours import Ours, OursAwaited
from web.polls import until  # type: ignore[import-not-found]
from workload.driver import Driver
from workload.requests import as_requests
from workload.traces import SCHEMA, trace_of

from aiopurgatory.pipeline import model
from aiopurgatory.pipeline.model import Workload

PEERS: dict[str, Callable[[], Peer]] = {
    "ours": Ours,
    "ours, purge 1000": lambda: Ours(purge_interval=1000),
    "ours, purge 5": lambda: Ours(purge_interval=5),
    "awaited": OursAwaited,
    "old": Old,
    "old, purge 5": lambda: Old(purge_interval=5),
    "futures": FuturePerRequest,
    "events": EventPerKey,
    "ray": RayShape,
}
FEW = replace(model.FEW, completion_ms=model.log_normal(8, 24), timeouts_ms=((80.0, 1.0),), key_ranks=(0.0, 30.0))
MANY = replace(FEW, kind="many", completion_ms=model.log_normal(80, 160))


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    return PEERS[request.param]()


def early_by(peer: Peer) -> float:
    """Seconds that a time-out may be early: uvloop rounds its timers to the nearest millisecond, twice."""
    return (
        0.0015 if isinstance(peer, FuturePerRequest) and "uvloop" in type(asyncio.get_running_loop()).__module__ else 0
    )


def left_behind(peer: Any) -> list[object]:
    """Its containers that are not empty."""
    kept = [getattr(peer, name, None) for name in ("_waiting", "_events", "_conditions", "tasks")]
    listed = peer.purgatory.listed() if isinstance(peer, Old) else 0
    return [each for each in (*kept, listed) if each]


@pytest.mark.slow
@pytest.mark.parametrize("workload", [FEW, MANY], ids=["few", "many"])
async def test_driver_ends_each_request_as_the_trace_says(peer: Peer, workload: Workload) -> None:
    table = trace_of(workload, 600, rate=3_000)
    # One that completes about when its time runs out may end either way.
    clear = np.abs(table["completion_us"].to_numpy() - 80_000) > 25_000
    requests = [each for each, keep in zip(as_requests(table), clear, strict=True) if keep]
    arrivals = array("d", (table["arrival_us"].to_numpy()[clear] / 1e6).tolist())
    await peer.start()
    driver = Driver(peer, requests, arrivals)
    await driver.run()
    assert driver.made == len(requests)
    assert peer.tally.completed == sum(latency is not None for _, _, latency in requests)
    assert len(peer.tally.lateness) == sum(latency is None for _, _, latency in requests)
    assert min(peer.tally.lateness) >= -early_by(peer)
    await asyncio.sleep(0)
    assert peer.pending() == 0
    await peer.stop()
    assert left_behind(peer) == []


@pytest.mark.parametrize("name", [name for name in PEERS if name != "futures"])  # there, an event is an answer
async def test_check_leaves_who_is_not_ready(name: str) -> None:
    peer = PEERS[name]()
    await peer.start()
    now = monotonic()
    peer.request(("a", "b"), 0.2, now + 0.2, now + 60.0, b"")
    await asyncio.sleep(0.01)
    peer.check("a")
    await asyncio.sleep(0.01)
    await until(lambda: not peer.pending())
    assert peer.tally.completed == 0
    assert [lateness >= 0.0 for lateness in peer.tally.lateness] == [True]
    await peer.stop()


def test_as_requests_null_or_late_completion_is_none() -> None:
    columns = {
        "arrival_us": [0, 5, 9],
        "keys": [[1, 2], [3], []],
        "completion_us": [4_999, None, 200_000],
        "timeout_us": [5_000, 5_000, 200_000],
    }
    assert as_requests(pa.table(columns, schema=SCHEMA)) == [((1, 2), 0.005, 4), ((3,), 0.005, None), ((), 0.2, None)]
