"""Versions of the clean table: each run writes a folder of its own, and one manifest publishes all of it at once.

  OUT/versions/<run>/...           files that are never changed: clean rows, quarantined rows, sums
  OUT/manifests/00000007.json      lists the table's files by day; the manifest with the highest number is current

A manifest may name files of several versions, because days that a run has not rebuilt keep theirs. If two runs publish
the same number, one succeeds. The other fails and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypedDict
from uuid import uuid4

import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

from ..minutes.sums import widen
from ..spark import folders
from .duplicates import Range

_FORMAT: Final = 1
NOWHERE: Final = "none"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_RUN: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+")
_MANIFEST: Final = re.compile(r"\d{8,}\.json")
# An unpublished version that is younger than this may belong to a run that still goes on.
_ABANDONED: Final = timedelta(days=2)
#: In hours: a century.
_LONGEST_KEPT: Final = 876_000


class LostRaceError(PurgatoryError):
    """Another run has published meanwhile."""


class LostRowsError(PurgatoryError):
    """More or fewer rows came out than went in."""


@dataclass
class Day:
    """The files and spans of one day."""

    #: By table: files, as paths below the folder, and their numbers of rows.
    files: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    #: By purgatory: the first and the last end, in microseconds.
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: When the first of the day's operations was watched, in microseconds.
    since_us: int | None = None

    def add(self, spans: Mapping[str, tuple[int, int]], since_us: int) -> None:
        """Add the spans of more operations of the day, and when the first of them was watched."""
        widen(self.spans, spans)
        self.since_us = since_us if self.since_us is None else min(self.since_us, since_us)

    def join(self, old: Day, what: tuple[str, ...]) -> None:
        """Add the files of *old* under these names, and its spans."""
        for name in what:
            if name in old.files:
                self.files[name] = [*old.files[name], *self.files.get(name, [])]
        if old.since_us is not None:
            self.add(old.spans, old.since_us)

    def rows(self, what: str) -> int:
        return sum(rows for _, rows in self.files.get(what, []))


class Known(TypedDict):
    """The size of a file, its time of modification in nanoseconds, and the days and ranges of its good rows."""

    size: int
    changed: int
    days: list[str]
    ranges: list[Range]


@dataclass
class FileDay:
    """The state of one table's files in one day's folder of the journal."""

    #: By path below the table's folder.
    files: dict[str, Known] = field(default_factory=dict)
    #: Quarantined rows by reason, and the files with them.
    quarantined: Counter[str] = field(default_factory=Counter)
    quarantine: list[str] = field(default_factory=list)
    #: Torn files: the path, the reason, and the number of rows in the footer.
    torn: list[tuple[str, str, int]] = field(default_factory=list)
    #: Files that could not be read when the version was made, with the error.
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def keep(self, old: FileDay) -> None:
        """Keep the missing files and the quarantined rows of *old*."""
        self.files = old.files | self.files
        self.quarantine.extend(old.quarantine)
        self.quarantined |= Counter(old.quarantined)  # the larger counts


@dataclass
class Manifest:
    """The files that make up the tables. Days are ISO dates; files outside of a day's folder are under NOWHERE."""

    number: int = 0
    run: str = ""
    library: str = ""
    published_at: str = ""
    days: dict[str, Day] = field(default_factory=dict)
    #: By day, and by table.
    file_days: dict[str, dict[str, FileDay]] = field(default_factory=dict)
    #: The counts of the run that published it.
    counts: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, day: Day) -> None:
        """Replace the day *name*, or remove it if *day* has no files."""
        if day.files:
            self.days[name] = day
        else:
            self.days.pop(name, None)

    def files(self, out: str, what: str, first: date | None = None, last: date | None = None) -> list[str]:
        """Return the paths of all files under that name, of the days from *first* to *last*."""
        return [f"{out}/{path}" for _, day in self.between(first, last) for path, _ in day.files.get(what, [])]

    def between(self, first: date | None, last: date | None) -> list[tuple[date, Day]]:
        """Return the days from *first* to *last*, in order. None: no limit."""
        days = [(date.fromisoformat(name), day) for name, day in sorted(self.days.items())]
        return [(day, files) for day, files in days if not (first and day < first) and not (last and day > last)]


def current(out: str) -> Manifest:
    """Return the newest manifest in the folder *out*, or an empty one with the number 0."""
    numbers = _numbers(out)
    return _read(out, numbers[-1]) if numbers else Manifest()


