"""Journal -> sums of its rows, by minute, day, key and setting: what the report and the model are made of.

Rows are counted once: copies of a row are dropped, wherever they are. Impossible rows (a negative wait, an unknown
outcome) are quarantined with a reason, and so are files that are torn. Nothing is lost silently: rows in = counted +
duplicates + quarantined, or the stage fails and names the file.

  JOURNAL/{operations,statistics}/**.parquet  ->  OUT/sums

Only new files are read. A file that has changed since is read again; its rows that were counted are duplicates then.
Rows of files that are deleted later stay counted. To remove days from the report, use --forget-before; hot keys stay,
as they have no date.

A day is sealed three days after its last file has come: its folders are not listed any more. For files that come later
than that, use --all-days.

A run that is killed leaves nothing behind that counts; the next one begins again behind the last whole batch. Folders
may be on any file system that Spark knows.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import Line, committed, sums
from .intake import take_in
from .journal_files import CHANGED, NO_JOURNAL, File, day_of, listed, located, unread

#: A day without new files for so long is sealed.
QUIET: Final = timedelta(days=3)
_A_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
#: Files of one batch.
MAX_FILES: Final = 4_000


@dataclass
class Counts:
    """What a run did with the rows of one table."""

    files: int = 0
    rows_in: int = 0
    duplicates: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    #: Files whose rows are not counted, by the reason.
    problems: Counter[str] = field(default_factory=Counter)
    #: The path of the first one.
    first: dict[str, str] = field(default_factory=dict)

    @property
    def counted(self) -> int:
        return self.rows_in - self.duplicates - self.quarantined.total()

    def add(self, file: File) -> None:
        self.files += 1
        self.duplicates += file.duplicates
        self.rows_in += 0 if file.problem else file.rows_in
        if file.problem:
            self.problems[file.problem] += 1
            self.first.setdefault(file.problem, file.path)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.set_defaults(needs={"journal": ("", NO_JOURNAL)})
    parser.add_argument("out", help="folder for the sums")
    about = f"files to read before their sums count (default: {MAX_FILES:,}); a killed run loses what it did since"
    parser.add_argument("--max-files", type=int, default=MAX_FILES, metavar="N", help=about)
    about = "also list sealed days, for files that have come late"
    parser.add_argument("--all-days", action="store_true", help=about)
    about = "remove the days before this one, as 2026-11-21, from the report for good"
    parser.add_argument("--forget-before", type=date.fromisoformat, metavar="DATE", help=about)
    about = "do not end: look for new files every so many seconds"
    parser.add_argument("--follow", type=float, metavar="SECONDS", help=about)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Ingest, and print a summary of the rows."""
    if args.forget_before:
        forget(spark, args.out, args.forget_before)
    while True:
        counts = ingest(spark, args.journal, args.out, max_files=args.max_files, all_days=args.all_days)
        if args.follow is None or any(each.files for each in counts.values()):
            print(*summary(counts), sep="\n", flush=True)
        if args.follow is None:
            return
        time.sleep(args.follow)


def ingest(
    spark: SparkSession, journal: str, out: str, *, max_files: int = MAX_FILES, all_days: bool = False
) -> dict[str, Counts]:
    """Count the rows of all new files of the *journal* in *out*; return what became of them, by table.

    Args:
        max_files: files of one batch (default: 4,000).
        all_days: also list sealed days (default: no).

    Raises: PurgatoryError: there is no journal, one folder is in the other, or *max_files* is not positive.
        LostRowsError: the counts do not add up.
    """
    refuse_overlap(journal, out)
    if max_files < 1:
        raise PurgatoryError(f"max_files must be >= 1, got {max_files}")
    counts = {"operations": Counts(), "statistics": Counts(), "": Counts()}
    # Beside another run, what it has left is new the next time.
    while not _all_read(spark, journal, out, counts, max_files, all_days):
        pass
    return counts


def _all_read(
    spark: SparkSession, journal: str, out: str, counts: dict[str, Counts], max_files: int, all_days: bool
) -> bool:
    """Read the new files, batch by batch, and seal days. Return False if another run was faster."""
    line: Line = committed(spark, out)
    place = journal if "://" in journal else os.path.abspath(journal)
    sealed = sums(spark, out, "sealed", line).where(F.col("journal") == place).select("day").collect()
    there, paths = listed(spark, journal, [] if all_days else [row.day for row in sealed])
    days = {day_of(path) for path in paths}
    if days == {""} and not sealed:
        raise PurgatoryError(NO_JOURNAL.format(journal))
    known = sums(spark, out, "files", line).where(F.col("day").isin(*days))
    new = unread(there, paths, known)
    for begin in range(0, len(new), max_files):
        files = located(new[begin : begin + max_files])
        taken = take_in(spark, out, line, files)
        if not taken:
            return False
        line, losses = taken
        for each in (file for file in files if file.problem != CHANGED):
            counts[each.table].add(each)
        for (table, _, reason), rows in losses.items():
            counts[table].quarantined.update({} if reason.startswith("file ") else {reason: rows})
    quiet = _quiet(known, days - {each.day for each in new} - {row.day for row in sealed})
    return not quiet or bool(take_in(spark, out, line, [], {"sealed": [(place, day) for day in quiet]}))


def _quiet(known: DataFrame, days: set[str]) -> list[str]:
    """Return the *days* that are over and had no new file for QUIET. Args: known: their files."""
    before = datetime.now(UTC) - QUIET
    over = [day for day in days if _A_DAY.fullmatch(day) and day < f"{before:%Y-%m-%d}"]
    newest = known.where(F.col("day").isin(over)).groupBy("day").agg(F.max("read_us").alias("read_us"))
    return [row.day for row in newest.where(F.col("read_us") < before.timestamp() * 1e6).collect()] if over else []


def forget(spark: SparkSession, out: str, before: date) -> None:
    """Remove the days *before* one from the report, for good."""
    while not take_in(spark, out, committed(spark, out), [], {"forgotten": [(before,)]}):
        pass


def summary(counts: dict[str, Counts]) -> Iterator[str]:
    """Yield a summary of the rows, line by line."""
    for name, of in counts.items():
        if name or of.files:
            yield (
                f"{name or 'other files'}: {of.rows_in:,} rows in {of.files:,} new files: {of.counted:,} counted, "
                f"{of.duplicates:,} duplicates, {of.quarantined.total():,} quarantined"
            )
        yield from (f"  {rows:,} rows quarantined: {why}" for why, rows in sorted(of.quarantined.items()))
        for why, files in sorted(of.problems.items()):
            yield f"  {files:,} files quarantined, each {why}; the first is {of.first[why]}"


def refuse_overlap(journal: str, out: str) -> None:
    """Raises: PurgatoryError: *out* is in the *journal*, or the reverse; it would be read as a part of the other."""
    one, other = (f"{each if '://' in each else os.path.realpath(each)}/" for each in (journal, out))
    if one.startswith(other) or other.startswith(one):
        raise PurgatoryError(f"out must not overlap with the journal's folder {journal}, got {out}: choose another")
