"""Private servers on free ports, in temporary folders: started, killed, stopped and started again by tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiopurgatory.bus import Bus, Target


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str | None:
    """Where the program is: on the PATH, or in a place of Debian's."""
    places = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), "/usr/sbin"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


class Server(ABC):
    """Args: port: that clients connect to; None: a free one."""

    kind = ""
    needs = ""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix=f"aiopurgatory-{self.kind}-", dir="/tmp")
        self.process: subprocess.Popen[bytes] | None = None
        if as_user():
            shutil.chown(self.folder, "postgres", "postgres")
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.remove()
            raise

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def url(self, port: int | None = None) -> str: ...

    def start(self) -> None:
        log = Path(self.folder, "log").open("ab")  # noqa: SIM115 the process has it
        with log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, start_new_session=True, **as_user())
        deadline = time.monotonic() + 30
        while not self.is_ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(Path(self.folder, "log").read_text())
            time.sleep(0.02)

    @abstractmethod
    def is_ready(self) -> bool: ...

    def signal(self, number: int) -> None:
        """To the server and all of its processes: those of PostgreSQL have sessions of their own."""
        if self.process is not None:
            pid = self.process.pid
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                for process in (pid, *map(int, children)):
                    os.kill(process, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    kind = "postgres"
    needs = "initdb"

    def prepare(self) -> None:
        Path(self.folder, "password").write_text("secret")
        initdb = [
            str(program("initdb")),
            "-D",
            f"{self.folder}/data",
            "-U",
            "bus",
            "-A",
            "scram-sha-256",
            "-N",
            "-E",
            "UTF8",
        ]
        initdb += ["--pwfile", f"{self.folder}/password", "--no-locale"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user())

    def command(self) -> list[str]:
        with suppress(FileNotFoundError):  # of one that was killed
            os.unlink(f"{self.folder}/data/postmaster.pid")
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "fsync=off",
        ]
        settings += ["shared_buffers=16MB", "max_connections=60"]
        options = [option for setting in settings for option in ("-c", setting)]
        return [str(program("postgres")), "-D", f"{self.folder}/data", *options]

    def url(self, port: int | None = None, user: str = "bus:secret", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}?sslmode=disable"

    def is_ready(self) -> bool:
        command = [str(program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0


class Redis(Server):
    kind = "redis"
    needs = "redis-server"

    def prepare(self) -> None:
        Path(self.folder, "redis.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\nsave ''\ndir {self.folder}\n"
            "user default off\nuser bus on >secret ~* &aiopurgatory +@all\n"
            "user deaf on >secret ~* resetchannels +@all\n"
        )

    def command(self) -> list[str]:
        return [str(program("redis-server")), f"{self.folder}/redis.conf"]

    def url(self, port: int | None = None, user: str = "bus:secret") -> str:
        return f"redis://{user}@127.0.0.1:{port or self.port}"

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"AUTH bus secret\r\n")
                return client.recv(100).startswith(b"+OK")
        except OSError:
            return False


def as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if has_user() else {}


def has_user() -> bool:
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return False
    return True


def bus_on(url: str, targets: Iterable[Target], **options: Any) -> Bus:
    """The bus for the server at *url*."""
    if url.startswith("redis"):
        from aiopurgatory.bus.redis import RedisBus

        return RedisBus(url, targets, **options)
    from aiopurgatory.bus.postgres import PostgresBus

    return PostgresBus(url, targets, **options)


class PgBouncer(Server):
    """Before a PostgreSQL. Args: mode: transaction or session."""

    kind = "pgbouncer"
    needs = "pgbouncer"

    def __init__(self, server: Server, mode: str) -> None:
        self.server, self.mode = server, mode
        super().__init__()

    def prepare(self) -> None:
        Path(self.folder, "users").write_text('"bus" "secret"\n')
        Path(self.folder, "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server.port}\n"
            f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={self.port}\nunix_socket_dir=\n"
            f"auth_type=plain\nauth_file={self.folder}/users\npool_mode={self.mode}\n"
        )

    def command(self) -> list[str]:
        return [str(program("pgbouncer")), f"{self.folder}/pgbouncer.ini"]

    def url(self, port: int | None = None) -> str:
        return self.server.url(port or self.port)

    def is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
