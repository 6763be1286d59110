"""Draws the wheels of a real timer, for docs/wheels.md: python docs/drawings.py [FOLDER]"""

from __future__ import annotations

import sys
from math import cos, pi, sin
from pathlib import Path

from aiopurgatory.timer import Timer, TimerTask

ASSETS = Path(__file__).parent / "assets"
DEADLINES = (7, 45, 130, 135, 1500)
TIMES = (0, 120, 130)
RADIUS, HOLE, WIDTH, HEIGHT = 80.0, 45.0, 220, 230


def point(radius: float, share: float) -> str:
    """A point of the ring, clockwise from the top."""
    angle = 2 * pi * share - pi / 2
    return f"{RADIUS + radius * cos(angle):.1f} {RADIUS + radius * sin(angle):.1f}"


def segment(number: int, size: int, tasks: int) -> str:
    """One bucket, filled if it holds tasks."""
    start, end = number / size, (number + 1) / size
    path = (
        f"M{point(RADIUS, start)}A{RADIUS} {RADIUS} 0 0 1 {point(RADIUS, end)}"
        f"L{point(HOLE, end)}A{HOLE} {HOLE} 0 0 0 {point(HOLE, start)}Z"
    )
    style = 'fill="#e5484d"' if tasks else 'fill="currentColor" fill-opacity="0.08"'
    x, y = point((RADIUS + HOLE) / 2, (start + end) / 2).split()
    label = f'<text x="{x}" y="{y}" dy="4" fill="#fff">{tasks}</text>' if tasks else ""
    return f'<path d="{path}" {style} stroke="currentColor" stroke-opacity="0.4"/>{label}'


def drawing(timer: Timer) -> str:
    """All wheels of *timer*, the finest one first, with a hand where the time is."""
    rings = []
    for wheel in timer.wheels:
        hand = timer.now // wheel.tick % wheel.size / wheel.size
        buckets = "".join(segment(number, wheel.size, bucket.count) for number, bucket in enumerate(wheel.buckets))
        rings.append(
            f'<g transform="translate({10 + WIDTH * wheel.level} 30)">{buckets}'
            f'<path d="M{RADIUS} {RADIUS}L{point(HOLE, hand)}" stroke="currentColor" stroke-width="2"/>'
            f'<text x="{RADIUS}" y="-12">level {wheel.level}: {wheel.size} x {wheel.tick} ms</text></g>'
        )
    width = WIDTH * len(timer.wheels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT - 20}" width="{width}" role="img" '
        f'fill="currentColor" font-family="sans-serif" font-size="12" text-anchor="middle" style="max-width: 100%">'
        f"<title>The wheels at {timer.now} ms</title>{''.join(rings)}</svg>\n"
    )


def main(folder: Path) -> None:
    timer = Timer()
    for deadline in DEADLINES:
        timer.add(TimerTask(deadline))
    for now in TIMES:
        timer.advance(now, lambda task: None)
        (folder / f"wheels-{now}.svg").write_text(drawing(timer))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ASSETS)
