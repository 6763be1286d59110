"""Long polls as observers and Prometheus see them."""

from __future__ import annotations

from typing import Any

from bus.waits import Told  # type: ignore[import-not-found]
from prometheus_client import CollectorRegistry

from aiopurgatory import Purgatory
from aiopurgatory.metrics import Metrics
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import LongPolling

from .polls import KNOWN, Polls


async def test_observers_are_told_of_the_polling_and_own_ones_of_that_alone(source: Any) -> None:
    both, own, of_the_purgatory = Told(), Told(), Told()
    purgatory = Purgatory("polls", observers=[both, of_the_purgatory])
    polling = LongPolling(purgatory, source, name="orders", observers=[own, both, own])
    assert (polling.name, polling.statistics().name) == ("orders", "orders")
    for _ in range(2):  # it can be opened again
        async with polling:
            await polling.start()
            assert purgatory.is_open
            assert (await polling.answer("n", {})).status == 200
        polling.close()
        assert (await polling.answer("n", KNOWN)).status == 503
    assert own.of == [("opened", polling), ("closed", polling)] * 2
    about = [("opened", purgatory), ("opened", polling), ("closed", purgatory), ("closed", polling)]
    assert both.of == of_the_purgatory.of == about * 2


async def test_refused_polls_of_a_polling_that_opens_again_count_once(source: Any) -> None:
    registry = CollectorRegistry()
    purgatory = Purgatory("polls", max_pending=1, observers=[Metrics(registry)])
    polls = Polls(purgatory, source)
    for round_ in (1, 2):
        await purgatory.start()
        parked = await polls.park()
        assert (await polls.now()).status == 503
        for _ in range(2):
            labels = {"purgatory": "polls", "reason": "full"}
            assert registry.get_sample_value("aiopurgatory_refused_polls_total", labels) == round_
            await polls.polling.aclose()
        await parked


async def test_refused_polls_are_counted_by_reason(source: Any, clock: ManualClock) -> None:
    registry = CollectorRegistry()
    for _ in range(2):  # the second purgatory of a name goes on where the first one ended
        purgatory = Purgatory("polls", clock=clock, max_pending=2, observers=[Metrics(registry)])
        polls = Polls(purgatory, source, max_per_group=1)
        parked = [await polls.park(group="tenant"), await polls.park()]
        answers = [await polls.now(group="tenant"), await polls.now(), await polls.now(group="other")]
        await purgatory.aclose()
        answers += [await parked[0], await parked[1], await polls.now()]
        found = polls.polling.statistics()
        assert (found.refused, found.answered) == ({"group": 1, "full": 2, "closed": 3}, {503: 6})
        reasons = [answer.headers["refused"] for answer in answers]
        assert reasons == ["group", "full", "full", "closed", "closed", "closed"]
        assert [bool(answer.body) for answer in answers] == [True] * 3 + [False] * 3
        await polls.polling.aclose()
    counted = {
        reason: registry.get_sample_value("aiopurgatory_refused_polls_total", {"purgatory": "polls", "reason": reason})
        for reason in ("full", "group", "closed")
    }
    assert counted == {"full": 4, "group": 2, "closed": 6}


async def test_polls_are_counted_under_public_names(source: Any, clock: ManualClock) -> None:
    registry = CollectorRegistry()
    async with Purgatory("polls", clock=clock, observers=[Metrics(registry)]) as purgatory:
        polls = Polls(purgatory, source)
        poll = await polls.park()
        polls.publish()
        assert (await poll).status == 200
    labels = {"purgatory": "polls", "kind": "LongPoll", "outcome": "completed"}
    assert registry.get_sample_value("aiopurgatory_wait_seconds_count", labels) == 1
