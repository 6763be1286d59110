"""The long-poll server of the examples, under uvicorn: what its script does not show."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from .helpers import ENV, EXAMPLES, served


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        served(EXAMPLES, "longpoll_server:create_app", ENV, "--factory") as address,
        httpx.Client(base_url=address, timeout=20.0) as client,
    ):
        yield client


def test_bad_request_is_refused(client: httpx.Client) -> None:
    for query in ["offset=-1", "offset=x", f"offset={'9' * 5_000}", "wait=nan", "wait=long"]:
        assert client.get(f"/topics/orders?{query}").status_code == 400
    for body in ["{", "NaN", '{"price": Infinity}', "[" * 100_000, "\xff"]:
        assert client.post("/topics/orders", content=body).status_code == 400
    assert client.get("/statistics").json()["keys"] == 0


def test_hang_up_during_upload_appends_nothing(client: httpx.Client) -> None:
    def cut_off() -> Iterator[bytes]:
        yield b"[1,"
        raise ConnectionError("hung up")

    with pytest.raises(ConnectionError, match="hung up"):
        client.post("/topics/uploads", content=cut_off(), headers={"content-length": "100"})
    assert client.get("/topics/uploads", params={"offset": 0, "wait": 0.1}).status_code == 204
