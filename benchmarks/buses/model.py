"""A model of a fleet: the cost of an event for each worker and the server, fitted to a few runs.

With W workers that publish E events per second together, and a heartbeat of H seconds:

    probes    = max(0, W / H - E)     a worker that has published within a heartbeat sends none
    worker    = idle + event * E / W + receive * (E * (W - 1) / W + probes)
    server    = server_idle + message * (E + probes) + delivery * (E + probes) * W

*event*: CPU seconds to publish an event, receive its echo, end its poll and park it again. *receive*: CPU seconds to
receive an event of another worker.

These are costs on an idle core: caches are cold, and each message wakes a process. On busy cores, all costs shrink by
the same factor, ``1 - warmth * share of the cores in use``, but never below the busiest run measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np

#: Shares below this one are noise: their errors count as if they were of one so large.
LEAST_SHARE: Final = 0.01
#: Polls above which nothing is asked.
MOST_POLLS: Final = 1e12


@dataclass(frozen=True)
class Run:
    """Measurements of one machine. Shares are CPU seconds per second; a worker's is the mean of all workers."""

    cores: int
    workers: int
    events: float
    heartbeat: float
    worker_share: float
    server_share: float


@dataclass(frozen=True)
class Costs:
    """CPU seconds; *idle* and *server_idle* per second."""

    idle: float
    event: float
    receive: float
    server_idle: float
    message: float
    delivery: float
    #: How much less it is on busy cores; and the least factor.
    warmth: float = 0.0
    least_factor: float = 1.0


@dataclass(frozen=True)
class Assumptions:
    """The parts of a fleet, and its load."""

    polls_per_worker: int = 20_000
    #: Events per second for each million of polls.
    events_per_million: float = 100.0
    bytes_per_poll: float = 15_100.0
    bytes_per_worker: float = 60e6
    cores: int = 16
    bytes_per_machine: float = 64e9
    sockets_per_machine: int = 1_000_000
    heartbeat: float = 5.0
    #: How much of a worker's core, and of a server's cores, the bus may take.
    most_share: float = 0.5
    #: Cores that a server can use: Redis runs its commands on one.
    server_cores: int = 1
    connections_per_server: int = 10_000


@dataclass(frozen=True)
class Plan:
    """A fleet for *polls*. *sockets* counts all workers': one for each poll, two for each bus."""

    polls: float
    events: float
    workers: int
    machines: int
    sockets: float
    #: Of one channel for all: the bus's share of a worker's core, and the cores that its server would need.
    one_channel_worker_share: float
    one_channel_server_share: float
    #: Channels that are needed, the workers on each, and the same of them; servers for all of them.
    channels: int
    workers_per_channel: int
    worker_share: float
    server_share: float
    servers: int


def worker_terms(workers: int, events: float, heartbeat: float) -> list[float]:
    """The factor of idle, event and receive."""
    return [1.0, events / workers, events * (workers - 1) / workers + probes(workers, events, heartbeat)]


def server_terms(workers: int, events: float, heartbeat: float) -> list[float]:
    """The factor of server_idle, message and delivery."""
    messages = events + probes(workers, events, heartbeat)
    return [1.0, messages, messages * workers]


def probes(workers: int, events: float, heartbeat: float) -> float:
    return max(0.0, workers / heartbeat - events)


def fit(runs: Iterable[Run]) -> Costs:
    """Fit the costs to all runs. Include a run without events, to tell the costs of idling.

    Include a much busier one, to tell the warmth from the other costs.
    """
    known = list(runs)
    best = min((_fit(known, warmth / 20) for warmth in range(41)), key=lambda found: found[0])
    return best[1]


def cold(costs: Costs, workers: int, events: float, heartbeat: float) -> tuple[float, float]:
    """Returns: the CPU share of a worker, and of the server, if each event finds its core idle."""
    worker = zip((costs.idle, costs.event, costs.receive), worker_terms(workers, events, heartbeat), strict=True)
    server = zip(
        (costs.server_idle, costs.message, costs.delivery), server_terms(workers, events, heartbeat), strict=True
    )
    return sum(cost * term for cost, term in worker), sum(cost * term for cost, term in server)


def factor(costs: Costs, load: float) -> float:
    """The factor by which costs fall on a core with a cold load of *load*: solves f = 1 - warmth * load * f."""
    return max(1 / (1 + costs.warmth * load), costs.least_factor)


def on_one_machine(costs: Costs, cores: int, workers: int, events: float, heartbeat: float) -> tuple[float, float]:
    """Returns: the CPU share of a worker, and of the server, if they share *cores*."""
    worker, server = cold(costs, workers, events, heartbeat)
    warm = factor(costs, (workers * worker + server) / cores)
    return worker * warm, server * warm


