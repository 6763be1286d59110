"""The tables of fleets: the measurements, the model fitted to them, and its predictions for larger fleets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from buses import model
from buses.model import Assumptions, Costs, Plan, Run

from .results import Results, markdown_table

Row = Sequence[object]

#: Parked polls.
SIZES = (1e6, 10e6, 100e6)
#: The largest number of workers is not used for the fit, but checked against it.
TOLERANCE = 0.2

#: Assumed of a server: Redis runs its commands on one core; each connection to PostgreSQL is a process.
OF_ENGINE = {
    "server_cores": {"postgres": 8, "redis": 1},
    "connections_per_server": {"postgres": 1_000, "redis": 10_000},
}


def markdown(found: Results, given: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Args: given: assumptions other than the defaults."""
    text = "\n### Measured\n\n" + markdown_table(MEASURED, measured_rows(found))
    for engine in found.each("engine"):
        of = found.where(engine=engine)
        if len(of.each("workers")) < 2:
            continue
        costs = model.fit(runs(of, 0, max(of.each("workers")) - 1))
        text += f"\n### {engine}: the model\n\n" + markdown_table(
            ["us of CPU, on an idle core", "each"], cost_rows(costs)
        )
        text += "\n" + checked(costs, of)
        assumed = Assumptions(**{**{name: each[engine] for name, each in OF_ENGINE.items()}, **given})
        text += f"\n### {engine}: fleets\n\n{assumptions(assumed)}\n"
        text += markdown_table(PLANNED, map(plan_row, plans(costs, assumed))) + "\n" + saturates(costs, assumed)
    return text


def runs(found: Results, least: int, most: int) -> list[Run]:
    """Medians of the rounds, of *least* to *most* workers."""
    return [
        Run(
            int(of.median("cores") or 1),
            workers,
            of.median("events_per_second") or 0.0,
            of.median("heartbeat") or 0.0,
            of.median("worker_share") or 0.0,
            of.median("server_share") or 0.0,
        )
        for workers in found.each("workers")
        if least <= workers <= most
        for events in found.each("events")
        if (of := found.where(workers=workers, events=events)).lines
    ]


MEASURED = [
    "",
    "workers",
    "events/s",
    "CPU us per event and worker",
    "worker's share",
    "server's share",
    "bytes per poll",
]


def measured_rows(found: Results) -> Iterable[Row]:
    for engine in found.each("engine"):
        for workers in found.where(engine=engine).each("workers"):
            of = found.where(engine=engine, workers=workers)
            for events in of.each("events"):
                one = of.where(events=events)
                rate, share = one.median("events_per_second") or 0.0, one.median("worker_share") or 0.0
                idle = of.where(events=0.0).median("worker_share") or 0.0
                each = f"{(share - idle) / rate * 1e6:.0f}" if rate else ""
                shares = [one.text(name, "{:.2f} %", 0.01) for name in ("worker_share", "server_share")]
                yield [engine, workers, f"{rate:.0f}", each, *shares, one.text("bytes_per_poll", "{:.0f}")]


def cost_rows(costs: Costs) -> Iterable[Row]:
    yield ["an event, in the worker that publishes it: with its echo and its poll", f"{costs.event * 1e6:.0f}"]
    yield ["an event, in every other worker", f"{costs.receive * 1e6:.0f}"]
    yield ["a message, in the server", f"{costs.message * 1e6:.0f}"]
    yield ["its delivery to a worker, in the server", f"{costs.delivery * 1e6:.0f}"]
    yield ["an idle worker, per second", f"{costs.idle * 1e6:.0f}"]
    yield ["all of it, on busy cores: times at least", f"{costs.least_factor:.2f}"]


def checked(costs: Costs, found: Results) -> str:
    """Compare the model with the runs of the largest number of workers, to which it was not fitted."""
    most = max(found.each("workers"))
    largest = max(runs(found, most, most), key=lambda run: run.events)
    errors = errors_of(costs, largest)
    verdict = "within" if all(abs(error) <= TOLERANCE for error in errors) else "NOT within"
    return f"Checked against {most} workers, {verdict} {TOLERANCE:.0%}: {compared(costs, largest)}.\n"


def errors_of(costs: Costs, run: Run) -> tuple[float, float]:
    """Return the errors for the worker and the server, relative to the measured shares."""
    worker, server = model.on_one_machine(costs, run.cores, run.workers, run.events, run.heartbeat)
    return worker / run.worker_share - 1, server / run.server_share - 1


def compared(costs: Costs, run: Run) -> str:
    predicted = model.on_one_machine(costs, run.cores, run.workers, run.events, run.heartbeat)
    measured = run.worker_share, run.server_share
    return "; ".join(
        f"{name} {one:.2%} predicted, {other:.2%} measured ({error:+.0%})"
        for name, one, other, error in zip(
            ("a worker", "the server"), predicted, measured, errors_of(costs, run), strict=True
        )
    )


def plans(costs: Costs, assumed: Assumptions) -> list[Plan]:
    return [model.plan(costs, assumed, polls) for polls in SIZES]


PLANNED = [
    "million polls",
    "events/s",
    "workers",
    "machines",
    "one channel: worker",
    "server",
    "channels",
    "workers on each",
    "worker",
    "server",
    "servers",
]


def plan_row(plan: Plan) -> Row:
    return [
        f"{plan.polls / 1e6:g}",
        f"{plan.events:,.0f}",
        f"{plan.workers:,}",
        f"{plan.machines:,}",
        f"{plan.one_channel_worker_share:.0%}",
        f"{plan.one_channel_server_share:.0%}",
        plan.channels,
        f"{plan.workers_per_channel:,}",
        f"{plan.worker_share:.0%}",
        f"{plan.server_share:.0%}",
        plan.servers,
    ]


def saturates(costs: Costs, assumed: Assumptions) -> str:
    polls, what = model.saturation(costs, assumed)
    events, workers = polls / 1e6 * assumed.events_per_million, polls / assumed.polls_per_worker
    return (
        f"One channel saturates at {polls / 1e6:.3g} million polls ({events:,.0f} events/s, {workers:,.0f} workers): "
        f"{what} would take more than {assumed.most_share:.0%}.\n"
    )


def assumptions(assumed: Assumptions) -> str:
    return (
        f"Assumed: {assumed.polls_per_worker:,.0f} polls per worker, {assumed.events_per_million:g} events/s per "
        f"million polls, {assumed.bytes_per_poll / 1e3:g} kB per poll (over HTTP: `bench_http.py memory`) and "
        f"{assumed.bytes_per_worker / 1e6:g} MB per worker; machines of {assumed.cores:g} cores, "
        f"{assumed.bytes_per_machine / 1e9:g} GB and {assumed.sockets_per_machine:,.0f} sockets; a heartbeat of "
        f"{assumed.heartbeat:g} s; at most {assumed.most_share:.0%} of a worker's core and of a server's "
        f"{assumed.server_cores:g} for the bus; {assumed.connections_per_server:,.0f} connections per server, of which "
        f"a bus takes two.\n"
    )
