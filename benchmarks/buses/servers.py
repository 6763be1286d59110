"""The servers of a bus, the bus on each, and the CPU time of a server."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiopurgatory.bus import Bus
from aiopurgatory.bus.targets import Target

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from private_proxy import Proxy
from private_servers import Postgres, Redis, Server, program

__all__ = ["ENGINES", "Proxy", "Server", "about", "bus_on", "cpu", "installed"]

ENGINES: dict[str, type[Server]] = {"postgres": Postgres, "redis": Redis}


def bus_on(url: str, targets: Iterable[Target], **options: Any) -> Bus:
    """The bus for the server at *url*."""
    if url.startswith("redis"):
        from aiopurgatory.bus.redis import RedisBus

        return RedisBus(url, targets, **options)
    from aiopurgatory.bus.postgres import PostgresBus

    return PostgresBus(url, targets, **options)


def installed(engine: str) -> list[str]:
    """Those of *engine* ("both": all) with a server and client library here; it says on stderr which are not."""
    found = []
    for name in ENGINES if engine == "both" else [engine]:
        try:
            __import__("asyncpg" if name == "postgres" else "redis")
            with ENGINES[name]():
                found.append(name)
        except (ImportError, FileNotFoundError) as exc:
            print(f"Not measured: {name}: {exc}", file=sys.stderr)
    return found


def about(engines: Iterable[str]) -> tuple[list[str], list[str | None]]:
    """The packages and programs that matter: their versions are printed."""
    servers = {"postgres": program("postgres"), "redis": program(*Redis.programs)}
    return ["aiopurgatory", "uvloop", "asyncpg", "redis"], [servers[engine] for engine in engines]


def cpu(server: Server) -> float:
    """Seconds of CPU time of all live processes of *server*: PostgreSQL's are its children."""
    if server.process is None:
        return 0.0
    pid, nanoseconds = server.process.pid, 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for process in (str(pid), *children):
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
