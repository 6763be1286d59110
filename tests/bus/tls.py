"""Servers that speak TLS, with certificates by a throw-away authority, made by the program openssl."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from private_servers import Postgres, Redis, free_port

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
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        _copy(self.certificates, Path(self.folder))

    def command(self) -> list[str]:
        settings = ["ssl=on", f"ssl_cert_file={self.folder}/server.crt", f"ssl_key_file={self.folder}/server.key"]
        return [*super().command(), *(option for setting in settings for option in ("-c", setting))]

    def secure_url(self, trusted: str, host: str = "127.0.0.1") -> str:
        """Args: trusted: the name of an authority."""
        url = self.url().replace("127.0.0.1", host)
        return url.replace("sslmode=disable", f"sslmode=verify-full&sslrootcert={self.certificates}/{trusted}")


class TlsRedis(Redis):
    """With a second port for TLS. Args: certificates: the folder of make_certificates()."""

    def __init__(self, certificates: Path) -> None:
        self.certificates, self.tls_port = certificates, free_port()
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        _copy(self.certificates, Path(self.folder))
        with Path(self.folder, "redis.conf").open("a") as config:
            config.write(f"tls-port {self.tls_port}\ntls-auth-clients no\ntls-ca-cert-file {self.folder}/ca\n")
            config.write(f"tls-cert-file {self.folder}/server.crt\ntls-key-file {self.folder}/server.key\n")

    def secure_url(self, trusted: str, host: str = "127.0.0.1") -> str:
        """Args: trusted: the name of an authority."""
        url = self.url(self.tls_port).replace("redis:", "rediss:").replace("127.0.0.1", host)
        return f"{url}?ssl_ca_certs={self.certificates}/{trusted}"


def _copy(certificates: Path, folder: Path) -> None:
    """Both servers read their files as the owner of *folder*, and PostgreSQL takes no key that others may read."""
    owner = folder.stat()
    for name in ("ca", "server.crt", "server.key"):
        copied = shutil.copy(certificates / name, folder)
        os.chown(copied, owner.st_uid, owner.st_gid)
        os.chmod(copied, 0o600)
