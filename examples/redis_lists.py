"""Lists of Redis with its blocking commands, on raw TCP: an asyncio.Protocol, and no task for a connection.

    python examples/redis_lists.py 6400
    redis-cli -p 6400 blpop jobs 0

A client that blocks is an operation under the keys of its lists. It is answered by the hook of the operation, in the
call that ends it, so clients are answered in the order in which they are served. Lists are in memory.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, TypeAlias

from hiredis import Reader

from aiopurgatory import DelayedOperation, Purgatory

#: Stands for no answer: it comes when the client is unblocked.
LATER: Final = object()
Attempt: TypeAlias = Callable[[], object]


class RedisError(Exception):
    """Sent as the answer. It begins with a code."""


class Lists:
    """The state: lists, connected clients, and how much each replica has acknowledged."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.lists: dict[bytes, deque[bytes]] = {}
        self.clients: dict[int, Client] = {}
        self.numbers = count(1)
        self.offset = 0
        self.acknowledged: dict[int, int] = {}
        #: How many items were pushed to each list since the last tell().
        self.pushed: Counter[bytes] = Counter()

    def push(self, key: bytes, side: bytes, *values: bytes) -> int:
        found = self.lists.setdefault(key, deque())
        (found.extendleft if side == b"LEFT" else found.extend)(values)
        self.pushed[key] += len(values)
        self.offset += 1
        return len(found)

    def pop(self, key: bytes, side: bytes) -> bytes | None:
        found = self.lists.get(key)
        if not found:
            return None
        value = found.popleft() if side == b"LEFT" else found.pop()
        if not found:
            del self.lists[key]
        self.offset += 1
        return value

    def tell(self) -> None:
        """Serve as many clients as there are new items. What that pushes is told after all of these keys."""
        if self.pushed:
            pushed, self.pushed = self.pushed, Counter()
            self.purgatory.check_each(list(pushed), limit=max(pushed.values()))


class Blocked(DelayedOperation[None]):
    """A client that waits for an answer.

    Args: attempt: returns the answer, or None. late: returns the answer at the deadline.
    """

    def __init__(self, client: Client, attempt: Attempt, late: Attempt) -> None:
        self.client, self.attempt, self.late = client, attempt, late
        self.answer: object = None

    def try_complete(self) -> bool:
        if self.client.transport.is_closing():
            return False  # it has left, and connection_lost() is on its way
        self.answer = self.attempt()
        return self.answer is not None and self.force_complete()

    def on_complete(self) -> None:
        self.client.unblock(self.answer if self.answer is not None else self.late())

    def on_failure(self, exc: BaseException) -> None:
        self.client.unblock(exc)


