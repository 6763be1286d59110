"""A private PostgreSQL or Redis: on a free port of 127.0.0.1, in a temporary folder, removed at the end.

For demos, benchmarks, and tests that kill, stop and restart it.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import randrange
from types import TracebackType
from typing import Any, ClassVar, Final, Self

#: Seconds that a server may take to start.
_PATIENCE: Final = 30.0
#: Starts of a server that ends at once: PostgreSQL does while a process of its last life is left, any after a mistake.
_STARTS: Final = 50


def free_port() -> int:
    """Return a port of 127.0.0.1 that is not in use. No other process gets it from here while this one lives.

    A server takes a second until it listens. So the port is none that the system gives to clients meanwhile, and it is
    locked: without that, a test went on with the server of another now and then.
    """
    while True:
        port = randrange(10_000, 32_000)
        with suppress(OSError):
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            socket.create_server(("127.0.0.1", port)).close()
            return port


@cache
def _claims() -> int:
    """A file of which each process locks the bytes of its ports, until it ends."""
    return os.open(f"{tempfile.gettempdir()}/aiopurgatory-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT)


def program(*names: str) -> str | None:
    """Return the path of the first program found, on the PATH or where Debian installs it; None: none is found."""
    places = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), "/usr/sbin"]
    paths = (None, os.pathsep.join(places))
    return next((found for name in names for path in paths if (found := shutil.which(name, path=path))), None)


class Server(ABC):
    """A server that starts when it is created. ``with`` removes it.

    Raises: FileNotFoundError: its program is not installed. RuntimeError: it did not start; the message has its log.
    """

    #: Its kind, and the names of its program: the first one installed is run.
    kind: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        if program(*self.programs) is None:
            raise FileNotFoundError(f"{' or '.join(self.programs)} is not installed")
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix=f"aiopurgatory-{self.kind}-", dir="/tmp")
        self.process: subprocess.Popen[Any] | None = None
        if _account():
            shutil.chown(self.folder, "postgres", "postgres")
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.remove()

    @abstractmethod
    def prepare(self) -> None:
        """Write its files into the folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts it."""

    @abstractmethod
    def url(self, port: int | None = None) -> str:
        """Return its address. Args: port: of a proxy in front of it; None (default): its own."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether it answers."""

    def run(self, command: list[str]) -> None:
        """Run *command* as the server's user, and wait for its end."""
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **_account())

    def start(self) -> None:
        """Start it, the first time or after kill(), and again if it ends, as while a process of before is left."""
        path, deadline, starts = Path(self.folder, "log"), time.monotonic() + _PATIENCE, 0
        while not self._is_running() or not self.is_ready():
            if time.monotonic() > deadline or starts == _STARTS:
                raise RuntimeError(f"{self.kind} did not start:\n{path.read_text()}")
            if not self._is_running():
                starts += 1
                with path.open("ab") as log:
                    self.process = subprocess.Popen(
                        self.command(), stdout=log, stderr=log, cwd="/", start_new_session=True, **_account()
                    )
            time.sleep(0.02)

    def _is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the server and its child processes: PostgreSQL's run in sessions of their own."""
        if self.process is not None:
            pid = self.process.pid
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                for process in (pid, *map(int, children)):
                    os.kill(process, number)

    def kill(self) -> None:
        """Kill it by SIGKILL: its memory is lost."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)

    def remove(self) -> None:
        """Kill it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    """A PostgreSQL with the user ``bus``, password ``secret``. If started by root, it runs as ``postgres``."""

    kind = "postgres"
    programs = ("initdb",)
    #: Additional settings.
    settings: ClassVar[tuple[str, ...]] = ()
    #: The files of the first one. Others are copies: initdb takes ten times as long as a copy.
    _new: ClassVar[str] = ""

    def prepare(self) -> None:
        if not os.path.exists(Postgres._new):
            Path(self.folder, "password").write_text("secret")
            options = ["-U", "bus", "-A", "scram-sha-256", "--pwfile", f"{self.folder}/password"]
            options += ["-N", "-E", "UTF8", "--no-locale"]
            self.run([str(program("initdb")), "-D", f"{self.folder}/data", *options])
            Postgres._new = tempfile.mkdtemp(prefix="aiopurgatory-initdb-", dir="/tmp")
            atexit.register(shutil.rmtree, Postgres._new, ignore_errors=True)
            subprocess.run(["cp", "-a", f"{self.folder}/data", Postgres._new], check=True)
        else:
            subprocess.run(["cp", "-a", f"{Postgres._new}/data", self.folder], check=True)

    def command(self) -> list[str]:
        with suppress(FileNotFoundError):  # left by a killed server
            os.unlink(f"{self.folder}/data/postmaster.pid")
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}"]
        settings += ["fsync=off", "shared_buffers=16MB", "max_connections=100", *self.settings]
        options = [option for setting in settings for option in ("-c", setting)]
        return [str(program("postgres")), "-D", f"{self.folder}/data", *options]

    def url(self, port: int | None = None, user: str = "bus:secret", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}?sslmode=disable"

    def is_ready(self) -> bool:
        command = [str(program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0


class Redis(Server):
    """A Redis with the user ``bus``, password ``secret``, allowed to use the channels of buses and logs."""

    kind = "redis"
    programs = ("redis-server", "valkey-server")
    #: Additional lines of its configuration.
    settings: ClassVar[tuple[str, ...]] = ()

    def prepare(self) -> None:
        # Not "user default off": Redis 7.0 then drops every transaction and script from its AOF when it restarts.
        lines = [f"port {self.port}", "bind 127.0.0.1", "save ''", f"dir {self.folder}", "requirepass default-secret"]
        lines += ["user bus on >secret ~* &aiopurgatory &aiopurgatory.* +@all", *self.settings]
        Path(self.folder, "redis.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [str(program(*self.programs)), f"{self.folder}/redis.conf"]

    def url(self, port: int | None = None, user: str = "bus:secret") -> str:
        return f"redis://{user}@127.0.0.1:{port or self.port}"

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"AUTH bus secret\r\n")
                return client.recv(100).startswith(b"+OK")
        except OSError:
            return False

    async def asked(self, command: str) -> str:
        """Return the answer of the server to *command*."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"AUTH bus secret\r\n{command}\r\n".encode())
        assert (await reader.readline()).startswith(b"+OK")
        answer = (await reader.readline()).decode()
        if answer.startswith("$"):
            answer = (await reader.readexactly(int(answer[1:]))).decode()
        writer.close()
        return answer

    async def replicate(self, master: Redis) -> None:
        """Become a replica of *master*, and copy its data."""
        for command in ("CONFIG SET masteruser bus masterauth secret", f"REPLICAOF 127.0.0.1 {master.port}"):
            await self.asked(command)
        async with asyncio.timeout(30):
            while "master_link_status:up" not in await self.asked("INFO replication"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


class DurableRedis(Redis):
    """Keeps each acknowledged write."""

    settings = ("appendonly yes", "appendfsync always")


def _account() -> dict[str, Any]:
    """The account to run as, if this is root: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []}
