"""The peer: ``ingest`` and ``report`` in DuckDB, with the best settings found.

It judges the journal's rows by the same rules, and writes good rows as Parquet by the date on which they ended. From
these it makes the tables minutes, days, hot_keys and work. Percentiles use the same buckets, so the figures are the
same. The pipeline writes sums, and no copy of the rows. DuckDB makes no table of changes, and cannot take in new files.

It uses the pipeline's knowledge: sequence numbers go up through the files of an instance, so only files with ranges
that overlap, by their footers, can share rows. Rows are compared only then. If the footers say that all rows ended on
one day, the clean rows are written without PARTITION_BY, in a third less CPU time.

Tried and slower: a table in memory instead of reading the clean rows again, enums and single integers as group keys,
other codecs, version 1 of Parquet's data pages.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import duckdb

SECOND, MINUTE, DAY = 1_000_000, 60_000_000, 86_400_000_000
#: Buckets grow by so much: no percentile is further than 2 % from a value that has it.
GROWTH = 1.02 / 0.98
LONGEST = 366 * DAY
TOP = 20
OUTCOMES = ("completed", "expired", "cancelled", "failed")
WAITED = {"waited_p50_us": 0.5, "waited_p90_us": 0.9, "waited_p99_us": 0.99, "waited_p999_us": 0.999}
LATENESS = {"lateness_p50_us": 0.5, "lateness_p99_us": 0.99, "lateness_max_us": 1.0}
WORK = (
    *("checks", "checks_without_effect", "purges", "purged", "cascaded", "wakeups"),
    *("undelivered", "refused"),
)
OPTIONS = "FORMAT parquet, COMPRESSION lz4_raw, PARQUET_VERSION v2, WRITE_BLOOM_FILTER false"

#: Written out: importing Arrow for the schema would cost DuckDB half a second. A test compares them.
COUNTERS = (
    *("pending", "watched_entries", "keys", "completed", "expired", "cancelled", "failed", "missed_triggers"),
    *("refused", "undelivered", "checks", "checks_without_effect", "cascaded", "wakeups", "purges", "purged"),
    "dropped_rows",
)
SETTINGS = ("tick_ns", "wheel_size", "purge_interval", "checks_of_twins", "reads", "reads_in_vain")
#: Columns that are never null.
REQUIRED = {
    "operations": (
        *("schema_version", "purgatory", "instance", "sequence", "kind", "key_count", "key_hash", "watched_at"),
        *("waited_us", "outcome", "missed_trigger", "weight"),
    ),
    "statistics": ("schema_version", "purgatory", "instance", "at", *COUNTERS),
}

# The rules of pipeline/rules.py. The first that a row breaks is its reason.
COMMON = [
    ("schema_version IS NULL OR schema_version <> 1", "schema_version is unknown"),
    ("strlen(purgatory) NOT BETWEEN 1 AND 255", "purgatory is not of 1 to 255 bytes"),
]
OF_OPERATIONS = [
    (f"outcome NOT IN {OUTCOMES}", "outcome is unknown"),
    ("sequence < 0", "sequence is negative"),
    ("key_count < 1", "key_count is not positive"),
    ("waited_us < 0", "waited_us is negative"),
    (f"waited_us > {LONGEST}", "waited_us is longer than a year"),
    ("timeout_us < 0", "timeout_us is negative"),
    ("lateness_us < 0", "lateness_us is negative"),
    (f"lateness_us > {LONGEST}", "lateness_us is longer than a year"),
    ("(lateness_us IS NOT NULL) <> (outcome = 'expired')", "lateness_us without expiring, or the reverse"),
    ("missed_trigger AND outcome <> 'completed'", "missed_trigger without completing"),
    ("isnan(weight) OR weight < 1 OR weight > 1e9", "weight is not from 1 to 1e9"),
]
OF_STATISTICS = [(f"{name} < 0", f"{name} is negative") for name in (*COUNTERS, *SETTINGS)]
ENDED = "(epoch_us(watched_at) + waited_us)"
AT = {"operations": ENDED, "statistics": 'epoch_us("at")'}
IDENTITY = {"operations": "instance, sequence", "statistics": 'instance, purgatory, "at"'}
RULES = {"operations": OF_OPERATIONS, "statistics": OF_STATISTICS}


def connect(scratch: Path, threads: int = 2) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "preserve_insertion_order": False,
        "temp_directory": str(scratch),
    }
    connection = duckdb.connect(config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def ingest(run: duckdb.DuckDBPyConnection, journal: Path, out: Path) -> int:
    """Write the clean tables into *out*; returns the number of operations in them."""
    for name in ("operations", "statistics"):
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.rmtree(out / "quarantine" / name, ignore_errors=True)
    clean = 0
    for name in ("statistics", "operations"):
        files = f"{journal}/{name}/*/*/*.parquet"
        suspects, day, rows = _footers(run, files) if name == "operations" else (None, None, 0)
        good = _good(name, files, suspects)
        if day is None:
            target, options = out / name, f"{OPTIONS}, PARTITION_BY (date)"
        else:
            target, options = out / name / f"date={day}", f"{OPTIONS}, PER_THREAD_OUTPUT"
            good = good.replace(f"{_date(name)} AS date, ", "")
        target.mkdir(parents=True)
        clean = _count(run, f"COPY ({good}) TO '{target}' ({options}, OVERWRITE_OR_IGNORE)")
        if name == "operations" and clean < rows:
            place = out / "quarantine" / name
            place.mkdir(parents=True)
            bad = f"SELECT *, {_reason(name)} AS reason FROM {_source(files)} WHERE {_broken(name)}"
            run.execute(f"COPY ({bad}) TO '{place}/rows.parquet' ({OPTIONS})")
    return clean


def _footers(run: duckdb.DuckDBPyConnection, files: str) -> tuple[list[str], str | None, int]:
    """Which files overlap with others, the one day on which all rows ended, if it is one, and how many there are."""
    run.execute(f"""
        CREATE OR REPLACE TEMP TABLE footers AS
        SELECT file_name, row_group_id, any_value(row_group_num_rows) AS rows,
            min(stats_min_value) FILTER (path_in_schema = 'instance') AS instance,
            max(stats_max_value) FILTER (path_in_schema = 'instance') AS other,
            min(try_cast(stats_min_value AS BIGINT)) FILTER (path_in_schema = 'sequence') AS first,
            max(try_cast(stats_max_value AS BIGINT)) FILTER (path_in_schema = 'sequence') AS last,
            min(try_cast(stats_min_value AS TIMESTAMPTZ)) FILTER (path_in_schema = 'watched_at') AS earliest,
            max(try_cast(stats_max_value AS TIMESTAMPTZ)) FILTER (path_in_schema = 'watched_at') AS latest,
            max(try_cast(stats_max_value AS BIGINT)) FILTER (path_in_schema = 'waited_us') AS longest
        FROM parquet_metadata('{files}') GROUP BY ALL""")
    overlapping = run.execute("""
        SELECT DISTINCT file_name FROM (
            SELECT file_name, coalesce(instance <> other, true)
                OR coalesce(max(last) OVER before >= first, false) OR coalesce(min(first) OVER later <= last, false)
                AS suspect
            FROM footers
            WINDOW before AS (PARTITION BY instance ORDER BY first, last, file_name, row_group_id
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                later AS (PARTITION BY instance ORDER BY first, last, file_name, row_group_id
                    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING))
        WHERE suspect""").fetchall()
    days = f"min(epoch_us(earliest)) // {DAY}, max(epoch_us(latest) + longest) // {DAY}"
    first, last, rows, day = run.execute(
        f"SELECT *, make_date(first::INT)::VARCHAR FROM (SELECT {days}, sum(rows) FROM footers) AS f(first, last, rows)"
    ).fetchall()[0]
    return [name for (name,) in overlapping], day if first == last else None, int(rows)


def _good(name: str, files: str, suspects: list[str] | None) -> str:
    """The clean rows. Args: suspects: files with rows that may be there twice; None: any of them."""
    select = f"SELECT {_date(name)} AS date, * EXCLUDE (date, hour) FROM {_source(files)} WHERE NOT ({_broken(name)})"
    if suspects == []:
        return select
    once = f" QUALIFY row_number() OVER (PARTITION BY {IDENTITY[name]} ORDER BY filename, file_row_number) = 1"
    if suspects is None:
        return select + once
    among = f"filename IN ({', '.join(map(repr, suspects))})"
    return f"{select} AND NOT {among} UNION ALL {select} AND {among}{once}"


def _source(files: str) -> str:
    return f"read_parquet('{files}', hive_partitioning = true, hive_types = {{'date': DATE, 'hour': VARCHAR}})"


def _date(name: str) -> str:
    return f"make_date(({AT[name]} // {DAY})::INT)"


def _rules(name: str) -> list[tuple[str, str]]:
    version, *common = COMMON
    nulls = [(f'"{column}" IS NULL', f"{column} is null") for column in REQUIRED[name]]
    near = f"{AT[name]} - epoch_us(date::TIMESTAMP) NOT BETWEEN {-DAY} AND {2 * DAY - 1}"
    return [version, *nulls, *common, *RULES[name], (near, "time not of its file's day")]


def _broken(name: str) -> str:
    broken = " OR ".join(f"({broken})" for broken, _ in _rules(name))
    return f"coalesce({broken}, false)"


def _reason(name: str) -> str:
    cases = (f"WHEN {broken} THEN '{why.replace(chr(39), chr(39) * 2)}'" for broken, why in _rules(name))
    return f"CASE {' '.join(cases)} END"


def report(run: duckdb.DuckDBPyConnection, clean: Path, out: Path) -> None:
    """Write the tables of the report into *out*, of the *clean* ones."""
    operations = f"read_parquet('{clean}/operations/*/*.parquet', hive_partitioning = false)"
    run.execute(f"CREATE OR REPLACE TEMP TABLE counts AS {_counts(operations)}")
    for name in ("waited", "lateness"):
        run.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {_histogram(operations, f'{name}_us')}")
    run.execute(f"CREATE OR REPLACE TEMP TABLE pending AS {_pending(operations, 'purgatory, kind')}")
    run.execute(f"CREATE OR REPLACE TEMP TABLE minutes AS {_minutes()}")
    _save(run, out, "minutes", "SELECT * FROM minutes ORDER BY purgatory, kind, minute")
    _save(run, out, "days", _days())
    run.execute(f"CREATE OR REPLACE TEMP TABLE top AS {_top(operations)}")
    _save(run, out, "hot_keys", _hot_keys(operations))
    _save(run, out, "work", _work(f"read_parquet('{clean}/statistics/*/*.parquet', hive_partitioning = false)"))


def _save(run: duckdb.DuckDBPyConnection, out: Path, name: str, query: str) -> None:
    (out / name).mkdir(parents=True, exist_ok=True)
    run.execute(f"COPY ({query}) TO '{out}/{name}/{name}.parquet' ({OPTIONS})")


def _count(run: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(run.execute(query).fetchall()[0][0])


def _bucket(value: str) -> str:
    return f"CASE WHEN {value} = 0 THEN -1 ELSE ceil(ln({value}::DOUBLE) / {math.log(GROWTH)!r})::INT END"


def _middle(number: str) -> str:
    return f"CASE WHEN {number} = -1 THEN 0.0 ELSE pow({GROWTH!r}, {number}) * {2 / (GROWTH + 1)!r} END"


def _counts(operations: str) -> str:
    return f"""
        SELECT purgatory, kind, {ENDED} // {MINUTE} AS number, outcome, sum(weight) AS operations,
            sum(CASE WHEN missed_trigger THEN weight ELSE 0 END) AS missed_triggers
        FROM {operations} GROUP BY ALL"""


def _histogram(operations: str, value: str) -> str:
    return f"""
        SELECT purgatory, kind, {ENDED} // {MINUTE} AS number, {_bucket(value)} AS bucket, sum(weight) AS operations
        FROM {operations} WHERE {value} IS NOT NULL GROUP BY ALL"""


def _pending(operations: str, by: str) -> str:
    """By whole seconds: waiting are those that were watched by then and had not ended."""
    start, end = (f"({at} + {SECOND - 1}) // {SECOND}" for at in ("epoch_us(watched_at)", ENDED))
    return f"""
        WITH seen AS (
            SELECT {by}, {start} AS start, {end} AS stop, weight FROM {operations} WHERE {start} < {end}
        ), changes AS (
            SELECT {by}, look, sum(change) AS change FROM (
                SELECT {by}, start AS look, weight AS change FROM seen
                UNION ALL SELECT {by}, stop, -weight FROM seen
            ) GROUP BY ALL
        ), levels AS (
            SELECT {by}, look, lead(look, 1, look + 1) OVER looks AS until, round(sum(change) OVER looks, 6) AS level
            FROM changes WINDOW looks AS (PARTITION BY {by} ORDER BY look)
        ), pieces AS (
            SELECT *, unnest(range(look // 60, (until - 1) // 60 + 1)) AS number FROM levels WHERE level <> 0
        )
        SELECT {by}, number, max(level) AS pending_peak,
            sum(level * (least(until, number * 60 + 60) - greatest(look, number * 60))) / 60 AS pending_mean
        FROM pieces GROUP BY ALL"""


def _measured(by: str, counts: str, waited: str, lateness: str) -> str:
    """Counts and percentiles by *by*, of tables that have it."""
    of = ", ".join(f"sum(CASE WHEN outcome = '{name}' THEN operations ELSE 0 END) AS {name}" for name in OUTCOMES)
    shares = ", ".join(f"{name} / operations AS {name}_share" for name in OUTCOMES)
    return f"""
        WITH counted AS (
            SELECT {by}, sum(operations) AS operations, {of}, sum(missed_triggers) AS missed_triggers
            FROM {counts} GROUP BY ALL
        ), waits AS ({_percentiles(waited, WAITED, by)}), late AS ({_percentiles(lateness, LATENESS, by)})
        SELECT *, {shares} FROM counted LEFT JOIN waits USING ({by}) LEFT JOIN late USING ({by})"""


def _percentiles(histogram: str, shares: dict[str, float], by: str) -> str:
    """The window is over one integer per group: that takes half of the time of a window over its columns."""
    least = (
        f"{_middle(f'min(CASE WHEN reached >= {share} - 1e-12 THEN bucket END)')} AS {name}"
        for name, share in shares.items()
    )
    return f"""
        WITH numbered AS (
            SELECT {by}, row_number() OVER () AS id, sum(operations) AS total FROM {histogram} GROUP BY {by}
        ), steps AS (
            SELECT id, bucket, sum(operations) OVER (PARTITION BY id ORDER BY bucket) / total AS reached
            FROM (SELECT id, bucket, operations, total FROM {histogram} JOIN numbered USING ({by}))
        )
        SELECT * EXCLUDE (id, total) FROM (SELECT id, {", ".join(least)} FROM steps GROUP BY id)
        JOIN numbered USING (id)"""


def _minutes() -> str:
    counts = ("operations", *OUTCOMES, "missed_triggers", "pending_mean", "pending_peak")
    filled = ", ".join(f"coalesce({name}, 0) AS {name}" for name in counts)
    by = "purgatory, kind, number"
    return f"""
        SELECT make_date((number // 1440)::INT) AS date, purgatory, kind,
            make_timestamptz(number * {MINUTE}) AS minute, * EXCLUDE (purgatory, kind, number) REPLACE ({filled})
        FROM ({_measured(by, "counts", "waited", "lateness")}) FULL JOIN pending USING ({by})"""


def _days() -> str:
    by = "date, purgatory, kind"
    date = "make_date((number // 1440)::INT) AS date, purgatory, kind"
    counts = f"(SELECT {date}, outcome, operations, missed_triggers FROM counts)"
    of = "(SELECT {}, bucket, sum(operations) AS operations FROM {} GROUP BY ALL)"
    return f"""
        SELECT * FROM ({_measured(by, counts, of.format(date, "waited"), of.format(date, "lateness"))})
        LEFT JOIN (
            SELECT {by}, avg(pending_mean) AS pending_mean, max(pending_peak) AS pending_peak FROM minutes GROUP BY ALL
        ) USING ({by}) ORDER BY {by}"""


def _top(operations: str) -> str:
    return f"""
        SELECT purgatory, key_hash, operations, operations / sum(operations) OVER (PARTITION BY purgatory) AS share,
            watched / operations AS keys_each,
            row_number() OVER (PARTITION BY purgatory ORDER BY operations DESC, key_hash) AS place
        FROM (
            SELECT purgatory, key_hash, sum(weight) AS operations, sum(weight * key_count) AS watched
            FROM {operations} GROUP BY ALL
        ) QUALIFY place <= {TOP}"""


def _hot_keys(operations: str) -> str:
    by = "purgatory, key_hash"
    rows = f"(SELECT * FROM {operations} SEMI JOIN top USING ({by}))"
    return f"""
        SELECT purgatory, place, key_hash, key, operations, share, keys_each FROM top
        LEFT JOIN (SELECT {by}, min(key[:200]) AS key FROM {rows} WHERE key IS NOT NULL GROUP BY ALL) USING ({by})
        ORDER BY purgatory, place"""


def _work(statistics: str) -> str:
    grown = ", ".join(
        f"CASE WHEN {name} >= was_{name} THEN {name} - was_{name} ELSE {name} END AS {name}" for name in WORK
    )
    before = ", ".join(f"lag({name}, 1, {name}) OVER snapshots AS was_{name}" for name in WORK)
    return f"""
        SELECT purgatory, minute, {", ".join(f"sum({name})::BIGINT AS {name}" for name in WORK)} FROM (
            SELECT purgatory, date_trunc('minute', "at") AS minute, {grown} FROM (
                SELECT *, {before} FROM {statistics}
                WINDOW snapshots AS (PARTITION BY purgatory, instance ORDER BY "at")
            )
        ) GROUP BY ALL ORDER BY ALL"""
