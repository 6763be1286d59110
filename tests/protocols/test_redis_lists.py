"""The server of examples/redis_lists.py, through redis-py: what a real Redis answers, this server answers as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import ResponseError
from redis_lists import Blocked, Client, Lists
from web.polls import until  # type: ignore[import-not-found]

from aiopurgatory import Purgatory
from aiopurgatory.testing import check_invariants, until_pending


class Served:
    """A server, and clients with one connection each."""

    def __init__(self, port: int, purgatory: Purgatory | None, **login: Any) -> None:
        self.port, self.purgatory, self.login = port, purgatory, login
        self.clients: list[Any] = []

    def client(self) -> Any:
        client = Redis(port=self.port, protocol=2, single_connection_client=True, socket_timeout=None, **self.login)
        self.clients.append(client)
        return client

    async def block(self, command: Awaitable[Any]) -> asyncio.Task[Any]:
        """Send *command* of a client of its own. Returns: its task; the server has it."""
        before = await self._count_blocked()
        task = asyncio.ensure_future(command)
        await self._until(lambda blocked: blocked != before)
        return task

    async def _count_blocked(self) -> int:
        if self.purgatory is not None:
            return self.purgatory.num_delayed
        return int((await self.clients[0].info("clients"))["blocked_clients"])

    async def gone(self) -> None:
        """Wait until no client blocks."""
        await self._until(lambda blocked: blocked == 0)

    async def _until(self, holds: Callable[[int], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds(await self._count_blocked()):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    async def close(self) -> None:
        for client in self.clients:
            await client.aclose()


@asynccontextmanager
async def serve() -> AsyncIterator[Served]:
    async with Purgatory("redis") as purgatory:
        lists = Lists(purgatory)
        server = await asyncio.get_running_loop().create_server(lambda: Client(lists), "127.0.0.1", 0)
        served = Served(server.sockets[0].getsockname()[1], purgatory)
        yield served
        check_invariants(purgatory)
        await served.close()
        server.close()
        await until(lambda: not lists.clients)
        assert purgatory.num_delayed == 0


@pytest.fixture
async def ours() -> AsyncIterator[Served]:
    async with serve() as served:
        yield served


@pytest.fixture(params=["ours", "redis-server"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Each of these tests says what Redis does: a real one is the judge."""
    if request.param == "ours":
        async with serve() as served:
            yield served
        return
    served = Served(request.getfixturevalue("redis").port, None, password="default-secret")
    yield served
    await served.close()


async def test_blpop_waits_for_a_push(served: Served) -> None:
    producer = served.client()
    waiting = await served.block(served.client().blpop(["jobs"], 0))
    assert await producer.rpush("jobs", "one", "two") == 2
    assert tuple(await waiting) == (b"jobs", b"one")
    assert await producer.llen("jobs") == 1
    assert (await producer.brpop(["jobs"], 1))[1] == b"two"


@pytest.mark.parametrize("arguments", [("jobs", "soon"), ("jobs", "nan"), ("0",)])
async def test_client_goes_on_after_a_refused_blpop(served: Served, arguments: tuple[str, ...]) -> None:
    client = served.client()
    with pytest.raises(ResponseError):
        await client.execute_command("BLPOP", *arguments)
    async with asyncio.timeout(5):
        assert await client.llen("jobs") == 0


async def test_blpop_without_a_push_returns_none(served: Served) -> None:
    assert await served.client().blpop(["jobs"], 0.05) is None


async def test_blpop_of_several_keys_takes_the_first(served: Served) -> None:
    producer = served.client()
    waiting = await served.block(served.client().blpop(["a", "b"], 0))
    await producer.rpush("b", 1)
    assert tuple(await waiting) == (b"b", b"1")
    await producer.rpush("b", 2)
    await producer.rpush("a", 3)
    assert tuple(await served.client().blpop(["a", "b"], 0)) == (b"a", b"3")


async def test_clients_are_served_in_order(served: Served) -> None:
    producer = served.client()
    waiting = [await served.block(served.client().blpop(["other", "jobs"], 0)) for _ in range(4)]
    await producer.rpush("jobs", 0)
    await producer.rpush("jobs", 1, 2)
    await producer.rpush("jobs", 3)
    assert [(await task)[1] for task in waiting] == [b"0", b"1", b"2", b"3"]


async def test_a_client_that_left_takes_nothing(served: Served) -> None:
    producer = served.client()
    leaver = served.client()
    leaving = await served.block(leaver.blpop(["jobs"], 0))
    leaving.cancel()
    await asyncio.wait([leaving])
    await leaver.aclose()
    await served.gone()
    waiting = await served.block(served.client().blpop(["jobs"], 0))
    await producer.rpush("jobs", "one")
    assert (await waiting)[1] == b"one"