def published(folder: str, as_of: datetime | None = None) -> Manifest:
    """Return the newest manifest in *folder*, or the newest *as_of* a time.

    Raises: PurgatoryError: there are no clean tables, or none of that time is kept.
    """
    out = folders.absolute(folder)
    manifest = current(out)
    if not manifest.number:
        raise PurgatoryError(f"no clean table in {folder}: run aiopurgatory pipeline ingest")
    if as_of is None:
        return manifest
    for number in reversed(_numbers(out)):
        manifest = _read(out, number)
        if datetime.fromisoformat(manifest.published_at) <= as_of:
            return manifest
    raise PurgatoryError(
        f"no version of {folder} from {as_of:%Y-%m-%d %H:%M} is kept, the oldest is from {manifest.published_at}: "
        "keep versions for longer with ingest --keep-hours"
    )


def kept_for(hours: float) -> timedelta:
    """Return how long to keep versions. Raises: PurgatoryError: *hours* is refused."""
    if not 0 <= hours <= _LONGEST_KEPT:
        raise PurgatoryError(f"keep_hours must be from 0 to {_LONGEST_KEPT:,}, got {hours:g}")
    return timedelta(hours=hours)


def begin(out: str) -> tuple[str, str]:
    """Return the name and the folder of a new run."""
    run = f"{datetime.now(UTC).strftime(_STAMP)}-{uuid4().hex[:8]}"
    return run, f"{out}/versions/{run}"


def publish(out: str, manifest: Manifest) -> None:
    """Make *manifest* the current one, and check that all its rows are on the disk.

    Raises: LostRaceError: its number is taken. LostRowsError: rows are missing.
    """
    _count(out, manifest)
    manifest.published_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"format": _FORMAT, **vars(manifest)}, default=vars, separators=(",", ":"))
    if not folders.put_first(_path(out, manifest.number), text):
        raise LostRaceError(
            f"another run has published version {manifest.number} of {out} meanwhile: this run has changed nothing; "
            "run it again"
        )
    _count(out, _read(out, manifest.number))


def is_published(out: str, manifest: Manifest) -> bool:
    """Whether *manifest* is published under its number."""
    return manifest.number in _numbers(out) and _read(out, manifest.number).run == manifest.run


def _count(out: str, manifest: Manifest) -> None:
    """Check the row counts of the version's new files against the disk. Raises: LostRowsError: one differs."""
    new = f"versions/{manifest.run}/"
    named = [each for day in manifest.days.values() for files in day.files.values() for each in files]
    named = [(path, rows) for path, rows in named if path.startswith(new)]

    def found(path: str) -> int:
        return int(pq.read_metadata(f"{out}/{path}").num_rows)

    with ThreadPoolExecutor(8) as pool:
        for (path, rows), there in zip(named, pool.map(found, [path for path, _ in named]), strict=True):
            if rows != there:
                raise LostRowsError(f"{out}/{path} must have {rows} rows, got {there}")


def remove_old(out: str, keep: timedelta) -> None:
    """Remove versions that were superseded longer ago than *keep*, and the remains of killed runs."""
    now = superseded_at = datetime.now(UTC)
    kept: set[str] = set()
    removed: set[str] = set()
    for place, number in enumerate(reversed(_numbers(out))):
        manifest = _read(out, number)
        if place and now - superseded_at >= keep:
            folders.remove(_path(out, number))
            removed |= _runs(manifest)
        else:
            kept |= _runs(manifest)
        superseded_at = datetime.fromisoformat(manifest.published_at)
    for run in folders.names(f"{out}/versions"):
        if not _RUN.fullmatch(run):
            continue
        begun_at = datetime.strptime(run.split("-")[0], _STAMP).replace(tzinfo=UTC)
        if run not in kept and (run in removed or now - begun_at > _ABANDONED):
            folders.remove(f"{out}/versions/{run}")


def _runs(manifest: Manifest) -> set[str]:
    """Return the runs that wrote the files of *manifest*."""
    paths = [path for day in manifest.days.values() for files in day.files.values() for path, _ in files]
    paths += [path for day in manifest.file_days.values() for table in day.values() for path in table.quarantine]
    return {manifest.run} | {path.split("/")[1] for path in paths}


def _numbers(out: str) -> list[int]:
    names = folders.names(f"{out}/manifests")
    return [int(name[:-5]) for name in names if _MANIFEST.fullmatch(name)]


def _path(out: str, number: int) -> str:
    return f"{out}/manifests/{number:08}.json"


def _read(out: str, number: int) -> Manifest:
    path = _path(out, number)
    try:
        known = json.loads(Path(path).read_text(encoding="utf-8"))
        if known.pop("format") != _FORMAT:
            raise ValueError("of another version of the library")
        days = {name: Day(**day) for name, day in known.pop("days").items()}
        file_days = {
            name: {table: FileDay(**known_day) for table, known_day in day.items()}
            for name, day in known.pop("file_days").items()
        }
        return Manifest(**known, days=days, file_days=file_days)
    except (ValueError, KeyError, TypeError) as error:
        raise PurgatoryError(
            f"{path} is not a manifest of a clean table: {error}; ingest into another folder"
        ) from None
