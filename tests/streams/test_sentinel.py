"""Redis Sentinel moves the master: behind the HAProxy of the page on several workers, a bus and a log follow it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from bus.conftest import made  # type: ignore[import-not-found]
from private_servers import Redis, free_port, program

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.streams.redis import RedisLog

from .conftest import until

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"

pytestmark = pytest.mark.skipif(program("haproxy") is None, reason="haproxy is not installed")


class Sentinel(Redis):
    """Watches *master*: it is moved three seconds after it was seen last."""

    def __init__(self, master: Redis) -> None:
        self.master = master
        super().__init__()

    def prepare(self) -> None:
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", "user bus on >secret ~* &* +@all"]
        lines += [f"sentinel monitor shop 127.0.0.1 {self.master.port} 1", "sentinel auth-pass shop default-secret"]
        lines += ["sentinel down-after-milliseconds shop 3000", "sentinel failover-timeout shop 5000"]
        file = Path(self.folder, "redis.conf")
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o666)  # it writes to it, as another user

    def command(self) -> list[str]:
        return [*super().command(), "--sentinel"]


class Cluster:
    """A master, a replica, a sentinel, and an HAProxy, whose port is the address."""

    def __init__(self, master: Redis, replica: Redis, sentinel: Redis, path: Path) -> None:
        self.master, self.replica, self.sentinel, self.path, self.port = master, replica, sentinel, path, free_port()

    def proxy(self) -> subprocess.Popen[bytes]:
        (recipe,) = re.findall(r"^```haproxy\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        config = recipe.replace("*:6379", f"127.0.0.1:{self.port}").replace("AUTH\\ app\\ ", "AUTH\\ bus\\ ")
        config = config.replace("10.0.0.1:6379", f"127.0.0.1:{self.master.port}")
        config = config.replace("10.0.0.2:6379", f"127.0.0.1:{self.replica.port}")
        file = self.path / "haproxy.cfg"
        file.write_text(config)
        return subprocess.Popen([str(program("haproxy")), "-db", "-f", str(file)], stderr=subprocess.DEVNULL)

    def url(self) -> str:
        return self.master.url(self.port)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        server, replica = (stack.enter_context(made(Redis)) for _ in range(2))
        asyncio.run(server.asked("CONFIG SET masteruser bus masterauth secret"))
        asyncio.run(replica.replicate(server))
        cluster = Cluster(server, replica, stack.enter_context(Sentinel(server)), tmp_path)
        proxy = cluster.proxy()
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        yield cluster


@pytest.mark.timeout(90)
def test_bus_and_log_behind_haproxy_follow_the_master(cluster: Cluster) -> None:
    async def main() -> None:
        times: dict[str, Any] = {"heartbeat": 0.5, "timeout": 3.0}
        while "slaves=1," not in await cluster.sentinel.asked("INFO sentinel"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        bus = RedisBus(cluster.url(), [], **times)
        async with asyncio.timeout(30.0):
            while not bus.statistics().connected:
                with suppress(BusConnectError):  # HAProxy has not checked the replica yet
                    await bus.start()
        async with bus, RedisLog(cluster.url(), **times) as log:
            await log.append("x", "before")
            listening = log.follow("x")
            assert (await anext(listening)).data == "before"
            while ":1" not in await cluster.replica.asked("EXISTS events:{x}:state"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            cluster.master.kill()
            await log.append("x", "after", timeout=40.0)
            async with asyncio.timeout(20.0):
                assert (await anext(listening)).data == "after"
            assert "role:master" in await cluster.replica.asked("INFO replication")
            await until(lambda: bus.statistics().connected and bus.statistics().error is None)
            await listening.aclose()

    asyncio.run(main())
