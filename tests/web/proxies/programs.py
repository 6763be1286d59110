"""nginx, HAProxy and Apache, run with the configurations of docs/proxies.md."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

import pytest
from private_servers import free_port

from ..helpers import Peer, Served, listens, wait_until
from .recipes import changed, recipe

Address = tuple[str, int]

INSTALL = "Debian: make programs, as root"
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
APACHE_MODULES = Path("/usr/lib/apache2/modules")
APACHE_LOADS = ("mpm_event", "authz_core", "filter", "deflate", "brotli", "proxy", "proxy_http")


class Proxy(Peer):
    """A proxy before the app at *app*, in processes and a folder of its own.

    Args:
        app: its address; or one for each address that the page has, if there are several.
        changes: the parts to replace in the configuration on the page, and their replacements.
    """

    program: ClassVar[str]
    language: ClassVar[str]
    #: Where it listens on the page, and here.
    listens: ClassVar[tuple[str, str]]

    def __init__(
        self, app: Address | dict[str, Address], changes: dict[str, str] | None = None, port: int | None = None
    ) -> None:
        super().__init__()
        path = shutil.which(self.program, path=PATH)
        if path is None:
            pytest.skip(f"long polls were not tested behind {self.program}: it is not installed ({INSTALL})")
        self.path = path
        self.address = ("127.0.0.1", port or free_port())
        on_page, here = self.listens
        apps = app if isinstance(app, dict) else {"127.0.0.1:8000": app}
        places = {on_page: here.format(*self.address)} | {place: "{}:{}".format(*apps[place]) for place in apps}
        self.config = changed(changed(recipe(self.language), changes or {}), places)

    def complete(self, config: str, folder: Path) -> str:
        """*config* with the contents of the system's own files, and with no path outside *folder*."""
        return config

    @abstractmethod
    def arguments(self, folder: Path) -> list[str]:
        """Of the program with its configuration in *folder*."""

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="aiopurgatory-")
        folder = Path(self._folder.name)
        (folder / "config").write_text(self.complete(self.config, folder))
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [self.path, *self.arguments(folder)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_for_start(folder)
        except BaseException:
            self.stop(failed=True)
            raise
        return self

    def _wait_for_start(self, folder: Path) -> None:
        wait_until(lambda: listens(self.address) or self.process.poll() is not None)
        assert self.process.poll() is None, (folder / "log").read_text()

    def stop(self, failed: bool) -> None:
        with suppress(ProcessLookupError):  # it could not start
            os.killpg(self.process.pid, signal.SIGKILL)  # Apache would stop when its polls end
        self.process.wait()
        self._folder.cleanup()

    def poll(self, topic: str, wait: float, known: str | None = '"0"', query: str = "") -> socket.socket:
        headers = {"Accept-Encoding": "gzip, br"} | ({} if known is None else {"If-None-Match": known})
        return self.send(f"GET /polls/{topic}?wait={wait}{query}", headers)


class Nginx(Proxy):
    program, language, listens = "nginx", "nginx", ("listen 80", "listen {}:{}")

    def complete(self, config: str, folder: Path) -> str:
        folders = [
            f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ]
        own = "\n".join(["http {", "access_log off;", *folders])
        return f"daemon off;\nuser root;\npid {folder}/pid;\n{changed(config, {'http {': own})}"

    def arguments(self, folder: Path) -> list[str]:
        return ["-p", str(folder), "-e", "stderr", "-c", str(folder / "config")]


class HAProxy(Proxy):
    program, language, listens = "haproxy", "haproxy", ("bind :80", "bind {}:{}")

    def version(self) -> tuple[int, ...]:
        said = subprocess.run([self.path, "-v"], capture_output=True, text=True, check=True).stdout
        return tuple(map(int, said.split()[2].split("-")[0].split(".")))  # HAProxy version 2.6.12-1+deb12u4 ...

    def arguments(self, folder: Path) -> list[str]:
        return ["-db", "-f", str(folder / "config")]


class Apache(Proxy):
    program, language, listens = "apache2", "apache", ("*:80", "{}:{}")

    def complete(self, config: str, folder: Path) -> str:
        own = [f"ServerRoot {folder}", f"PidFile {folder}/pid", "ErrorLog /dev/stderr", "User nobody", "Group nogroup"]
        own += ["ServerName app", "Listen {}:{}".format(*self.address)]
        own += [f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so" for name in APACHE_LOADS]
        return "\n".join([*own, config])

    def arguments(self, folder: Path) -> list[str]:
        return ["-D", "FOREGROUND", "-f", str(folder / "config")]


#: A wait that no test sees the end of.
LONG = 20


@contextmanager
def ends(served: Served, **expected: int) -> Iterator[None]:
    """So many polls end in here as completed, expired, cancelled or failed, and that much sooner than LONG."""
    before = served.statistics()
    start = time.monotonic()
    yield
    served.wait_for(pending=0, **{how: before[how] + count for how, count in expected.items()})
    assert time.monotonic() - start < LONG * 3 / 4
