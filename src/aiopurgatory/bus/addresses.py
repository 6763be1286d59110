"""The address of a server: what of its URL may be shown, and the look-up of its host names."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

_HOST: Final = r"(?:\[[\w:.%]+\]|[^/?\#@\[\],:\s]*)(?::[0-9]*)?"
#: At most one @, and that before the host. So no part of a password can be taken for a host, port or path.
_URL: Final = re.compile(
    rf"""(?P<scheme>\w+)://
    (?:[^/?\#@\[\]]*@)?
    (?P<hosts>{_HOST}(?:,{_HOST})*)
    (?P<path>/[^?\#@]*)?
    (?:\?(?P<query>[^\#@]*))?""",
    re.ASCII | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL that may be shown.

    Args:
        where: hosts, ports and path, without user, password and options.
        hosts: the host names and IP addresses, without ports.
    """

    where: str
    hosts: tuple[str, ...]


def parse(url: object, parameter: str, example: str, schemes: Iterable[str]) -> Address:
    """Return the address in *url*.

    Raises: TypeError, ValueError: *url* is invalid. The message does not show it: it may hold a password.
    """
    if not isinstance(url, str):
        raise TypeError(f"{parameter} must be a str, got {type(url).__name__}")
    match = _URL.fullmatch(url)
    if match is None or match["scheme"].lower() not in schemes or not _is_accepted(url):
        raise ValueError(
            f"{parameter} must be a URL such as {example}; in user, password and options, write / ? # @ [ ] as "
            "%2F %3F %23 %40 %5B %5D (it is not shown here, as it may hold a password)"
        )
    shown, path = match["hosts"], match["path"] or ""
    if not shown and match["scheme"].lower() != "unix":
        shown = "the default host"
    hosts = (unquote(re.sub(r":[0-9]*$", "", host)).strip("[]") for host in match["hosts"].split(","))
    return Address(shown + path, tuple(host for host in hosts if host))


def _is_accepted(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:  # its messages show parts of the URL
        return False
    return True


class Names:
    """Looks up *hosts* before a client library does, in a thread of its own for each host, one at a time.

    A look-up cannot be cancelled. While DNS hangs, each attempt to connect would leave one more thread of the event
    loop's default executor busy, until the app's own ``asyncio.to_thread()`` finds none.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = [host for host in hosts if not host.startswith("/") and not _is_ip(host)]
        self._lookups: dict[str, Future[bool]] = {}

    async def resolve(self) -> None:
        """Return once a host has an address, or none of them has: then the library's own look-up fails soon."""
        for host in self._hosts:
            if await asyncio.wrap_future(self._lookup(host)):
                return

    def _lookup(self, host: str) -> Future[bool]:
        lookup = self._lookups.get(host)
        if lookup is None or lookup.done():
            lookup = Future()
            lookup.set_running_or_notify_cancel()  # so that an abandoned attempt does not cancel it for the next one
            Thread(target=_look_up, args=(host, lookup), name=f"aiopurgatory DNS: {host}", daemon=True).start()
            self._lookups[host] = lookup  # not before: a thread that cannot start would never answer
        return lookup


def _look_up(host: str, lookup: Future[bool]) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except Exception:  # whatever it is: an attempt must not wait for this any longer
        lookup.set_result(False)
    else:
        lookup.set_result(True)


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
