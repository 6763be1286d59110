"""Draws the pictures of the README and of docs/, those of docs/wheels.md from a real timer.

python docs/drawings.py [FOLDER]
"""

from __future__ import annotations

import sys
from math import cos, pi, sin
from pathlib import Path

from aiopurgatory.timer import Timer, TimerTask

ASSETS = Path(__file__).parent / "assets"
DEADLINES = (7, 45, 130, 135, 1500)
TIMES = (0, 120, 130)
RADIUS, HOLE, WIDTH, HEIGHT = 80.0, 45.0, 220, 230


#: A page's own color, dark or light. As an image of its own, a drawing has no page around it, and asks the browser.
ALONE = "svg:root{color:#1f2328}@media(prefers-color-scheme:dark){svg:root{color:#e6edf3}}"


def svg(width: int, height: int, title: str, content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'fill="currentColor" font-family="sans-serif" font-size="12" text-anchor="middle" style="max-width: 100%">'
        f"<title>{title}</title><style>{ALONE}</style>{content}</svg>\n"
    )


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
    return svg(WIDTH * len(timer.wheels), HEIGHT - 20, f"The wheels at {timer.now} ms", "".join(rings))


#: What happens, at which place of the line; and when the listener is away.
CHANGES = {1: 90, 2: 170, 3: 250, 4: 330, 5: 410, 6: 530}
AWAY = (210, 460)
#: For each line, what the listener gets, at which place.
STATE = [(1, 90), (2, 170), (5, 460), (6, 530)]
EVENTS = [(1, 90), (2, 170), (3, 460), (4, 480), (5, 500), (6, 530)]


def dots(places: list[tuple[int, int]], height: int, color: str) -> str:
    """A line with numbers on it."""
    line = f'<path d="M70 {height}H570" stroke="currentColor" stroke-opacity="0.4"/>'
    return line + "".join(
        f'<circle cx="{place}" cy="{height}" r="9" fill="{color}"/>'
        f'<text x="{place}" y="{height + 4}" fill="#fff">{number}</text>'
        for number, place in places
    )


def state_or_events() -> str:
    """What a listener gets of a state and of events, when it was away for a while."""
    start, end = AWAY
    labels = "".join(
        f'<text x="62" y="{height + 4}" text-anchor="end">{text}</text>'
        for height, text in ((50, "changes"), (95, "a state"), (140, "events"))
    )
    away = (
        f'<rect x="{start}" y="70" width="{end - start - 12}" height="90" fill="currentColor" fill-opacity="0.08"/>'
        f'<text x="{(start + end) / 2}" y="121">the listener is away</text>'
    )
    happened = dots(list(CHANGES.items()), 50, "#8b8d98")
    got = dots(STATE, 95, "#0072b2") + dots(EVENTS, 140, "#e5484d")
    title = "After a pause, a listener of a state gets the newest one; of events, each"
    return svg(580, 170, title, away + labels + happened + got)


#: The boxes of the life of a request: their middle, width, color, and two lines.
BOXES = [
    (57, 110, 110, "#63656f", "a request", "with its keys"),
    (240, 110, 140, "#63656f", "parked", "until its deadline"),
    (532, 32, 182, "#0072b2", "completed", "gets the value"),
    (532, 110, 182, "#b25f00", "expired", "DeadlineError, or default="),
    (532, 188, 182, "#c8373c", "cancelled or failed", "leaves nothing behind"),
]
#: The ways between them, each with a label and its place.
WAYS = [
    ("M112 110H168", "not yet", 139, 103),
    ("M57 88V32H439", "true at once", 180, 25),
    ("M310 103H324V40H439", "a check: true", 383, 57),
    ("M310 110H439", "its time is up", 380, 103),
    ("M310 117H324V188H439", "its client leaves", 381, 181),
    ("M265 132V168H215V134", "a check: not yet", 240, 185),
]


def life() -> str:
    """The life of a request: parked, then completed, expired, cancelled or failed."""
    boxes = "".join(
        f'<rect x="{x - width / 2:g}" y="{y - 22}" width="{width}" height="44" rx="6" fill="{color}"/>'
        f'<text x="{x}" y="{y - 4}" fill="#fff" font-weight="bold">{name}</text>'
        f'<text x="{x}" y="{y + 13}" fill="#fff">{meaning}</text>'
        for x, y, width, color, name, meaning in BOXES
    )
    ways = "".join(
        f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>'
        f'<text x="{x}" y="{y}">{label}</text>'
        for path, label, x, y in WAYS
    )
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8Z"/></marker>'
    )
    content = f'<g font-size="13">{tip}{ways}{boxes}</g>'
    return svg(626, 220, "A request is parked until it is completed, expired, cancelled or failed", content)


def main(folder: Path) -> None:
    (folder / "life.svg").write_text(life())
    timer = Timer()
    for deadline in DEADLINES:
        timer.add(TimerTask(deadline))
    for now in TIMES:
        timer.advance(now, lambda task: None)
        (folder / f"wheels-{now}.svg").write_text(drawing(timer))
    (folder / "state-or-events.svg").write_text(state_or_events())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ASSETS)
