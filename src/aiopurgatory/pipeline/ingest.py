"""Journal -> clean table, by the date on which an operation ended (UTC).

Rows that are there twice are dropped. What is impossible is quarantined, with its reason: rows (a negative wait, an
unknown outcome) and whole files (torn, or with a column of another type). Nothing is lost silently: rows in = rows out
+ duplicates + quarantined, or the stage fails.

  JOURNAL/{operations,statistics}/**.parquet  ->  OUT/versions/<run>/{operations,statistics}/date=.../*.parquet
                                                  OUT/versions/<run>/quarantine/..., and sums for the report
                                                  OUT/manifests/<number>.json: the newest says what the tables are

A run publishes all of its work at once, or nothing. Of two runs at the same time one publishes; the other one fails,
and says so. A run makes the days anew that the journal has files of. If a file is gone, as when old ones are deleted,
or cannot be read now, its days keep the rows that they have, and new files add theirs. The stage then fails if a file
could not be read, or if a new one may hold rows that are there already, and says how many; --remake makes such days
anew from what is there. With --first-day and --last-day, only these days are made anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, timedelta
from typing import Final

from pyspark.sql import SparkSession

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from .cleaning import versions
from .cleaning.cleaner import Job
from .cleaning.journal_tables import OPERATIONS, STATISTICS
from .cleaning.table_run import Counts, TableRun
from .cleaning.versions import Manifest
from .spark import folders
from .spark.session import stage_session

#: The share of the files of a journal that may be torn.
MAX_TORN: Final = 0.1
KEEP: Final = timedelta(hours=24)


class UnreadableError(PurgatoryError):
    """Files of the journal could not be read now; the days they belong to are as they were."""


class LeftOutError(PurgatoryError):
    """New rows are of days that stay as they were."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder of the clean table")
    parser.add_argument("--first-day", type=date.fromisoformat, help="first day to make anew, as 2026-11-21")
    parser.add_argument("--last-day", type=date.fromisoformat, help="last day to make anew (default of both: all)")
    parser.add_argument("--remake", action="store_true", help="make days anew of which the journal has lost files, too")
    about = f"share of the files that may be torn (default: {MAX_TORN:g}); above it the stage stops"
    parser.add_argument("--max-torn", type=float, default=MAX_TORN, metavar="SHARE", help=about)
    hours = KEEP / timedelta(hours=1)
    about = f"hours for which a version is kept once the next one is there, for who still reads it (default: {hours:g})"
    parser.add_argument("--keep-hours", type=float, default=hours, metavar="HOURS", help=about)


def run(args: argparse.Namespace) -> None:
    """Ingest, and say what became of the rows."""
    folders.refuse_overlap(args.journal, args.out)
    with stage_session("ingest", args) as spark:
        counts = ingest(
            spark,
            args.journal,
            args.out,
            first=args.first_day,
            last=args.last_day,
            remake=args.remake,
            max_torn=args.max_torn,
            keep=timedelta(hours=args.keep_hours),
        )
    print(*said(counts), sep="\n")
    refuse_incomplete(counts)


def said(counts: dict[str, Counts]) -> Iterator[str]:
    """What became of the rows, in lines."""
    for name, of in counts.items():
        yield f"{name}: {of.rows_in:,} rows of {of.files:,} files: {of.rows_out:,} clean, {of.duplicates:,} duplicates"
        for why, rows in sorted(of.quarantined.items()):
            yield f"  {rows:,} rows quarantined: {why}"
        if of.torn_files:
            yield f"  {of.torn_files:,} files quarantined, with {of.rows_of_torn_files:,} rows as far as is known"
        if of.kept_days:
            yield f"  as before, because files of theirs are missing: {', '.join(sorted(of.kept_days))}"


def refuse_incomplete(counts: dict[str, Counts]) -> None:
    """Raises: LeftOutError, UnreadableError: not all rows that the journal has are in the tables."""
    left_out = sum(of.left_out for of in counts.values())
    if left_out:
        raise LeftOutError(
            f"{left_out:,} rows of new files are left out: they are of days of which the journal has lost other files; "
            "--remake makes these days anew, of what is there"
        )
    unreadable = sum(of.unreadable for of in counts.values())
    if unreadable:
        raise UnreadableError(
            f"{unreadable:,} files or folders of the journal cannot be read now, and days of theirs that were there "
            "are as they were; make them readable, and run it again"
        )


def ingest(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    first: date | None = None,
    last: date | None = None,
    remake: bool = False,
    max_torn: float = MAX_TORN,
    keep: timedelta = KEEP,
) -> dict[str, Counts]:
    """Publish a new version of the clean tables in *out* from the *journal*; returns their counts.

    Args:
        first, last: the days to make anew; None: without end.
        remake: make days anew of which the journal has fewer files than before, too.
        max_torn: the share of the files that may be torn.
        keep: for how long a version is kept once the next one is there.

    Raises:
        LostRowsError: the counts do not add up. TornJournalError: more files are torn than may be. LostRaceError:
            another run has published meanwhile. PurgatoryError: there is no journal, or one folder is in the other.
            Then the tables are as they were.
    """
    folders.refuse_overlap(journal, out)
    given, journal, out = journal, folders.qualified(spark, journal), folders.qualified(spark, out)
    if not folders.exists(spark, f"{journal}/{OPERATIONS.name}"):
        raise PurgatoryError(f"journal must be a folder with {OPERATIONS.name} in it, got {given}")
    base = versions.current(spark, out)
    name, folder = versions.begin(out)
    library = aiopurgatory.__version__
    manifest = Manifest(base.number + 1, name, library, "", dict(base.days), dict(base.file_days))
    counts = {}
    try:
        for table in (OPERATIONS, STATISTICS):
            if folders.exists(spark, f"{journal}/{table.name}"):
                run = TableRun(spark, f"{journal}/{table.name}", out, Job(table.name, folder, first, last), base)
                counts[table.name] = run.into(manifest, remake=remake, max_torn=max_torn)
                manifest.counts[table.name] = asdict(counts[table.name])
        versions.publish(spark, out, manifest)
    except BaseException:
        if not versions.is_published(spark, out, manifest):
            folders.remove(spark, folder)
        raise
    versions.remove_old(spark, out, keep)
    return counts
