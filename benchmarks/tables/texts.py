"""Explain the tables: the text printed beside each."""

INTRODUCTION = """\
CPU time unless said otherwise; medians (and ranges) of the rounds. Every competitor runs in a process of its own, and
in a round each runs once. *compiled* is our library as built by mypyc, against competitors that are built by it, too,
where they are data structures of their own (timers, the old purgatory); what users write around asyncio is
interpreted on either side.
"""
NOTES = """\
Sustained: at least 98 % of the rate asked for, and time-outs late by 20 ms at most in 99 % of cases. The highest of
the rates tried for which that holds in most rounds.
"""
TEXTS = {
    "requests": """\
Requests come in exponential gaps, each under 3 of 100 keys with a timeout of 200 ms, and would complete after a log-
normal time: few time-outs p50 = 20 ms, p75 = 60 ms (8 % run out of time), many p50 = 200 ms, p75 = 400 ms (50 %). The
driver is open loop, on the same event loop, and its cost counts: about 0.5 s per 1M. An operation that completes does
so by `force_complete()`, as in Kafka's own benchmark. The last row of each asks for 5M/s, which nothing here can do.

Nobody awaits an operation of *ours* or a request of the *old purgatory*: they answer from a callback, as Kafka's do.
*ours, awaited* has a task for each, as have all that follow. The third workload has 100,000 requests parked for ten
minutes beside those of few time-outs, as a long-poll server has, and `gc.freeze()` is called when they are.""",
    "survivors": """\
105,000 requests per second, many time-outs, with RLIMIT_DATA so much above what the interpreter and the trace take.""",
    "ablations": """\
Each is one change of the defaults of *ours*; then what the garbage collector does to requests that are awaited.""",
    "timers": """\
CPU ns per pair. add + cancel: others pending with timeouts of 30 to 60 s; the loops' own timers pay for the turn in
which they drop what was cancelled. add + expire: per operation one is added with a timeout of up to 60 s, and one
expires. *hashed* is Netty's wheel (512 buckets with rounds), *linux* the kernel's since 4.8 (8 levels of 64, no
cascades, late by up to an eighth of the timeout).""",
    "precision": "Timers of 1 ms ticks. Virtual time where time is handed in, real time for what runs on a loop.",
    "micro": "Each is completed before the next one comes; 100,000 others pending.",
    "operations": """\
CPU ns per operation unless said otherwise. At full size (`--full`) 100,000 others are pending in *watch* and *nobody*,
40,000 are cancelled, 100,000 make a herd and 50,000 time out in one instant; the normal size is a tenth of it.""",
    "buses": """\
Two worker processes on a private server, all on this machine. *own share*: p50 minus that of the client library alone,
which carries the same messages at the same rate: asyncpg's prepared ``pg_notify``, redis-py's pubsub and PUBLISH
(*connections*: its connections without its clients, as the bus uses them). *flood*: keys that nobody watches and that
all differ; *1,000 keys*: the same again and again, which receivers keep decoded. *gap*: the slowest of six connections
that become deaf at other points of their heartbeat; heartbeat and timeout are 1 s. *turn*: after ``notify_all()``, with
the collector as the README advises. *fault*: the server is killed twice while events come.""",
    "pipelines": """\
A day of requests in files of 250,000 rows; a tenth expires. *ours* is `ingest` and then `report` on `local[2]`, heap
1 GB; DuckDB (`benchmarks/pipelines/with_duckdb.py`) has two threads and no limit of memory. It judges the rows by the
same rules, writes the same clean rows and makes minutes, days, hot keys and work, which were compared: the same. It
makes no changes, page or versions. CPU time is that of all processes, user and system; peak MB adds up the peaks of the
processes, so pages that they share count in each. *start* is the session with a trivial job in it. Up to 16 MB of
a journal need no task of Spark: 1M rows (9 MB) and 2,000 files (7 MB). So the ratio of 10M rows to 1M rows has the cost
of Spark's workers above the line only.""",
    "brokers": """\
The broker of `examples/broker` in a process of its own, and the load in another. *event* is the same broker whose
requests wait with `asyncio.Event` and `asyncio.timeout()` (`benchmarks/brokers/with_event.py`). Parsing, encoding and
sockets are the same in both, and take most of the time. *parked* counts operations that had to wait in any of the
five purgatories; those of *fetch* include the followers' fetches. CPU time is that of the broker's process, user and
system; *load cpu share* is what the load took of a core. The last column has the median of the rounds' ratios.""",
    "streams": """\
One server process on uvicorn, with uvloop and httptools, appends 20 events per second to each of *R* runs, for *L*
listeners of each over HTTP, *R x L*. *RedisLog* and *MemoryLog* are ours, behind an ``EventRoute``. *XREAD* is
sse-starlette with ``XREAD BLOCK`` for each listener on its own connection, which can resume, too. *Queue* is
sse-starlette with an ``asyncio.Queue`` for each listener: no replay, and one process. CPU time is that of the server
process, user and system, producers included; *apart*: another process appends. A server that cannot keep up with 20
events per second appends fewer (*appended per second*). With producers apart it cannot slow them down: events queue up,
and it sends many at a time. Latencies are from before the append to the line at the listener.""",
    "timeouts": """\
``async with purgatory.timeout(30)`` against ``asyncio.timeout(30)``, ``async_timeout.timeout(30)`` and
``anyio.fail_after(30)``, less what the same loop or task takes without a timeout. CPU: around a block that does
nothing; the loop iterates after every 1,000. Bytes: 10,000 tasks wait in such a block. Columns: the loop, and the form
of aiopurgatory. Other libraries are the same in both forms; their columns show how much the machine varies.""",
    "follow": """\
``purgatory.follow()`` against an ``asyncio.Queue`` for each consumer, and a loop around ``wait_for()``. *single*: each
value wakes one consumer's task. *crowd*: each value wakes 1,000. *at hand*: no task waits. A queue has no heartbeat
and no end, and keeps every value. Ratios are of lines within a round.""",
    "replay": """\
``RedisBus(replay=10_000)`` against a bus without it, alternately, on one private Redis. The bus only publishes, and
nobody listens.""",
    "servers": """\
1,000 jobs are waited for at once, by the package's own wait, which polls, and by that of `examples/servers`. p50 and
p99: ms from the end of a job until its waiter has the result.""",
    "fleets": """\
CPU time of 1, 2, 4 and 8 workers that share polls and events. Each event ends one poll, in any of the workers, and
reaches all of them. The model (`benchmarks/buses/model.py`) is fitted to all but the largest run.""",
}
