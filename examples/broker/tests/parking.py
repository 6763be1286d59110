"""Requests of each kind that wait, on a broker with followers that lag for long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from .asks import batch, create, fetch_values, join_values, named, produce_values
from .wires import Wire

#: Seconds that each would wait.
LONG: Final = 60.0


Values = dict[str, Any]


async def to_fetch(wire: Wire, helper: Wire) -> Values:
    await create(helper, "to-fetch")
    await helper.call("metadata", topics=None)  # now the followers' fetches wait
    return fetch_values("to-fetch", 0, wait=LONG)


async def to_produce(wire: Wire, helper: Wire) -> Values:
    await create(helper, "to-produce")
    return produce_values("to-produce", batch(b"x"), timeout=LONG)


async def to_join(wire: Wire, helper: Wire) -> Values:
    """The second member waits for the first, which has to join anew."""
    first = await named(helper, "to-join", session=LONG)
    answer = await helper.call("join_group", **join_values("to-join", first, session=LONG))
    assert answer.error_code == ErrorCode.none
    return join_values("to-join", await named(helper, "to-join", session=LONG), session=LONG)


async def to_sync(wire: Wire, helper: Wire) -> Values:
    """The second member waits for the plan of the first."""
    names = [await named(helper, "to-sync", session=LONG) for _ in range(2)]
    for each, name in zip((helper, wire), names, strict=True):
        await each.send("join_group", **join_values("to-sync", name, session=LONG))
    answers = [await each.receive() for each in (helper, wire)]
    follower = next(name for name in names if name != answers[0].leader)
    return {"group_id": "to-sync", "generation_id": answers[0].generation_id, "member_id": follower}


#: Prepares a request that waits, by its kind, and the purgatory in which it does.
PREPARED: Final[dict[str, tuple[str, Callable[[Wire, Wire], Awaitable[Values]]]]] = {
    "fetch": ("fetch", to_fetch),
    "produce": ("produce", to_produce),
    "join_group": ("group", to_join),
    "sync_group": ("group", to_sync),
}


def code_in(api: str, answer: Any) -> ErrorCode:
    """The error code of an answer to one of these."""
    if api == "fetch":
        answer = answer.responses[0].partitions[0]
    if api == "produce":
        answer = answer.responses[0].partition_responses[0]
    code: ErrorCode = answer.error_code
    return code
