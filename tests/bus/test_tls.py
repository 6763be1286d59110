"""Buses over TLS: real servers, and certificates by a throw-away authority, made by the program openssl."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from private_servers import Postgres, Redis, free_port

from aiopurgatory.bus import BusConnectError

from .conftest import made
from .servers import bus_on
from .waits import Recorder, until

_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
#: The server's certificate is for 127.0.0.1, and not for localhost.
_EXTENSIONS = "subjectAltName=IP:127.0.0.1\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"


def make_certificates(folder: Path) -> None:
    """Make ``ca``, ``server.crt`` and ``server.key`` signed by it, and ``other``, an authority that signed nothing.

    Raises: FileNotFoundError: openssl is not installed.
    """

    def openssl(arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True, cwd=folder)

    (folder / "extensions").write_text(_EXTENSIONS)
    for name in ("ca", "other"):
        usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
        openssl(f"req -x509 {_KEY} {usage} -subj /CN={name} -keyout {name}.key -out {name}")
    openssl(f"req {_KEY.removesuffix('-days 2')} -subj /CN=server -keyout server.key -out request")
    openssl("x509 -req -in request -CA ca -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.crt")


class TlsPostgres(Postgres):
    """Args: certificates: the folder of make_certificates()."""

    def __init__(self, certificates: Path) -> None:
        self.certificates = certificates
        files = f"ssl_cert_file={certificates}/server.crt", f"ssl_key_file={certificates}/server.key"
        self.settings = ("ssl=on", *files)  # type: ignore[misc]
        super().__init__()

    def secure_url(self, trusted: str, host: str = "127.0.0.1") -> str:
        """Args: trusted: the name of an authority."""
        url = self.url().replace("127.0.0.1", host)
        return url.replace("sslmode=disable", f"sslmode=verify-full&sslrootcert={self.certificates}/{trusted}")


class TlsRedis(Redis):
    """With a second port for TLS. Args: certificates: the folder of make_certificates()."""

    def __init__(self, certificates: Path) -> None:
        self.certificates, self.tls_port = certificates, free_port()
        files = f"tls-cert-file {certificates}/server.crt", f"tls-key-file {certificates}/server.key"
        more = f"tls-port {self.tls_port}", "tls-auth-clients no", f"tls-ca-cert-file {certificates}/ca"
        self.settings = (*more, *files)  # type: ignore[misc]
        super().__init__()

    def secure_url(self, trusted: str, host: str = "127.0.0.1") -> str:
        """Args: trusted: the name of an authority."""
        url = self.url(self.tls_port).replace("redis:", "rediss:").replace("127.0.0.1", host)
        return f"{url}?ssl_ca_certs={self.certificates}/{trusted}"


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    """Both servers may read them: as a user of their own, if this is root."""
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        try:
            make_certificates(folder)
        except FileNotFoundError:
            pytest.skip("buses over TLS were not tested: openssl is not installed: make programs")
        for path in (folder, *folder.iterdir()) if os.geteuid() == 0 else ():
            shutil.chown(path, "postgres", "postgres")
        yield folder


@pytest.fixture(scope="module", params=[TlsPostgres, TlsRedis])
def server(request: pytest.FixtureRequest, certificates: Path) -> Iterator[TlsPostgres | TlsRedis]:
    with made(request.param, certificates) as server:
        yield server


async def test_publish_over_tls_reaches_the_other_bus(server: TlsPostgres | TlsRedis) -> None:
    there = Recorder()
    one, other = (bus_on(server.secure_url("ca"), [target]) for target in (Recorder(), there))
    async with one, other:
        for number in range(3000):  # more than TLS sends at a time
            one.publish(("orders", number))
        await asyncio.wait_for(one.flush(), 10.0)
        await until(lambda: len(there.keys) == 3000)


OPTION = {"postgres": "sslrootcert", "redis": "ssl_ca_certs"}


@pytest.mark.parametrize(
    ("trusted", "host"),
    [("other", "127.0.0.1"), ("ca", "localhost"), ("nowhere", "127.0.0.1")],
    ids=["authority", "host", "no_file"],
)
async def test_start_untrusted_certificate_says_what_to_do(
    server: TlsPostgres | TlsRedis, trusted: str, host: str
) -> None:
    with pytest.raises(BusConnectError) as caught:
        await bus_on(server.secure_url(trusted, host), []).start()
    assert "certificate" in str(caught.value) or trusted == "nowhere"
    assert OPTION[server.kind] in str(caught.value)
    assert "secret" not in str(caught.value)
