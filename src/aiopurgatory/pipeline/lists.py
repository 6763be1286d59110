"""Lists of numbers on the command line. argparse names the function in its error."""

from __future__ import annotations


def milliseconds(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in text.split(","))


def counts(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))
