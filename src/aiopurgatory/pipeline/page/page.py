"""The report's page: one file of HTML that loads nothing, needs no script, and is the same for the same tables.

The template ``page.html`` has its words and tables, and Jinja escapes the names from the journal. This module computes
its plots.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from pyspark.sql import SparkSession

from ..attempts import write
from ..report_tables import COMPARED
from ..tables import ERROR, OUTCOMES, WORK
from .figures import Floats, Plot, count, duration, linear, logarithmic, plot, share, shown
from .promises import PROMISES, Limits, headline
from .reading import ROWS, SHOWN, TIMES, Found, read

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def write_page(spark: SparkSession, out: str, path: Path, limits: Limits | None = None, advice: Any = None) -> None:
    """Write the page of the report in the folder *out*.

    Args:
        path: the file to write or replace, on this machine.
        limits: the promises for every minute (default: Limits()).
        advice: an Advice to show (default: none).
    """
    write(path, page(read(spark, out, limits or Limits()), advice))


def page(found: Found, advice: Any = None) -> str:
    """Return the page as HTML."""
    promises = found.rows["promises"]
    broken = [each.name for each in promises if each.verdict == "broken"]
    values = {
        **found.rows,
        "everything": found.everything,
        "headline": headline(promises),
        "verdict": promises[0].verdict if promises else "unknown",
        "broken": broken,
        "promises": promises[: max(ROWS, len(broken))],
        "axis": found.axis,
        "plots": {purgatory: plots(found, purgatory) for purgatory in found.totals},
        "advice": advice,
    }
    return _template().render(values, hidden=len(promises) - len(values["promises"]))


def _template() -> Template:
    made = Environment(
        autoescape=True, finalize=_printable, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(count=count, share=share, duration=duration, shown=shown)
    made.globals.update(COMPARED=COMPARED, ERROR=ERROR, OUTCOMES=OUTCOMES, PROMISES=PROMISES, WORK=WORK)
    made.globals.update(ROWS=ROWS, SHOWN=SHOWN)
    return made.from_string(files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8"))


def _printable(value: object) -> object:
    """Replace the control characters of a string. Markup, which Jinja has made, stays as it is."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def plots(found: Found, purgatory: str) -> list[Plot]:
    """Return the plots of a purgatory, all on one time axis."""
    return [_rates(found, purgatory), _waiting(found, purgatory), _times(found, purgatory)]


def _rates(found: Found, purgatory: str) -> Plot:
    rates = [found.curve(purgatory, outcome) / found.axis.seconds for outcome in OUTCOMES]
    # Each area reaches down to 0, and hides the lower part of the one before.
    heights = zip(OUTCOMES, np.cumsum(rates, axis=0), strict=True)
    drawn = [(outcome, f"area {outcome}", values) for outcome, values in heights][::-1]
    return plot("Ended per second", found.axis, linear(_highest(drawn[0][2])), drawn)


def _waiting(found: Found, purgatory: str) -> Plot:
    mean, peak = (found.curve(purgatory, each) for each in ("pending_mean", "pending_peak"))
    drawn = [("mean", "area pending", mean), ("peak", "line peak", peak)]
    return plot("Waiting at once", found.axis, linear(_highest(peak)), drawn)


def _times(found: Found, purgatory: str) -> Plot:
    """Draw the slowest kind or minute of each step: percentiles cannot be added."""
    curves = np.array([np.maximum(found.curve(purgatory, each, np.nan), 1.0) for each in TIMES])
    drawn = [(*words, values) for words, values in zip(TIMES.values(), np.log10(curves), strict=True)]
    ticks = logarithmic(float(np.nanmin(curves, initial=1e9)), _highest(curves))
    return plot("Time waited and lateness, slowest kind", found.axis, ticks, drawn)


def _highest(values: Floats) -> float:
    return float(np.nanmax(values, initial=0.0))
