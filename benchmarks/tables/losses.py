"""Find the measurements in which a peer beats this library."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .results import Results

#: A difference smaller than that between rounds is no loss.
CLEARLY = 1.1
AWAITED = ("Future", "Event", "Ray", "futures", "events", "ray")


def beaten(found: Results) -> str:
    lines = [*in_requests(found), *in_timers(found), *in_operations(found), *in_wake_ups(found)]
    return "".join(f"- {line}\n" for line in lines) or "- Nowhere in this run.\n"


def ours_for(peer: str, name: str = "ours") -> str:
    """Return our form to compare with: ours awaited in tasks, for peers that are awaited in tasks."""
    return f"{name}, awaited" if peer.startswith(AWAITED) else name


def in_requests(found: Results) -> Iterator[str]:
    of = found.where(table="requests")
    for workload, peer in product(of.each("workload"), of.each("competitor")):
        theirs = of.where(workload=workload, competitor=peer)
        ours = of.where(workload=workload, competitor=ours_for(peer))
        if peer.startswith("ours"):
            continue
        rates = []
        for rate in theirs.each("rate"):
            both = [side.where(rate=rate).median("cpu_seconds_per_million") for side in (theirs, ours)]
            if (
                rate
                and theirs.where(rate=rate).mostly_sustained()
                and both[0]
                and both[1]
                and both[0] * CLEARLY < both[1]
            ):
                rates.append(f"{rate:,.0f}/s ({both[0]:.2f} against {both[1]:.2f} s per 1M)")
        if rates:
            yield f"CPU of requests, {workload} time-outs: {peer} at {', '.join(rates)}"


def in_timers(found: Results) -> Iterator[str]:
    of = found.where(table="timers", form="compiled")
    for operation, pending in product(of.each("operation"), sorted(of.each("pending"))):
        point = of.where(operation=operation, pending=pending)
        ours = point.where(design="ours").median("ns")
        for design in point.each("design"):
            theirs = point.where(design=design).median("ns")
            if ours and theirs and theirs * CLEARLY < ours:
                yield f"timers, {operation}, {pending:,} pending: {design}, {theirs:.0f} against {ours:.0f} ns"


def in_operations(found: Results) -> Iterator[str]:
    of = found.where(table="operations")
    for what, peer in product(of.each("what"), of.each("competitor")):
        if peer.startswith("ours"):
            continue
        for series in of.where(what=what, competitor=peer).each("series"):
            point = of.where(what=what, series=series)
            theirs = point.where(competitor=peer).median("value")
            mine = [
                point.where(competitor=name).median("value") for name in (ours_for(peer), f"{ours_for(peer)}, soon")
            ]
            best = min((value for value in mine if value is not None), default=None)
            if best and theirs and theirs * CLEARLY < best:
                yield f"operations, {what}, {series}: {peer}, {theirs:.3g} against {best:.3g}"


def in_wake_ups(found: Results) -> Iterator[str]:
    of = found.where(table="precision", part="wake_ups")
    ours = of.where(design="ours").median("per_second")
    for design in of.each("design"):
        theirs = of.where(design=design).median("per_second")
        if ours and theirs and theirs * CLEARLY < ours:
            yield f"wake-ups when sparse: {design}, {theirs:.2g} against {ours:.2g} per second"
