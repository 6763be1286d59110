"""Attacks of anonymous clients, and the conditions that must hold meanwhile and afterwards."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle, islice

from ..helpers import Served, read, wait_until

#: Clients that attack together.
CROWD = 50
#: Seconds in which all places must be free again, far less than any of the polls would last.
FREE_WITHIN = 20.0


def request(path: str, *fields: str, method: str = "GET") -> bytes:
    lines = "".join(f"{field}\r\n" for field in ("Host: x", *fields))
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


@contextmanager
def attacked(server: str, app: str = "starlette") -> Iterator[Served]:
    """A server that has started."""
    with Served(server, f"attacks.app:{app}", quiet=False) as served:
        served.wait_for(pending=0)
        yield served


@contextmanager
def crowd(served: Served, *requests: bytes, address: tuple[str, int] | None = None) -> Iterator[list[socket.socket]]:
    """CROWD clients, which send one of *requests* each, take a place each, and read nothing."""
    with ExitStack() as stack:
        clients = []
        for sent in islice(cycle(requests), CROWD):
            client = stack.enter_context(socket.create_connection(address or served.address, timeout=20))
            client.sendall(sent)
            clients.append(client)
        # A stream of the brief app may end before the last client comes.
        wait_until(lambda: (now := served.statistics())["pending"] + now["completed"] >= CROWD, served.statistics)
        yield clients


def trickle(clients: Sequence[socket.socket], bodies: Iterable[Sequence[bytes]], pause: float = 0.01) -> None:
    """*clients* send *bodies* in turn, piece by piece, unless the server hangs up."""
    for pieces in zip(*bodies, strict=True):
        for client, piece in zip(clients, cycle(pieces), strict=False):
            with suppress(OSError):
                client.send(piece)
        time.sleep(pause)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def leave(clients: Sequence[socket.socket]) -> None:
    """Each in another way: it closes, resets, or closes its half alone."""
    for client in clients[::3]:
        client.close()
    for client in clients[1::3]:
        reset(client)
    for client in clients[2::3]:
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def check_free(served: Served, clients: Sequence[socket.socket] = ()) -> None:
    """Somebody else's poll is answered: with the state, and by publishing. When *clients* leave, no place is taken."""
    known = served.ask("GET /polls/another").headers["etag"]
    poll = served.send("GET /polls/another", {"If-None-Match": known})
    served.ask("POST /polls/another")
    answer = read(poll)
    assert (answer.status, answer.headers["etag"] == known) == (200, False)
    leave(clients)
    wait_until(lambda: not served.statistics()["pending"], served.statistics, FREE_WITHIN)
