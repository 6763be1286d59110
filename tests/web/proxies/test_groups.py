"""Groups of workers with channels of their own behind a real proxy, with the recipe of docs/proxies.md."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self

import pytest
from private_servers import Redis, free_port

from ..helpers import ENV, Peer, listens, read, wait_until
from .programs import LONG, HAProxy, Nginx, Proxy
from .recipes import changed, recipe

PLACES = ("127.0.0.1:8001", "127.0.0.1:8002")
#: The part of the page that the recipe replaces, and its choice of a group.
REPLACED = {Nginx: r"^    upstream app \{\n.*?^    \}\n", HAProxy: r"^backend app\n.*"}
CHOICE = {Nginx: "hash $uri consistent;", HAProxy: "balance uri path-only"}
TOPICS = 20

Statistics = list[dict[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def groups() -> Iterator[list[Group]]:
    pytest.importorskip("redis")
    with ExitStack() as stack:
        try:
            redis = stack.enter_context(GroupsRedis())
        except FileNotFoundError as exc:
            pytest.skip(f"groups of workers were not tested: {exc} (Debian: make programs, as root)")
        yield [stack.enter_context(Group(redis, f"group-{number}")) for number in (1, 2)]


def before(kind: type[Proxy], groups: list[Group], changes: dict[str, str] | None = None) -> Proxy:
    """The proxy with the recipe, and *changes* to that."""
    whole, group = recipe(kind.language), changed(recipe(kind.language, 1), changes or {})
    replaced = re.search(REPLACED[kind], whole, re.MULTILINE | re.DOTALL)
    assert replaced is not None
    addresses = {place: group.address for place, group in zip(PLACES, groups, strict=True)}
    return kind(addresses, {replaced[0]: group})


def statistics(groups: list[Group]) -> Statistics:
    return [group.statistics() for group in groups]


def pending(groups: list[Group]) -> list[int]:
    """Of each worker."""
    return [worker["pending"] for group in statistics(groups) for worker in group.values()]


def heard(found: Statistics) -> int:
    """How many keys all workers have published or received."""
    return sum(worker["published"] + worker["received"] for group in found for worker in group.values())


def wait_for(groups: list[Group], polls: int) -> None:
    wait_until(lambda: sum(pending(groups)) == polls, lambda: statistics(groups))


def parked(proxy: Proxy, groups: list[Group], topics: list[str]) -> list[socket.socket]:
    """Polls on *topics*, in every worker: which one of a group accepts is chance."""
    polls: list[socket.socket] = []
    while not polls or 0 in pending(groups):
        assert len(polls) < 30 * len(topics), "a worker gets no polls"
        polls += [proxy.poll(topic, LONG) for topic in topics]
        wait_for(groups, len(polls))
    return polls


@pytest.mark.parametrize("kind", REPLACED)
def test_groups_every_poll_is_answered_by_its_own_group(kind: type[Proxy], groups: list[Group]) -> None:
    topics = [f"{kind.language}-{number}" for number in range(TOPICS)]
    with before(kind, groups) as proxy:
        polls = parked(proxy, groups, topics)
        first = statistics(groups)
        channels = [proxy.ask(f"POST /polls/{topic}").body.decode() for topic in topics]
        assert [read(poll).status for poll in polls] == [200] * len(polls)
        assert sum(pending(groups)) == 0
    assert set(channels) == {"group-1", "group-2"}

    # A worker may hear of the last key after the polls were answered.
    wait_until(lambda: heard(statistics(groups)) >= heard(first) + WORKERS * TOPICS)
    for number, (earlier, later) in enumerate(zip(first, statistics(groups), strict=True), 1):
        told = channels.count(f"group-{number}")
        for pid, worker in later.items():
            published, received = (worker[name] - earlier[pid][name] for name in ("published", "received"))
            assert published + received == told  # all that its group publishes, and nothing else
            assert worker["gaps"] == 0


@pytest.mark.parametrize("kind", REPLACED)
def test_control_without_the_hash_some_stay_parked(kind: type[Proxy], groups: list[Group]) -> None:
    with before(kind, groups, {CHOICE[kind]: ""}) as proxy:
        polls = [proxy.poll(f"{kind.language}-control", LONG) for _ in range(4)]
        wait_for(groups, 4)
        proxy.ask(f"POST /polls/{kind.language}-control")
        wait_for(groups, 2)
        time.sleep(0.3)
        assert sum(pending(groups)) == 2
        for poll in polls:
            poll.close()
        wait_for(groups, 0)


WORKERS = 2


class GroupsRedis(Redis):
    """Its user may use the channels of the groups alone."""

    settings = ("user groups on >secret ~* resetchannels &group-1 &group-2 +@all",)


class Group(Peer):
    """Workers behind one port, as the page says: ``uvicorn --workers 2 --port 8001``."""

    def __init__(self, redis: Redis, channel: str) -> None:
        super().__init__()
        self.address = ("127.0.0.1", free_port())
        arguments = ["--factory", "--workers", str(WORKERS), "--port", str(self.address[1]), "--log-level", "warning"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "web.proxies.grouped:app", *arguments],
            env=ENV | {"REDIS_URL": redis.url(user="groups:secret"), "CHANNEL": channel},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        wait_until(lambda: listens(self.address))
        return self

    def stop(self, failed: bool) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def statistics(self) -> dict[int, dict[str, Any]]:
        """Of each worker, by its process id. Which one answers is chance."""
        found: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + 30
        while len(found) < WORKERS:
            assert time.monotonic() < end, f"only one worker answers: {found}"
            worker = self.ask("GET /statistics").json
            found.setdefault(worker["pid"], worker)
        return found
