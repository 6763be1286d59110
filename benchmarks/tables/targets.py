"""Define the values to reach, compare them with those measured, and find what peers do better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from .results import Results

Measured = Callable[[Results], float | None]


@dataclass(frozen=True)
class Target:
    what: str
    must_reach: float
    aim: float
    measured: Measured
    more_is_better: bool = False


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def middle(figure: str, **labels: object) -> Measured:
    return lambda found: found.where(**labels).median(figure)


def quotient(above: Measured, below: Measured) -> Measured:
    return lambda found: ratio(above(found), below(found))


def highest(figure: str, **labels: object) -> Measured:
    """Of all rounds."""
    return lambda found: max(found.where(**labels).values(figure), default=None)


def within_rounds(figure: str, label: str, one: object, other: object, **labels: object) -> Measured:
    """Return the median of the rounds' ratios. Within a round, both meet the same disturbances."""

    def measured(found: Results) -> float | None:
        ratios = found.where(**labels).ratios(figure, {label: one}, {label: other})
        return median(ratios) if ratios else None

    return measured


def timer(design: str, pending: int) -> Measured:
    labels = {"operation": "add + cancel", "design": design, "pending": pending}
    return middle("ns", table="timers", form="compiled", **labels)


def operation(what: str, competitor: str, series: str) -> Measured:
    return middle("value", table="operations", what=what, competitor=competitor, series=series)


def micro(what: str) -> Measured:
    return middle("ns", table="micro", operation=what, form="compiled")


def of_engine(engine: str) -> list[Target]:
    on = {"table": "buses", "engine": engine}
    return [
        Target(f"{engine}: never woken in any fault run", 0, 0, highest("never_woken", what="fault", **on)),
        Target(f"{engine}: publish to wake over the bus / local, p50", 16, 10, middle("ratio", what="wake", **on)),
        Target(f"{engine}: the bus's own share of that, us", 190, 50, middle("own_share_us", what="wake", **on)),
        Target(f"{engine}: CPU us per key, receiver", 2.5, 0.5, middle("cpu_us_per_key", what="flood", **on)),
        Target(f"{engine}: gap noticed, slowest, s", 2.5, 2, highest("slowest_s", what="gap", **on)),
    ]


def stream(figure: str, ours: str, what: str) -> Measured:
    return within_rounds(figure, "competitor", ours, dict(STREAMS)[ours], table="streams", what=what)


def block(what: str, loop: str) -> Measured:
    on = {"table": "timeouts", "what": what, "loop": loop, "form": "compiled"}
    return within_rounds("value", "competitor", "ours", "asyncio", **on)