def in_fleet(costs: Costs, assumed: Assumptions, workers: int, events: float) -> tuple[float, float]:
    """Returns: the CPU share of a worker, and of the server, on machines of their own."""
    worker, server = cold(costs, workers, events, assumed.heartbeat)
    busy = worker * min(workers, workers_per_machine(assumed)) / assumed.cores
    return worker * factor(costs, busy), server * factor(costs, server / assumed.server_cores)


def plan(costs: Costs, assumed: Assumptions, polls: float) -> Plan:
    """Return the fewest channels with which no worker and no server exceeds its share."""
    workers, events = ceil(polls / assumed.polls_per_worker), polls / 1e6 * assumed.events_per_million
    alone = in_fleet(costs, assumed, workers, events)
    channels = next(
        (
            each
            for each in range(1, workers + 1)
            if _excess(costs, assumed, ceil(workers / each), events / each) is None
        ),
        workers,
    )
    each = ceil(workers / channels)
    share, server = in_fleet(costs, assumed, each, events / channels)
    by_cpu = channels * server / (assumed.most_share * assumed.server_cores)
    return Plan(
        polls=polls,
        events=events,
        workers=workers,
        machines=ceil(workers / workers_per_machine(assumed)),
        sockets=polls + 2 * workers,
        one_channel_worker_share=alone[0],
        one_channel_server_share=alone[1],
        channels=channels,
        workers_per_channel=each,
        worker_share=share,
        server_share=server,
        servers=min(channels, ceil(max(by_cpu, 2 * workers / assumed.connections_per_server))),
    )


def workers_per_machine(assumed: Assumptions) -> int:
    """A core, memory and sockets for each; at least one."""
    by_memory = assumed.bytes_per_machine / (
        assumed.bytes_per_worker + assumed.polls_per_worker * assumed.bytes_per_poll
    )
    by_sockets = assumed.sockets_per_machine / (assumed.polls_per_worker + 2)
    return max(1, int(min(assumed.cores, by_memory, by_sockets)))


def saturation(costs: Costs, assumed: Assumptions) -> tuple[float, str]:
    """Returns: polls above which one channel is not enough, to 1 %; and the resource that is then short."""

    def excess(polls: float) -> str | None:
        workers = ceil(polls / assumed.polls_per_worker)
        return _excess(costs, assumed, workers, polls / 1e6 * assumed.events_per_million)

    low, high = 0.0, float(assumed.polls_per_worker)
    while excess(high) is None and high < MOST_POLLS:
        low, high = high, high * 2
    while high - low > high / 100:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) else (middle, high)
    return high, excess(high) or "nothing"


def _excess(costs: Costs, assumed: Assumptions, workers: int, events: float) -> str | None:
    """The resource asked for more than its share on a channel with *workers* and *events*; None: nothing."""
    worker, server = in_fleet(costs, assumed, workers, events)
    if 2 * workers > assumed.connections_per_server:
        return "the server's connections"
    if server > assumed.most_share * assumed.server_cores:
        return "the server"
    return "the workers" if worker > assumed.most_share else None


def _fit(runs: Sequence[Run], warmth: float) -> tuple[float, Costs]:
    """Returns: the sum of squared errors with this *warmth*, and the costs."""
    factors = [max(0.1, 1 - warmth * (run.workers * run.worker_share + run.server_share) / run.cores) for run in runs]
    errors, costs = 0.0, list[float]()
    for terms_of, shares in (
        (worker_terms, [run.worker_share for run in runs]),
        (server_terms, [run.server_share for run in runs]),
    ):
        terms = [terms_of(run.workers, run.events, run.heartbeat) for run in runs]
        error, found = _least_squares(np.array(terms) * np.array(factors)[:, None], np.array(shares))
        errors += error
        costs += found
    idle, event, receive, server_idle, message, delivery = costs
    return errors, Costs(idle, event, receive, server_idle, message, delivery, warmth, min(factors))


def _least_squares(terms: Any, shares: Any) -> tuple[float, list[float]]:
    """Costs >= 0 with the least sum of squared relative errors, and that sum."""
    weights = 1 / np.maximum(shares, LEAST_SHARE)
    matrix, wanted = terms * weights[:, None], shares * weights
    chosen = list(range(matrix.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)
        if found.min(initial=0.0) >= 0:
            break
        # Noise: the data tell nothing of results below zero.
        del chosen[int(found.argmin())]
    costs = [0.0] * matrix.shape[1]
    for place, cost in zip(chosen, found, strict=True):
        costs[place] = float(cost)
    return float(((matrix @ np.array(costs) - wanted) ** 2).sum()), costs
