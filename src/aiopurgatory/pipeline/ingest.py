"""Journal -> clean table, by the day of each operation's end (UTC).

Duplicate rows are dropped. Impossible rows (a negative wait, an unknown outcome) and unusable files (torn, or with a
column of another type) are quarantined with a reason. Nothing is lost silently: rows in = rows out + duplicates +
quarantined, or the stage fails.

  JOURNAL/{operations,statistics}/**.parquet  ->  OUT/versions/<run>/{operations,statistics}/date=.../*.parquet
                                                  OUT/versions/<run>/quarantine/..., and sums for the report
                                                  OUT/manifests/<number>.json: the newest lists the tables' files

A run publishes all of its work at once, or nothing. If two runs overlap, one publishes and the other fails. A run
rebuilds the days with new or changed files, and those before and after them, as a file may hold their rows. The other
days keep their rows. --all rebuilds every day that has files in the journal.

If a file of a day has been deleted since the last run, or cannot be read now, the day keeps its rows, and new files add
theirs. The stage fails if a file cannot be read, or if a new file may repeat rows of the day. It says how many.
--remake rebuilds days with deleted files from the files that are left.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from .cleaning import versions
from .cleaning.cleaner import Job
from .cleaning.files import require_journal
from .cleaning.journal_tables import OPERATIONS, STATISTICS
from .cleaning.table_run import Counts, TableRun
from .cleaning.versions import Manifest
from .spark import folders
from .spark.session import stage_session
from .spark.tasks import Spark

#: The share of the files of a journal that may be torn.
MAX_TORN: Final = 0.1
KEEP: Final = timedelta(hours=24)


class UnreadableError(PurgatoryError):
    """Files of the journal cannot be read now; their days keep the rows they had."""


class LeftOutError(PurgatoryError):
    """Rows of new files were left out, because they may be in the table already."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder for the clean table")
    parser.add_argument("--all", action="store_true", help="also rebuild days whose files have not changed")
    parser.add_argument("--remake", action="store_true", help="also rebuild days with deleted files")
    about = f"share of the files that may be torn (default: {MAX_TORN:g}); above it the stage fails"
    parser.add_argument("--max-torn", type=float, default=MAX_TORN, metavar="SHARE", help=about)
    hours = KEEP / timedelta(hours=1)
    about = f"hours to keep a version after the next is published, for its readers (default: {hours:g})"
    parser.add_argument("--keep-hours", type=float, default=hours, metavar="HOURS", help=about)


def run(args: argparse.Namespace) -> None:
    """Ingest, and print a summary of the rows."""
    folders.refuse_overlap(args.journal, args.out)
    keep = versions.kept_for(args.keep_hours)
    with stage_session("ingest", args) as spark:
        counts = ingest(
            spark,
            args.journal,
            args.out,
            every=args.all,
            remake=args.remake,
            max_torn=args.max_torn,
            keep=keep,
        )
    print(*summary(counts), sep="\n")
    refuse_incomplete(counts)


def summary(counts: dict[str, Counts]) -> Iterator[str]:
    """Yield a summary of the rows, line by line."""
    for name, table in counts.items():
        yield (
            f"{name}: {table.rows_in:,} rows in {table.files:,} files: {table.rows_out:,} clean, "
            f"{table.duplicates:,} duplicates"
        )
        for why, rows in sorted(table.quarantined.items()):
            yield f"  {rows:,} rows quarantined: {why}"
        if table.torn_files:
            yield f"  {table.torn_files:,} files quarantined, with {table.rows_of_torn_files:,} rows by their footers"
        if table.kept_days:
            days = ", ".join(sorted(table.kept_days))
            yield f"  days not rebuilt, because some files are missing or unreadable: {days}"


def refuse_incomplete(counts: dict[str, Counts]) -> None:
    """Raises: LeftOutError, UnreadableError: some rows of the journal are not in the tables."""
    left_out = sum(table.left_out for table in counts.values())
    if left_out:
        raise LeftOutError(
            f"{left_out:,} rows of new files are left out, because the journal has lost other files of their days; "
            "--remake rebuilds these days from the files that are left"
        )
    unreadable = sum(table.unreadable for table in counts.values())
    if unreadable:
        raise UnreadableError(
            f"{unreadable:,} files or folders of the journal cannot be read now; their days keep the rows they had; "
            "make them readable, and run it again"
        )


def ingest(
    spark: Spark,
    journal: str,
    out: str,
    *,
    every: bool = False,
    remake: bool = False,
    max_torn: float = MAX_TORN,
    keep: timedelta = KEEP,
) -> dict[str, Counts]:
    """Publish a new version of the clean tables in *out* from the *journal*; return their counts.

    Args:
        every: rebuild all days (default: only those with new or changed files, and those beside them).
        remake: also rebuild days with deleted files (default: no).
        max_torn: share of the files that may be torn (default: 0.1).
        keep: how long to keep a version after the next one is published (default: 24 hours).

    Raises:
        LostRowsError: the counts do not add up. TornJournalError: more files are torn than *max_torn* allows.
            LostRaceError: another run has published meanwhile. PurgatoryError: there is no journal, or one folder is in
            the other. In each case the tables are unchanged.
    """
    folders.refuse_overlap(journal, out)
    require_journal(journal)
    journal, out = folders.absolute(journal), folders.absolute(out)
    if not 0 <= max_torn <= 1:  # also if it is no number
        raise PurgatoryError(f"max_torn must be a share from 0 to 1, got {max_torn:g}")
    base = versions.current(out)
    incremental = not (every or remake) and base.library == aiopurgatory.__version__
    name, folder = versions.begin(out)
    library = aiopurgatory.__version__
    manifest = Manifest(base.number + 1, name, library, "", dict(base.days), dict(base.file_days))
    counts = {}
    try:
        for table in (OPERATIONS, STATISTICS):
            if os.path.isdir(f"{journal}/{table.name}"):
                job = Job(table.name, folder)
                run = TableRun(spark, f"{journal}/{table.name}", out, job, base, incremental=incremental)
                counts[table.name] = run.into(manifest, remake=remake, max_torn=max_torn)
                manifest.counts[table.name] = vars(counts[table.name])
        versions.publish(out, manifest)
    except BaseException:
        if not versions.is_published(out, manifest):
            folders.remove(folder)
        raise
    versions.remove_old(out, keep)
    return counts