async def test_blmove_chain_ends_where_nobody_waits(served: Served) -> None:
    producer = served.client()
    moves = [("a", "b"), ("b", "c"), ("c", "d")]
    waiting = [await served.block(served.client().blmove(*move, 0, "LEFT", "RIGHT")) for move in moves]
    await producer.lpush("a", "one")
    assert [await task for task in waiting] == [b"one"] * 3
    assert [await producer.llen(key) for key in "abcd"] == [0, 0, 0, 1]


async def test_blmove_to_itself_leaves_it_for_the_next(served: Served) -> None:
    producer = served.client()
    turning = await served.block(served.client().blmove("a", "a", 0))
    waiting = await served.block(served.client().blpop(["a"], 0))
    await producer.rpush("a", "one")
    assert (await turning, (await waiting)[1]) == (b"one", b"one")


async def test_exec_is_told_as_one_step(served: Served) -> None:
    """What the first one moves comes after all that the transaction pushed."""
    producer = served.client()
    moving = await served.block(served.client().blmove("a", "b", 0))
    first = await served.block(served.client().blpop(["b"], 0))
    second = await served.block(served.client().blpop(["b"], 0))
    async with producer.pipeline(transaction=True) as transaction:
        transaction.rpush("a", "moved")
        transaction.rpush("b", "pushed")
        transaction.blpop(["none"], 0)  # it does not block there
        assert await transaction.execute() == [1, 1, None]
    assert [await moving, (await first)[1], (await second)[1]] == [b"moved", b"pushed", b"moved"]


@pytest.mark.parametrize("reason", [None, "TIMEOUT", "ERROR"])
async def test_client_unblock_answers_at_once(served: Served, reason: str | None) -> None:
    other, client = served.client(), served.client()
    number = await client.client_id()
    assert await other.client_unblock(number) == 0
    waiting = await served.block(client.blpop(["jobs"], 0))
    assert await other.execute_command("CLIENT UNBLOCK", number, *([reason] if reason else [])) == 1
    if reason == "ERROR":
        with pytest.raises(ResponseError, match="UNBLOCKED"):
            await waiting
    else:
        assert await waiting is None
    assert await client.llen("jobs") == 0


async def test_commands_after_a_blocking_one_wait(served: Served) -> None:
    producer = served.client()
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        if "password" in served.login:
            writer.write(b"*2\r\n$4\r\nAUTH\r\n$14\r\ndefault-secret\r\n")
            assert await reader.readline() == b"+OK\r\n"
        blpop = b"*3\r\n$5\r\nBLPOP\r\n$4\r\njobs\r\n$1\r\n0\r\n"
        writer.write(blpop + blpop + b"*2\r\n$4\r\nLLEN\r\n$4\r\njobs\r\n")
        await producer.rpush("jobs", "x", "y", "z")
        answer = b"*2\r\n$4\r\njobs\r\n$1\r\n%s\r\n"
        expected = answer % b"x" + answer % b"y" + b":1\r\n"
        assert await reader.readexactly(len(expected)) == expected
        writer.close()


async def test_wait_returns_how_many_have_it(ours: Served) -> None:
    producer, *replicas = (ours.client() for _ in range(3))
    for replica in replicas:
        await replica.execute_command("REPLCONF", "ACK", 0)
    await producer.rpush("jobs", "one")
    assert await producer.wait(1, 20) == 0
    waiting = await ours.block(producer.wait(2, 0))
    await replicas[0].execute_command("REPLCONF", "ACK", 1)
    assert not waiting.done()
    await replicas[1].execute_command("REPLCONF", "ACK", 1)
    assert await waiting == 2
    assert await producer.wait(1, 0) == 2


async def test_a_push_wakes_one_of_many(ours: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    real = Blocked.try_complete

    def try_complete(op: Blocked) -> bool:
        nonlocal tries
        tries += 1
        return real(op)

    producer = ours.client()
    assert ours.purgatory is not None
    waiting = [asyncio.ensure_future(ours.client().blpop(["jobs"], 0)) for _ in range(100)]
    await until_pending(ours.purgatory, 100, timeout=30.0)
    monkeypatch.setattr(Blocked, "try_complete", try_complete)
    for number in range(100):
        await producer.rpush("jobs", number)
    served = [int(value) for _, value in await asyncio.gather(*waiting)]
    assert sorted(served) == list(range(100))
    assert tries == 100


async def test_unknown_command_is_refused(ours: Served) -> None:
    with pytest.raises(ResponseError, match="unknown command"):
        await ours.client().get("key")
    with pytest.raises(ResponseError):
        await ours.client().execute_command("BLPOP", "key", "soon")


async def test_close_answers_who_waits(ours: Served) -> None:
    assert ours.purgatory is not None
    waiting = await ours.block(ours.client().blpop(["jobs"], 0))
    ours.purgatory.close()
    with pytest.raises((ResponseError, LostError), match="closed"):
        await waiting