MANY, LOOPS = 1_000_000, ("asyncio", "uvloop")
CALL_LATER = "`call_later()` + `cancel()`"
OLD, PARKED = "old purgatory, purge 10000", "few, 100,000 others parked"
COST = "broker_cpu_us_per_answer"
#: Each of ours, and its peer.
STREAMS = (("RedisLog", "XREAD"), ("MemoryLog", "Queue"))
CASES = {
    "RedisLog": {"10 x 10": (0.35, 0.2), "2 x 100": (0.2, 0.1), "25 x 20": (0.2, 0.1)},
    "MemoryLog": {"10 x 10": (1.1, 0.8), "2 x 100": (0.8, 0.5), "25 x 20": (0.9, 0.6)},
}
TARGETS = [
    Target(
        f"CPU of a request at 60,000/s beside 100,000 parked, ours / {OLD}",
        *(0.7, 0.4),
        within_rounds(
            *("cpu_seconds_per_million", "competitor", "ours", OLD), table="requests", workload=PARKED, rate=60_000
        ),
    ),
    *(
        Target(
            f"timer add + cancel / {loop}'s {CALL_LATER}, 1M pending",
            *(0.05, 0.025, quotient(timer("ours", MANY), timer(loop, MANY))),
        )
        for loop in LOOPS
    ),
    *(
        Target(
            f"{what} / asyncio's {CALL_LATER}, no others",
            *(*goal, quotient(micro(what), micro("call_later + cancel"))),
        )
        for what, goal in {
            "watch + complete, 1 key": (1.1, 0.45),
            "watch + complete, 3 keys": (1.4, 0.65),
            "check, nobody waits": (0.055, 0.03),
        }.items()
    ),
    Target(
        "10 keys, one request: ours, awaited / Ray Serve's shape",
        *(0.125, 0.05),
        quotient(operation("watch", "ours, awaited", "10 keys"), operation("watch", "ray", "10 keys")),
    ),
    Target("longest loop turn, 1M timers, ms", 20, 8, operation("million", "ours", "longest turn, ms")),
    Target(
        "longest loop turn, 100k waiters of one key, `notify()`, ms",
        *(20, 8, operation("herd", "ours, soon", "longest turn, frozen, ms")),
    ),
]
#: Those of a section are shown in it.
OF_SECTION = {
    "buses": [
        *of_engine("postgres"),
        *of_engine("redis"),
        Target("longest turn after a gap, 100,000 waiters, ms", 10, 6, middle("longest_turn_ms", what="turn")),
        Target("the same, awaited by 100,000 tasks", 10, 6, middle("longest_turn_ms", what="turn, awaited")),
    ],
    "brokers": [
        Target(
            "1,000 parked, 100 produced/s: broker's CPU per answer, ours / Event",
            *(0.85, 0.7, within_rounds(COST, "broker", "ours", "event", table="brokers", what="parked")),
        ),
        Target(
            "24 idle consumers: percent of a core",
            *(2.3, 1.0, middle("broker_cpu_percent", table="brokers", what="grouped", broker="ours")),
        ),
    ],
    "streams": [
        *(
            Target(f"CPU per event, {ours} / {peer}, {what}", *goal, stream("cpu_us_per_event", ours, what))
            for ours, peer in STREAMS
            for what, goal in CASES[ours].items()
        ),
        Target("append to line, p50, RedisLog / XREAD, 25 x 20", 0.6, 0.3, stream("p50_ms", "RedisLog", "25 x 20")),
        *(
            Target(
                f"memory of a listener, {ours} / {peer}, 25 x 20",
                *(0.4, 0.25, stream("kb_per_listener", ours, "25 x 20")),
            )
            for ours, peer in STREAMS
        ),
        Target(
            "connections to Redis per worker, 25 x 20",
            *(3, 2, middle("connections", what="25 x 20", competitor="RedisLog")),
        ),
    ],
    "timeouts": [
        Target(f"{loop}: {title}, ours / `asyncio.timeout()`", *goal, block(what, loop))
        for loop in LOOPS
        for what, title, goal in (
            ("cost", "CPU", (0.3, 0.15)),
            ("traced", "memory while the block waits", (0.5, 0.3)),
        )
    ],
    "follow": [
        Target(
            f"{what}: CPU per value, `follow()` / `asyncio.Queue`",
            *(1.0, 0.7, within_rounds("cpu_us", "competitor", "follow", "queue", table="follow", what=what)),
        )
        for what in ("crowd", "single", "at hand")
    ],
    "replay": [
        Target(
            "a publish, round trip, with replay / without",
            *(1.5, 1.1, within_rounds("round_trip_us", "replay", "with", "without", table="replay", batch=1)),
        )
    ],
    "servers": [
        Target(
            f"{package}: p50, ours / theirs",
            *(0.05, 0.01, within_rounds("p50_ms", "wait", "ours", "theirs", table="servers", package=package)),
        )
        for package in ("arq", "taskiq")
    ],
}

HEAD = ["what", "must reach", "aim", "measured", ""]


def rows(found: Results, targets: Iterable[Target] = TARGETS) -> list[list[str]]:
    return list(_rows(found, targets))


def _rows(found: Results, targets: Iterable[Target]) -> Iterator[list[str]]:
    for target in targets:
        value = target.measured(found)
        if value is None:
            continue
        sign = 1 if target.more_is_better else -1
        verdict = "aim" if value * sign >= target.aim * sign else "reached"
        if value * sign < target.must_reach * sign:
            verdict = "missed"
        yield [
            target.what,
            *(f"{each:,.3g}" if each < 1000 else f"{each:,.0f}" for each in (target.must_reach, target.aim, value)),
            verdict,
        ]


#: A difference smaller than that between rounds is no loss.
CLEARLY = 1.1
AWAITED = ("Future", "Event", "Ray", "futures", "events", "ray")
#: Of a table: the figure that a peer may beat, what names the peer, and the labels of a comparison.
COMPARED = {
    "requests": ("cpu_seconds_per_million", "competitor", ("workload", "rate")),
    "timers": ("ns", "design", ("operation", "pending")),
    "operations": ("value", "competitor", ("what", "series")),
}


def losses(found: Results) -> str:
    """List the measurements in which a peer beats this library. Waits in tasks are compared with waits in tasks."""
    lines = []
    for table, (figure, name, labels) in COMPARED.items():
        of = Results(line for line in found.where(table=table).lines if line.get("form", "compiled") == "compiled")
        for group in of.groups(labels):
            point = of.where(**group)
            for peer in point.each(name):
                theirs, ours = point.where(**{name: peer}), "ours, awaited" if peer.startswith(AWAITED) else "ours"
                known = [point.where(**{name: each}).median(figure) for each in (ours, f"{ours}, soon")]
                mine, its = min(filter(None, known), default=0.0), theirs.median(figure)
                in_time = table != "requests" or (group["rate"] and theirs.mostly_sustained())
                if its and in_time and its * CLEARLY < mine and not peer.startswith("ours"):
                    where = ", ".join(map(str, group.values()))
                    lines.append(f"- {table}, {where}: {peer}, {its:.3g} against {mine:.3g}\n")
    return "".join(lines) or "- Nowhere in this run.\n"
