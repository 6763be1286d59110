"""Several workers, started and asked by a test."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from private_proxy import Proxy
from private_servers import Server

from .worker import ROW

HERE = Path(__file__).parent


class Fleet:
    """Workers that are connected, and publish.

    Args:
        urls: one for each worker.
        rate: keys a second, of each. None: the workers are not connected yet.
        more: the ``padding`` of keys in bytes, ``replay``.
    """

    def __init__(
        self,
        urls: Sequence[str],
        rate: float | None = 0,
        keys: int = 200,
        heartbeat: float = 0.5,
        timeout: float = 2.5,
        **more: Any,
    ) -> None:
        self.rate = rate
        self.more = {"padding": 0, "replay": 0} | more
        self.urls, self.keys, self.heartbeat, self.timeout = urls, keys, heartbeat, timeout
        self.processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        self.table = tempfile.NamedTemporaryFile()  # noqa: SIM115 closed by __aexit__
        self.table.write(bytes(ROW * self.keys))
        self.table.flush()
        for number, url in enumerate(self.urls):
            config = {"url": url, "table": self.table.name, "number": number, "workers": len(self.urls)}
            config |= {"keys": self.keys, "heartbeat": self.heartbeat, "timeout": self.timeout} | self.more
            self.processes.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "bus.worker", json.dumps(config), stdin=-1, stdout=-1, cwd=HERE.parent
                )
            )
        assert await asyncio.gather(*map(self.read, range(len(self.urls)))) == ["parked"] * len(self.urls)
        if self.rate is not None:
            await self.connect()
            await self.ask_all(f"rate {self.rate}")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for process in self.processes:
            if exc is None and process.stdin is not None:
                process.stdin.write(b"quit\n")
            else:
                process.kill()
        codes = await asyncio.gather(*(asyncio.wait_for(process.wait(), 15.0) for process in self.processes))
        self.table.close()
        assert exc is not None or codes == [0] * len(codes)

    async def connect(self, *numbers: int) -> None:
        for number in numbers or range(len(self.urls)):
            assert await self.ask(number, "go") == "ready"

    async def read(self, number: int) -> Any:
        stdout = self.processes[number].stdout
        assert stdout is not None
        return json.loads(await asyncio.wait_for(stdout.readline(), 30.0))

    async def ask(self, number: int, command: str) -> Any:
        stdin = self.processes[number].stdin
        assert stdin is not None
        stdin.write(command.encode() + b"\n")
        return await self.read(number)

    async def ask_all(self, command: str) -> list[Any]:
        return await asyncio.gather(*(self.ask(number, command) for number in range(len(self.urls))))

    async def audit(self, within: float) -> list[Any]:
        """No more events: wait until nobody is parked although its key moved.

        Returns: the workers' answers. Raises: AssertionError: somebody still is.
        """
        await self.ask_all("rate 0")
        answers = await self.ask_all("audit")
        deadline = time.monotonic() + within
        while any(answer["parked"] or answer["outbox"] or not answer["connected"] for answer in answers):
            assert time.monotonic() < deadline, answers
            await asyncio.sleep(0.05)
            answers = await self.ask_all("audit")
        return answers


async def kill_often(server: Server, random: Random) -> None:
    """Kill and restart *server*, five times."""
    for _ in range(5):
        await asyncio.sleep(random.uniform(0.5, 2.0))
        server.kill()
        await asyncio.sleep(random.uniform(0.1, 1.5))
        await asyncio.to_thread(server.start)
    await asyncio.sleep(2.0)


async def break_often(proxies: Sequence[Proxy], random: Random) -> None:
    """Harm the connections through one of the *proxies* in any way, fourteen times."""
    for _ in range(14):
        await asyncio.sleep(random.uniform(0.5, 3.0))
        getattr(random.choice(proxies), random.choice(("cut", "swallow", "deafen", "mute")))()
