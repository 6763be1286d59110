"""The tables of the pipeline: its targets, and the measurements of each competitor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .results import Results, markdown_table
from .targets import HEAD, Target, ratio, rows

Row = Sequence[object]

LARGE, SMALL = 10_000_000, 1_000_000
OURS = "ours"


def median_of(figure: str, **labels: object) -> Callable[[Results], float | None]:
    return lambda found: found.where(table="pipelines", **labels).median(figure)


def ratio_of(
    above: Callable[[Results], float | None], below: Callable[[Results], float | None]
) -> Callable[[Results], float | None]:
    return lambda found: ratio(above(found), below(found))


def session(figure: str, competitor: str, size: int) -> Callable[[Results], float | None]:
    return median_of(figure, what="session", competitor=competitor, rows=size)


def _started(of: Results) -> float | None:
    start, first = of.median("start_cpu"), of.median("first_cpu")
    return None if start is None or first is None else start + first


DEMO, TWO_MB = 30_000, 230_000

TARGETS = [
    Target("ingest + report, 10M rows, CPU s, first in a session", 70, 50, session("first_cpu", OURS, LARGE)),
    Target("the same, in a warm session", 35, 25, session("again_cpu", OURS, LARGE)),
    Target(
        "10M rows / 1M rows, CPU", 4, 3, ratio_of(session("first_cpu", OURS, LARGE), session("first_cpu", OURS, SMALL))
    ),
    Target("`pipeline run`, 30,000 rows, s until the first page", 20, 12, median_of("first_page_wall", rows=DEMO)),
    Target("`pipeline run`, 30,000 rows, with advice, s", 75, 45, median_of("whole_wall", what="command", rows=DEMO)),
    Target("the same with nothing new, s", 12, 8, median_of("nothing_new_wall", rows=DEMO)),
    Target("`pipeline run`, one new file of 365 days / all", 0.25, 0.15, median_of("one_file_of_whole", what="year")),
]


def markdown(found: Results) -> str:
    """Of the lines of the table pipelines."""
    text = ""
    for what, (title, head, cells) in SECTIONS.items():
        of = found.where(what=what)
        if of.lines:
            text += f"\n### {title}\n\n" + markdown_table(head, cells(of))
    return text


def section(found: Results) -> str:
    """The body of the section Pipeline of RESULTS.md."""
    return markdown_table(HEAD, rows(found, TARGETS)) + markdown(found)


def _each(found: Results, *labels: str) -> Iterable[tuple[list[object], Results]]:
    """The lines of each combination of *labels*, in order of appearance."""
    for values in dict.fromkeys(tuple(line[label] for label in labels) for line in found.lines):
        yield list(values), found.where(**dict(zip(labels, values, strict=True)))


def _seconds(of: Results, *names: str) -> list[str]:
    return [of.text(name, "{:.1f}") for name in names]


def session_rows(found: Results) -> Iterable[Row]:
    for (size, competitor), of in _each(found, "rows", "competitor"):
        took = _seconds(of, "start_cpu", "first_cpu", "first_wall", "again_cpu", "again_wall")
        rates = [of.text(f"{name}_rows_s", "{:,.0f}") for name in ("first", "again")]
        memory = [of.text(name, "{:.0f}") for name in ("peak_mb", "java_mb")]
        yield [f"{size:,}", competitor, *took, *rates, *memory]


def process_rows(found: Results) -> Iterable[Row]:
    for (size, competitor), of in _each(found, "rows", "competitor"):
        yield [f"{size:,}", competitor, *_seconds(of, "whole_cpu", "whole_wall")]


def files_rows(found: Results) -> Iterable[Row]:
    for (competitor,), of in _each(found, "competitor"):
        many, few = (of.where(files=name) for name in ("2,000 files", "10 files"))
        compared = ratio(_started(many), _started(few))
        yield [competitor, "start + first", *(f"{_started(of) or 0:.1f}" for of in (many, few)), f"{compared or 0:.2f}"]
        for name in ("first", "again"):
            compared = ratio(many.median(f"{name}_cpu"), few.median(f"{name}_cpu"))
            text = "" if compared is None else f"{compared:.2f}"
            yield [competitor, name, *_seconds(many, f"{name}_cpu"), *_seconds(few, f"{name}_cpu"), text]


def command_rows(found: Results) -> Iterable[Row]:
    for (size,), of in _each(found, "rows"):
        times = _seconds(of, "first_page_wall", "whole_wall", "nothing_new_wall")
        yield [f"{size:,}", of.text("mb", "{:.1f}"), *times]


def year_rows(found: Results) -> Iterable[Row]:
    for (size,), of in _each(found, "rows"):
        yield [f"{size:,}", *_seconds(of, "whole_wall", "one_file_wall"), of.text("one_file_of_whole", "{:.2f}")]


SECTIONS: dict[str, tuple[str, list[str], Callable[[Results], Iterable[Row]]]] = {
    "session": (
        "In a session: ingest + report",
        [
            *("rows", "", "start, CPU s", "first, CPU s", "first, s", "again, CPU s", "again, s"),
            *("first, rows/s", "again, rows/s", "peak MB", "of it Java's"),
        ],
        session_rows,
    ),
    "process": ("One process, once", ["rows", "", "CPU s", "s"], process_rows),
    "files": (
        "2,000 files of 10 rows, and 10 files of the same rows",
        ["", "", "2,000 files, CPU s", "10 files, CPU s", "ratio"],
        files_rows,
    ),
    "command": (
        "`aiopurgatory pipeline run`, from a journal to advice",
        ["rows", "MB", "first page, s", "whole, s", "with nothing new, s"],
        command_rows,
    ),
    "year": (
        "`aiopurgatory pipeline run` on 365 days, and with one more file",
        ["rows", "all, s", "one more file, s", "ratio"],
        year_rows,
    ),
}
