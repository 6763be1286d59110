"""Buses over TLS: real servers, and certificates by an authority of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiopurgatory.bus import BusConnectError

from .servers import bus_on
from .tls import TlsPostgres, TlsRedis, make_certificates
from .waits import Recorder, until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    try:
        make_certificates(folder)
    except FileNotFoundError:
        pytest.skip("buses over TLS were not tested: openssl is not installed: make programs")
    return folder


@pytest.fixture(scope="module", params=[TlsPostgres, TlsRedis])
def server(request: pytest.FixtureRequest, certificates: Path) -> Iterator[TlsPostgres | TlsRedis]:
    pytest.importorskip("asyncpg" if request.param is TlsPostgres else "redis")
    try:
        server = request.param(certificates)
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")
    with server:
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