class Client(asyncio.Protocol):
    """A connection. While it blocks, its next commands wait in the reader."""

    transport: asyncio.Transport

    def __init__(self, lists: Lists) -> None:
        self.lists, self.reader, self.number = lists, Reader(), next(lists.numbers)
        self.blocked: Blocked | None = None
        self.queued: list[list[bytes]] | None = None  # commands since MULTI
        self.may_block = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.lists.clients[self.number] = self

    def connection_lost(self, exc: Exception | None) -> None:
        del self.lists.clients[self.number]
        self.lists.acknowledged.pop(self.number, None)
        if self.blocked is not None:
            self.blocked.cancel()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        self.run()

    def run(self) -> None:
        while self.blocked is None and not self.transport.is_closing():
            command = self.reader.gets()
            if command is False:
                return
            self.send(self.execute(command) if self.queued is None else self.queue(command))
            self.lists.tell()

    def queue(self, command: list[bytes]) -> object:
        assert self.queued is not None
        if command[0].upper() != b"EXEC":
            self.queued.append(command)
            return "QUEUED"
        commands, self.queued = self.queued, None
        self.may_block = False
        try:
            return [self.execute(command) for command in commands]
        finally:
            self.may_block = True

    def execute(self, command: list[bytes]) -> object:
        try:
            return COMMANDS[command[0].upper()](self, *command[1:])
        except KeyError:
            return RedisError(f"ERR unknown command {command[0].decode()!r}")
        except (TypeError, ValueError) as exc:
            return RedisError(f"ERR {exc}")

    def send(self, answer: object) -> None:
        if answer is not LATER:
            self.transport.write(encode(answer))

    # blocking

    def block(self, keys: list[Any], seconds: float, attempt: Attempt, late: Attempt = lambda: None) -> object:
        """Answer now if *attempt* returns an answer, else when it does, or at the deadline with *late*'s."""
        if not self.may_block:
            return attempt()
        blocked = Blocked(self, attempt, late)
        self.lists.purgatory.watch(blocked, keys, timeout=seconds or None)  # if it raises, the client goes on
        self.blocked = None if blocked.done() else blocked
        return LATER

    def unblock(self, answer: object) -> None:
        self.blocked = None
        self.send(answer)
        self.lists.tell()
        asyncio.get_running_loop().call_soon(self.run)

    def pop_first(self, side: bytes, *args: bytes) -> object:
        def attempt() -> object:
            for key in keys:
                value = self.lists.pop(key, side)
                if value is not None:
                    return [key, value]
            return None

        *keys, seconds = args
        return self.block(keys, float(seconds), attempt)

    def move(self, source: bytes, target: bytes, pop_from: bytes, push_to: bytes, seconds: bytes) -> object:
        def attempt() -> object:
            value = self.lists.pop(source, pop_from.upper())
            if value is not None:
                self.lists.push(target, push_to.upper(), value)
            return value

        return self.block([source], float(seconds), attempt)

    def wait(self, replicas: bytes, milliseconds: bytes) -> object:
        def reached() -> int:
            return sum(offset >= written for offset in self.lists.acknowledged.values())

        def attempt() -> int | None:
            return reached() if reached() >= int(replicas) else None

        written = self.lists.offset
        return self.block(["replicas"], int(milliseconds) / 1000, attempt, reached)

    def acknowledge(self, _: bytes, offset: bytes) -> object:
        self.lists.acknowledged[self.number] = int(offset)
        self.lists.purgatory.check_and_complete("replicas")  # of these, any number may go on
        return "OK"

    def client(self, action: bytes, *args: bytes) -> object:
        if action.upper() == b"UNBLOCK":
            other = self.lists.clients.get(int(args[0]))
            if other is None or other.blocked is None:
                return 0
            if args[1:] and args[1].upper() == b"ERROR":
                other.blocked.answer = RedisError("UNBLOCKED client unblocked via CLIENT UNBLOCK")
            other.blocked.force_complete()  # else it is answered as at its deadline
            return 1
        return self.number if action.upper() == b"ID" else "OK"

    def multi(self) -> object:
        self.queued = []
        return "OK"


COMMANDS: dict[bytes, Callable[..., object]] = {
    b"BLPOP": lambda client, *args: client.pop_first(b"LEFT", *args),
    b"BRPOP": lambda client, *args: client.pop_first(b"RIGHT", *args),
    b"BLMOVE": Client.move,
    b"CLIENT": Client.client,
    b"LLEN": lambda client, key: len(client.lists.lists.get(key, ())),
    b"LPUSH": lambda client, key, *values: client.lists.push(key, b"LEFT", *values),
    b"MULTI": Client.multi,
    b"REPLCONF": Client.acknowledge,
    b"RPUSH": lambda client, key, *values: client.lists.push(key, b"RIGHT", *values),
    b"WAIT": Client.wait,
}


def encode(answer: object) -> bytes:
    """Encode *answer* as RESP 2 has it."""
    match answer:
        case None:
            return b"*-1\r\n"
        case int():
            return b":%d\r\n" % answer
        case str():
            return b"+%s\r\n" % answer.encode()
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(answer), answer)
        case list():
            return b"*%d\r\n%s" % (len(answer), b"".join(map(encode, answer)))
        case _:
            return b"-%s\r\n" % (str(answer) if isinstance(answer, RedisError) else f"ERR {answer}").encode()


async def main(port: int) -> None:
    async with Purgatory("redis") as purgatory:
        lists = Lists(purgatory)
        server = await asyncio.get_running_loop().create_server(lambda: Client(lists), "127.0.0.1", port)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
