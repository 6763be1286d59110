"""Journal -> sums of its rows, by minute, day, key and setting: what the report and the model are made of.

Rows are counted once: copies of a row are dropped, wherever they are. Impossible rows (a negative wait, an unknown
outcome) are quarantined with a reason, and so are files that are torn. Nothing is lost silently: rows in = counted +
duplicates + quarantined, or the stage fails and names the file.

  JOURNAL/{operations,statistics}/**.parquet  ->  OUT/sums, OUT/quarantine

Only new files are read. A file that has changed since is read again; its rows that were counted are duplicates then.
Rows of files that are deleted later stay counted, until all files of their day are: then the day goes from the report,
and comes back with its files. Hot keys stay, as they have no date.

A run that is killed leaves nothing behind that counts; the next one begins again behind the last whole batch. Folders
may be on any file system that Spark knows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError

from .attempts import committed, days_gone, sums
from .intake import Losses, take_in
from .journal_files import CHANGED, File, days_of, listed, placed, without_files

#: Columns of the table files. A file that differs in one of them from all that were read is new.
IDENTITY: Final = ("path", "length", "modified_us")
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

    @property
    def counted(self) -> int:
        return self.rows_in - self.duplicates - self.quarantined.total()

    def add(self, file: File) -> None:
        self.files += 1
        self.duplicates += file.duplicates
        self.rows_in += 0 if file.problem else file.rows_in
        self.problems.update([file.problem] if file.problem else [])


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder for the sums")
    about = f"files to read before their sums count (default: {MAX_FILES:,}); a killed run loses what it did since"
    parser.add_argument("--max-files", type=int, default=MAX_FILES, metavar="N", help=about)
    about = "do not end: look for new files every so many seconds"
    parser.add_argument("--follow", type=float, metavar="SECONDS", help=about)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Ingest, and print a summary of the rows."""
    while True:
        counts = ingest(spark, args.journal, args.out, max_files=args.max_files)
        if args.follow is None or any(each.files for each in counts.values()):
            print(*summary(counts), sep="\n", flush=True)
        if args.follow is None:
            return
        time.sleep(args.follow)


def ingest(spark: SparkSession, journal: str, out: str, *, max_files: int = MAX_FILES) -> dict[str, Counts]:
    """Count the rows of all new files of the *journal* in *out*; return what became of them, by table.

    Args: max_files: files of one batch (default: 4,000).
    Raises: PurgatoryError: there is no journal, or one folder is in the other. LostRowsError: the counts do not add up.
    """
    refuse_overlap(journal, out)
    counts = {"operations": Counts(), "statistics": Counts(), "": Counts()}
    while True:
        line = committed(spark, out)
        known = {tuple(row) for row in sums(spark, out, "files", line).select(*IDENTITY).collect()}
        there = listed(spark, journal)
        files = placed([each for each in there if (each.path, each.length, each.modified_us) not in known][:max_files])
        days = days_of(path for path, *_ in known)
        before = {(row.journal, row.day) for row in (days_gone(spark, out, line[-1].name) if line else ())}
        now = without_files(days, days_of(each.path for each in there), before)
        losses = take_in(spark, out, line, files, days - now, now) if files or now != before else Losses()
        if losses is None:
            continue  # what the other run has left is new now
        for each in (file for file in files if file.problem != CHANGED):
            counts[each.table].add(each)
        for (table, _, reason), rows in losses.items():
            counts[table].quarantined.update({} if reason.startswith("file ") else {reason: rows})
        if len(files) < max_files:
            return counts


def summary(counts: dict[str, Counts]) -> Iterator[str]:
    """Yield a summary of the rows, line by line."""
    for name, of in counts.items():
        if name or of.files:
            yield (
                f"{name or 'other files'}: {of.rows_in:,} rows in {of.files:,} new files: {of.counted:,} counted, "
                f"{of.duplicates:,} duplicates, {of.quarantined.total():,} quarantined"
            )
        yield from (f"  {rows:,} rows quarantined: {why}" for why, rows in sorted(of.quarantined.items()))
        yield from (f"  {files:,} files quarantined, each {why}" for why, files in sorted(of.problems.items()))


def refuse_overlap(journal: str, out: str) -> None:
    """Raises: PurgatoryError: *out* is in the *journal*, or the reverse; it would be read as a part of the other."""
    one, other = (f"{each if '://' in each else os.path.realpath(each)}/" for each in (journal, out))
    if one.startswith(other) or other.startswith(one):
        raise PurgatoryError(f"out must not overlap with the journal's folder {journal}, got {out}: choose another")
