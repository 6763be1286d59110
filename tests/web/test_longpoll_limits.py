"""Limits on the polls of one client, and of all."""

from __future__ import annotations

from typing import Any

import pytest

from aiopurgatory import Purgatory

from .polls import Polls, settle


async def test_newest_poll_of_a_client_ends_its_older_one(polls: Polls, purgatory: Purgatory) -> None:
    oldest = await polls.park(client="ann")
    elsewhere, somebody = await polls.park("other", client="ann"), await polls.park(client="bob")
    older = await polls.park(client="ann")
    newer = polls.start(client="ann")
    assert [(await poll).status for poll in (oldest, older)] == [409, 409]
    assert purgatory.num_delayed == 3
    polls.publish()
    assert [(await poll).status for poll in (newer, somebody)] == [200, 200]
    polls.publish("other")
    assert (await elsewhere).status == 200
    assert polls.polling.statistics().clients == 0


async def test_group_with_too_many_polls_is_refused(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=2, retry_after=(4, 6))
    parked = [await polls.park("a", group="tenant") for _ in range(2)]
    refused = await polls.now("c", group="tenant")
    assert (refused.status, refused.body) == (503, b"this group already has 2 polls waiting (max_per_group=2)")
    assert 4 <= int(refused.headers["retry-after"]) <= 6
    assert (await polls.now("c", group="tenant", known=None)).status == 200  # which need not wait
    parked += [await polls.park("a", group="other"), await polls.park("a")]
    polls.publish("a")
    assert [(await poll).status for poll in parked] == [200] * 4
    assert polls.polling.statistics().groups == 0


async def test_poll_that_replaces_one_of_its_group_needs_no_place_more(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=1)
    older = await polls.park(client="ann", group="tenant")
    newer = polls.start(client="ann", group="tenant")
    assert (await older).status == 409
    assert (await polls.now("other", client="ann", group="tenant")).status == 503
    assert (await polls.now(client="bob", group="tenant")).status == 503
    polls.publish()
    assert (await newer).status == 200


async def test_poll_that_replaces_one_of_another_group_needs_a_place(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=1)
    parked = [await polls.park(client="ann", group="a"), await polls.park(client="bob", group="b")]
    assert (await polls.now(client="ann", group="b")).status == 503
    assert not any(poll.done() for poll in parked)
    polls.publish()
    assert [(await poll).status for poll in parked] == [200, 200]


@pytest.mark.parametrize("ending", ["cancel", "expire", "close"])
async def test_client_is_forgotten_however_its_poll_ends(polls: Polls, purgatory: Purgatory, ending: str) -> None:
    poll = await polls.park(client="ann")
    how: dict[str, Any] = {"cancel": poll.cancel, "expire": purgatory.expire_all, "close": purgatory.close}
    how[ending]()
    await settle()
    assert (poll.done(), polls.polling.statistics().clients) == (True, 0)
