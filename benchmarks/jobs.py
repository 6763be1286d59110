"""List the jobs of a run: one process each, in two sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, isinf


@dataclass(frozen=True)
class Job:
    """One process to run."""

    table: str
    title: str
    labels: Mapping[str, object]
    script: str
    arguments: tuple[str, ...]
    form: str = "compiled"
    rated: bool = False  # asks for a rate that may be too much
    always: bool = False  # even when lower rates were too much
    on_pyperf: bool = False


@dataclass(frozen=True)
class Size:
    workloads: tuple[str, ...]
    rates: tuple[float, ...]
    #: Seconds that a trace lasts, and its maximum number of requests.
    seconds: float
    requests: int
    #: Other timers pending.
    pending: tuple[int, ...]
    #: Divides the sizes of the operations.
    scale: int


NORMAL = Size(
    workloads=("few", "many"),
    rates=(20_000, 60_000, 120_000, 200_000, inf),
    seconds=0.5,
    requests=100_000,
    pending=(1_000, 1_000_000),
    scale=10,
)
SMOKE = Size(
    workloads=("many",),
    rates=(5_000,),
    seconds=0.2,
    requests=1_000,
    pending=(1_000,),
    scale=100,
)

SIZES = {"normal": NORMAL, "smoke": SMOKE}

#: label, arguments, form: the competitors that park requests.
COMPETITORS = [
    ("ours", ["--competitor", "ours"], "compiled"),
    ("ours, purge 1000", ["--competitor", "ours", "--set", "purge_interval=1000"], "compiled"),
    ("ours, interpreted", ["--competitor", "ours"], "interpreted"),
    ("ours, awaited", ["--competitor", "awaited"], "compiled"),
    ("old purgatory, purge 1000", ["--competitor", "old"], "compiled"),
    ("old purgatory, purge 10000", ["--competitor", "old", "--set", "purge_interval=10000"], "compiled"),
    ("Future + asyncio.timeout, asyncio", ["--competitor", "futures", "--loop", "asyncio"], "compiled"),
    ("Future + asyncio.timeout, uvloop", ["--competitor", "futures"], "compiled"),
    ("Event per key + wait_for", ["--competitor", "events"], "compiled"),
    ("Ray Serve's shape", ["--competitor", "ray"], "compiled"),
]
#: Workloads beside the seed's two: its name, arguments, and competitors.
CROWDED = (
    "few, 100,000 others parked",
    ["--workload", "few", "--others", "100000", "--gc", "freeze"],
    [
        "ours",
        "ours, awaited",
        "old purgatory, purge 1000",
        "old purgatory, purge 10000",
        "Future + asyncio.timeout, uvloop",
    ],
)
SETTINGS = [
    ("as it comes", []),
    ("purge_interval 1000", ["--set", "purge_interval=1000"]),
    ("purge_interval 10000", ["--set", "purge_interval=10000"]),
    ("tick 10 ms", ["--set", "tick=0.01"]),
    ("tick 0.1 ms", ["--set", "tick=0.0001"]),
    ("wheel_size 64", ["--set", "wheel_size=64"]),
    ("wheel_size 256", ["--set", "wheel_size=256"]),
    ("metrics", ["--observe", "metrics"]),
    ("metrics and journal", ["--observe", "metrics", "--observe", "journal"]),
    ("gc.set_threshold(50_000, 20, 100)", ["--gc", "raised"]),
    ("gc.disable()", ["--gc", "off"]),
]
#: With so many awaited, the garbage collector costs most.
AWAITED = [("ours, awaited", ["--competitor", "awaited"]), ("Future + asyncio.timeout", ["--competitor", "futures"])]
COLLECTORS = [
    ("as it comes", []),
    ("gc.set_threshold(50_000, 20, 100)", ["--gc", "raised"]),
    ("gc.freeze() once they are parked", ["--gc", "freeze"]),
]
#: Scripts with the old purgatory, which is compiled. They run in its folder, where the examples are not at hand.
WITH_OLD = ("bench_operations.py", "bench_requests.py")
TABLES = [
    "requests",
    "ablations",
    "timers",
    "operations",
    "micro",
    "buses",
    "fleets",
    "streams",
    "timeouts",
]


def series(size: Size) -> Iterator[list[Job]]:
    """Lists of jobs that depend on each other: the jobs of one list must run in order."""
    yield from requests(size)
    yield from ablations(size)
    yield from timers(size)
    yield from operations(size)
    told = (
        "--timeout",
        "900",
        "-p1",
        "-n3",
        "-w1",
        "-l1" if size is SMOKE else "-l50",
        "--others",
        str(100_000 // size.scale),
    )
    for form in ("compiled", "interpreted"):
        yield [Job("micro", form, {}, "bench_micro.py", told, form, on_pyperf=True)]
    yield [Job("buses", "all figures", {}, "bench_bus.py", once(size))]
    yield [Job("fleets", "1 to 8 workers", {}, "fleet.py", once(size))]
    yield [Job("streams", "all cases", {}, "bench_streams.py", once(size))]
    for form in ("compiled", "interpreted"):
        yield [Job("timeouts", form, {}, "bench_timeouts.py", once(size), form)]


def once(size: Size) -> tuple[str, ...]:
    """Options of scripts that have rounds and sizes of their own."""
    return ("--lines", "--rounds", "1", "--smoke" if size is SMOKE else "--quick")


def requests(size: Size) -> Iterator[list[Job]]:
    everybody = [label for label, _, _ in COMPETITORS]
    workloads = [(name, ["--workload", name], everybody) for name in size.workloads]
    for workload, told, whose in workloads if size is SMOKE else [*workloads, CROWDED]:
        for label, arguments, form in COMPETITORS:
            if label in whose:
                yield [point(size, label, workload, [*arguments, *told], form, rate) for rate in size.rates]


def point(size: Size, label: str, workload: str, arguments: list[str], form: str, rate: float) -> Job:
    throttled = not isinf(rate)
    count = min(size.requests, int(rate * size.seconds)) if throttled else size.requests
    told = (*arguments, "--rate", str(rate), "--count", str(count))
    labels = {"competitor": label, "workload": workload, "rate": rate if throttled else None}
    title = f"{label}, {workload}"
    return Job("requests", title, labels, "bench_requests.py", told, form, rated=throttled, always=not throttled)


def ablations(size: Size) -> Iterator[list[Job]]:
    forms = [(label, arguments, "compiled") for label, arguments in SETTINGS] + [("interpreted", [], "interpreted")]
    for workload, (label, arguments, form) in product(size.workloads, forms):
        count = size.requests if not arguments and form == "compiled" else int(100_000 * size.seconds)
        told = (*arguments, "--workload", workload, "--rate", "100000", "--count", str(min(count, size.requests)))
        labels = {"setting": label, "workload": workload, "rate": 100_000}
        yield [Job("ablations", f"{label}, {workload}", labels, "bench_requests.py", told, form)]
    for (whose, competitor), (how, collector) in product(AWAITED, COLLECTORS):
        others, count = (1_000, 1_000) if size is SMOKE else (100_000, int(20_000 * max(size.seconds, 2)))
        told = (*competitor, "--workload", "few", "--others", str(others), "--rate", "20000", "--count", str(count))
        labels = {"setting": f"{whose}; {how}", "workload": CROWDED[0], "rate": 20_000}
        yield [Job("ablations", f"{whose}; {how}", labels, "bench_requests.py", (*told, *collector))]


def timers(size: Size) -> Iterator[list[Job]]:
    for design in ("ours", "asyncio", "uvloop"):
        yield from ([timer(size, design, number, "compiled")] for number in size.pending)
    yield [timer(size, "ours", min(100_000, size.pending[-1]), "interpreted")]


def timer(size: Size, design: str, pending: int, form: str) -> Job:
    loops = 1 if size is SMOKE else max(1, 10_000 // pending)
    told = ("--designs", design, "--pending", str(pending), "--timeout", "900", "-p1", "-n1", "-w1", f"-l{loops}")
    return Job("timers", f"{design}, {pending:,}, {form}", {}, "bench_timers.py", told, form, on_pyperf=True)


#: The work measured, and the competitors that can do it.
OPERATIONS = {
    "watch": ["ours", "ours, awaited", "old", "futures", "events", "ray"],
    "parked": ["ours", "ours, awaited", "old", "futures", "events", "ray"],
    "cancelled": ["ours", "ours, awaited", "futures", "events", "ray"],
    "herd": ["ours", "ours, soon", "ours, awaited", "ours, awaited, soon", "old", "futures", "events", "ray"],
    "instant": ["ours", "ours, awaited", "old", "futures", "events", "ray"],
    "nobody": ["ours", "old", "futures", "events", "ray"],
    "million": ["ours"],
}


def operations(size: Size) -> Iterator[list[Job]]:
    for what, competitors in OPERATIONS.items():
        for competitor in competitors:
            told = ("--what", what, "--competitor", competitor, "--scale", str(size.scale))
            labels = {"competitor": competitor}
            yield [Job("operations", f"{what}, {competitor}", labels, "bench_operations.py", told)]
