"""The model of a fleet: fitted to runs, it predicts others, and says where one channel is not enough."""

from __future__ import annotations

from dataclasses import replace

import pytest
from buses import model
from buses.model import Assumptions, Costs, Run

#: 200 us to publish and wake, 50 us to hear; 20 us of the server for each message, and 5 for each delivery.
COSTS = Costs(idle=1e-3, event=200e-6, receive=50e-6, server_idle=2e-3, message=20e-6, delivery=5e-6)
HEARTBEAT = 5.0


CORES = 2


def run(workers: int, events: float, costs: Costs = COSTS) -> Run:
    return Run(CORES, workers, events, HEARTBEAT, *model.on_one_machine(costs, CORES, workers, events, HEARTBEAT))


def test_cold_each_worker_hears_the_events_of_all_others() -> None:
    worker, server = model.cold(COSTS, 4, 1_000.0, HEARTBEAT)
    assert worker == pytest.approx(1e-3 + 250 * 200e-6 + 750 * 50e-6)
    assert server == pytest.approx(2e-3 + 1_000 * 20e-6 + 4_000 * 5e-6)


MEASURED = [*((workers, events) for workers in (1, 2, 4) for events in (0.0, 300.0)), (2, 1_500.0)]


#: The costs of an event fall on cores that are busy.
WARM = replace(COSTS, event=600e-6, receive=200e-6, warmth=1.5, least_factor=0.0)


@pytest.mark.parametrize("costs", [COSTS, WARM], ids=["linear", "warm"])
def test_fit_finds_the_costs_and_predicts_another_fleet(costs: Costs) -> None:
    fitted = model.fit(run(*each, costs) for each in MEASURED)
    assert (fitted.warmth, fitted.event, fitted.receive) == pytest.approx((costs.warmth, costs.event, costs.receive))
    measured = run(8, 300.0, costs)
    predicted = model.on_one_machine(fitted, CORES, 8, 300.0, HEARTBEAT)
    assert predicted == pytest.approx((measured.worker_share, measured.server_share))


@pytest.mark.parametrize("polls", [1e6, 10e6, 100e6])
def test_plan_split_leaves_nobody_saturated(polls: float) -> None:
    assumed = Assumptions()
    found = model.plan(COSTS, assumed, polls)
    assert found.workers == polls / assumed.polls_per_worker
    assert found.worker_share <= assumed.most_share
    assert found.server_share <= assumed.most_share * assumed.server_cores
    assert found.channels * found.workers_per_channel >= found.workers
    assert found.servers <= found.channels


@pytest.mark.parametrize(
    ("assumed", "what"),
    [
        (Assumptions(), "the server"),
        (Assumptions(server_cores=1_000), "the workers"),
        (Assumptions(connections_per_server=10), "the server's connections"),
    ],
)
def test_saturation_names_what_is_full_first(assumed: Assumptions, what: str) -> None:
    polls, found = model.saturation(COSTS, assumed)
    assert found == what
    assert model.plan(COSTS, assumed, polls).channels > 1
    assert model.plan(COSTS, assumed, polls * 0.95).channels == 1
