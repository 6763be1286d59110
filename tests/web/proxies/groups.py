"""Two groups of two worker processes, on one Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Self

from private_servers import Redis, free_port

from ..helpers import ENV, Peer, listens, wait_until

WORKERS = 2


class GroupsRedis(Redis):
    """Its user may use the channels of the groups alone."""

    settings = ("user groups on >secret ~* resetchannels &group-1 &group-2 +@all",)


class Group(Peer):
    """Workers behind one port, as the page says: ``uvicorn --workers 2 --port 8001``."""

    def __init__(self, redis: Redis, channel: str) -> None:
        super().__init__()
        self.address = ("127.0.0.1", free_port())
        arguments = ["--factory", "--workers", str(WORKERS), "--port", str(self.address[1]), "--log-level", "warning"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "web.proxies.grouped:app", *arguments],
            env=ENV | {"REDIS_URL": redis.url(user="groups:secret"), "CHANNEL": channel},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        wait_until(lambda: listens(self.address))
        return self

    def stop(self, failed: bool) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def statistics(self) -> dict[int, dict[str, Any]]:
        """Of each worker, by its process id. Which one answers is chance."""
        found: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + 30
        while len(found) < WORKERS:
            assert time.monotonic() < end, f"only one worker answers: {found}"
            worker = self.ask("GET /statistics").json
            found.setdefault(worker["pid"], worker)
        return found
