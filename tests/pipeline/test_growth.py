"""A run with nothing new costs what the open days cost, however many files were read before.

AIOPURGATORY_SEALED_FILES=1000000 makes a million of them, and `-s` prints the figures:
`pytest -m "spark and slow" -s tests/pipeline/test_growth.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .journals import NOON, operation, write

OPEN, SEALED = 1_000, int(os.environ.get("AIOPURGATORY_SEALED_FILES", "20000"))
#: Files of an hour, and links to one file: some file systems allow 65,000.
AN_HOUR, LINKS = 2_000, 50_000
#: Ingests until Java has compiled, and prints the least CPU seconds of a run, and the peaks of Python and Java in MB.
#: At last, a file comes.
RUN = """
import json, os, re, sys
from pathlib import Path
from aiopurgatory.pipeline import java
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.session import session

journal, out, late, place = sys.argv[1:]

def cpu(pids):
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(each) for row in fields for each in row[11:13]) / os.sysconf("SC_CLK_TCK")

def peak(pid):
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024

with session("local[2]", memory="512m") as spark:
    pids = [os.getpid(), java._RUNNING[0].process.pid]
    found, spent = [], [cpu(pids)]
    for _ in range(8):
        found.append(ingest(spark, journal, out)["operations"].files)
        spent.append(cpu(pids))
    os.rename(late, place)
    found.append(ingest(spark, journal, out)["operations"].files)
    least = min(after - before for before, after in zip(spent, spent[1:]))
    print(json.dumps({"new": found, "cpu_s": least, "peaks_mb": [*map(peak, pids)]}))
"""


def made(folder: Path, sealed: int) -> None:
    """Make a journal with OPEN files of this day, and links to files in *sealed* days, all of which were read long ago.

    The accounts are what ingest would write. No file is read.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    paths: list[tuple[str, str]] = []
    for number in range(OPEN + sealed):
        hour = NOON - timedelta(hours=1 + (number - OPEN) // AN_HOUR) if number >= OPEN else now
        place = folder / "journal" / "operations" / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        if not number or not (number - OPEN) % AN_HOUR:
            place.mkdir(parents=True, exist_ok=True)
        if number % LINKS == 0:
            source = folder / f"source-{number}"
            source.write_bytes(b"PAR1")
            os.utime(source, (NOON.timestamp(), NOON.timestamp()))
        os.link(source, place / f"host-{number}.parquet")
        paths.append((f"file:{place}/host-{number}.parquet", f"{hour:%Y-%m-%d}"))
    stamp = int(NOON.timestamp() * 1e6)
    known = {"length": 4, "modified_us": stamp, "rows_in": 1, "bad": 0, "duplicates": 0, "read_us": stamp}
    columns = {"path": [path for path, _ in paths], "day": [day for _, day in paths]}
    columns |= {"table": ["operations"] * len(paths)}
    account = pa.table(columns | {name: pa.array([value] * len(paths), pa.int64()) for name, value in known.items()})
    days = sorted({day for _, day in paths[OPEN:]})
    marks = pa.table({"journal": [str(folder / "journal")] * len(days), "day": pa.array(days, pa.string())})
    attempt = folder / "out" / "sums" / "1.20261121T120000000000-00000000.none"
    for name, rows in {
        "files": account.sort_by([("day", "ascending"), ("path", "ascending")]),
        "sealed": marks,
    }.items():
        (attempt / name).mkdir(parents=True)
        pq.write_table(rows, attempt / name / "part-0.parquet", row_group_size=100_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ingest_nothing_new_costs_the_same_beside_many_files(tmp_path: Path) -> None:
    found = {}
    for sealed in (0, SEALED):
        folder = tmp_path / f"{sealed}"
        made(folder, sealed)
        late = write(folder / "late", [operation(0, watched_at=datetime.now(UTC))], at=datetime.now(UTC))
        place = next((folder / "journal" / "operations").glob(f"date={datetime.now(UTC):%Y-%m-%d}/*")) / late.name
        command = [sys.executable, "-c", RUN, *map(str, (folder / "journal", folder / "out", late, place))]
        found[sealed] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{OPEN + sealed:,} files: {found[sealed]}")
        shutil.rmtree(folder)
    assert [each["new"] for each in found.values()] == [[0] * 8 + [1]] * 2
    assert found[SEALED]["cpu_s"] <= 1.5 * found[0]["cpu_s"]
    assert sum(found[SEALED]["peaks_mb"]) < 1024
