"""The address of a server: the parts of its URL that may be shown, the look-up of its host names, and its password."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from ..arguments import require_function

#: Returns the password for a new connection; plain, or an ``async def``.
Password: TypeAlias = Callable[[], str | Awaitable[str]]

_HOST: Final = r"(?:\[[\w:.%]+\]|[^/?\#@\[\],:\s]*)(?::[0-9]*)?"
#: At most one @, before the host, so that no part of a password is taken for a host, port or path. The path of a unix
#: URL without user and password may contain any number of them.
_URL: Final = re.compile(
    rf"""(?P<scheme>\w+)://
    (?:[^/?\#@\[\]]*@)?
    (?P<hosts>{_HOST}(?:,{_HOST})*)
    (?P<path>(?<=unix://)/[^?\#]*|/[^?\#@]*)?
    (?:\?(?P<query>[^\#@]*))?""",
    re.ASCII | re.VERBOSE,
)


def parse(url: object, parameter: str, example: str, schemes: Iterable[str]) -> tuple[str, list[str]]:
    """Return the parts of *url* that may be shown: hosts, ports and path; and the hosts alone, without ports.

    Raises: TypeError, ValueError: *url* is invalid. The message does not show it: it may hold a password.
    """
    if not isinstance(url, str):
        raise TypeError(f"{parameter} must be a str, got {type(url).__name__}")
    match = _URL.fullmatch(url)
    refusal = _refusal(url)
    if match is not None and refusal == "Invalid IPv6 URL":
        raise ValueError(
            f"{parameter} must have an IPv6 address as its first host: this Python refuses them in lists that begin "
            "with a name"
        )
    if match is None or match["scheme"].lower() not in schemes or refusal:
        raise ValueError(
            f"{parameter} must be a URL such as {example}; in user, password and options, write / ? # @ [ ] as "
            "%2F %3F %23 %40 %5B %5D (it is not shown here, as it may hold a password)"
        )
    shown, path = match["hosts"], match["path"] or ""
    if not shown and match["scheme"].lower() != "unix":
        shown = "the default host"
    hosts = [unquote(re.sub(r":[0-9]*$", "", host)).strip("[]") for host in match["hosts"].split(",")]
    return shown + path, [host for host in hosts if host]


def _refusal(url: str) -> str:
    """Return why urlsplit(), which client libraries use, refuses *url*; it may show parts of the URL."""
    try:
        urlsplit(url)
    except ValueError as exc:
        return str(exc)
    return ""


class PasswordError(ConnectionError):
    """The function for the password has failed. That is an outage: it may ask a server of its own."""


def password_of(password: Password | None) -> Callable[[], Awaitable[str]] | None:
    """Return a function that calls *password*, and raises PasswordError; None if there is none.

    Raises: TypeError: *password* is not a function.
    """
    if password is None:
        return None
    require_function("password", password)

    async def called() -> str:
        try:
            found = password()
            return found if isinstance(found, str) else await found
        except Exception as exc:  # its message may hold a secret
            raise PasswordError(f"the function password= has raised a {type(exc).__name__}") from exc

    return called


class HostNames:
    """Looks up host names in threads of its own, one for each name at a time.

    A look-up cannot be cancelled. While DNS hangs, each attempt to connect would leave one more thread of the event
    loop's default executor busy, until the app's own ``asyncio.to_thread()`` finds none.
    """

    def __init__(self) -> None:
        self._lookups: dict[str, Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Return the IP addresses of *host*; an IP address needs no thread. Raises: OSError: it has none."""
        with suppress(ValueError):
            return [str(ip_address(host))]
        lookup = self._lookups.get(host)
        if lookup is None or lookup.done():
            lookup = Future()
            lookup.set_running_or_notify_cancel()  # an abandoned attempt must not cancel it for the next one
            Thread(target=_look_up, args=(host, lookup), name=f"aiopurgatory DNS: {host}", daemon=True).start()
            self._lookups[host] = lookup  # after start(): without a thread, nothing would complete it
        return await asyncio.wrap_future(lookup)


def _look_up(host: str, lookup: Future[list[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except Exception as exc:  # of any kind: otherwise the attempt would wait forever
        lookup.set_exception(exc)
    else:
        lookup.set_result(list(dict.fromkeys(str(address[0]) for *_, address in found)))


class NamesLoop:
    """The running event loop, except that *names* looks up host names. For a client library that takes a loop.

    TLS still compares certificates with names.

    Args:
        hosts: how many there are. An address without an answer leaves time for those behind it.
        timeout: seconds for all of an attempt. The last address of a single host may take all that is left.
    """

    def __init__(self, names: HostNames, hosts: int, timeout: float) -> None:
        self._names, self._hosts, self._timeout = names, hosts, timeout
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, protocol_factory: Any, host: str, port: int, **options: Any) -> Any:
        """Same as the loop's own, for the first of the host's addresses that accepts a connection."""
        if options.get("ssl"):
            options.setdefault("server_hostname", host)
        errors: list[OSError] = []
        addresses = await self._names.addresses(host)
        share = self._timeout / (2 * self._hosts * len(addresses))  # a bus connects twice
        for address in addresses:
            is_last = self._hosts == 1 and address == addresses[-1]
            try:
                async with asyncio.timeout(None if is_last else share):
                    return await self._loop.create_connection(protocol_factory, address, port, **options)
            except ssl.SSLError:
                raise
            except OSError as exc:
                errors.append(exc)
        raise errors[-1]
