"""Apps that are started once, twice, or not at all; with and without a lifespan. By Starlette's test client."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import LongPolling, LongPollRoute

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the test client, about the HTTP client it prefers
    from starlette.testclient import TestClient

PARK = {"If-None-Match": '"0"'}


def make_app(polling: LongPolling[str], **options: Any) -> Starlette:
    return Starlette(routes=[Route("/{topic}", LongPollRoute(polling), methods=["GET"])], **options)


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory()


@pytest.fixture
def polling(purgatory: Purgatory, source: Any) -> LongPolling[str]:
    return LongPolling(purgatory, source)


def test_app_of_a_module_is_started_again_and_again(polling: LongPolling[str]) -> None:
    app = make_app(polling)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/n?wait=0.05", headers=PARK).status_code == 304


def test_app_that_opens_the_purgatory_itself_is_started_again(polling: LongPolling[str], purgatory: Purgatory) -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with purgatory:
            yield

    app = make_app(polling, lifespan=lifespan)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/n?wait=0.05", headers=PARK).status_code == 304
        assert not purgatory.is_open


def test_app_that_is_never_started_answers_all_the_same(polling: LongPolling[str]) -> None:
    client = TestClient(make_app(polling))
    for _ in range(2):
        assert client.get("/n?wait=0.05", headers=PARK).status_code == 304
