"""A request as the functions of a route see it: its ASGI scope, with its query, headers and body as text."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final, final
from urllib.parse import parse_qsl

from .answer import RequestError, UnreadBodyError
from .asgi import Receive

#: The most bytes of a query, of which some servers have no limit, and of a body; and the most fields of either. To
#: parse escapes takes up to 0.4 s per MiB.
MAX_QUERY: Final = 1 << 16
MAX_BODY: Final = 1 << 20
MAX_FIELDS: Final = 1_000
#: Seconds that a body may take to arrive.
BODY_TIMEOUT: Final = 30.0


class Parameters(dict[str, str]):
    """Texts by name. The first of a repeated name counts. ``[...]`` answers 400 if the name is missing."""

    def __missing__(self, name: str) -> str:
        raise RequestError(f"the request must have {name!r}")


@final
class RequestScope(dict[str, Any]):
    """A copy of the ASGI scope of a request, with these attributes. Starlette's ``Request(scope)`` takes it, too.

    A missing ``query["index"]`` answers 400, while ``query.get("index")`` is None; the same for form and headers.

    Attributes:
        body: of a POST or another method, at most 1 MiB. The body of a GET is not read.
    """

    body: bytes = b""  # without an __init__(), it is made five times as fast: there is one for each poll

    @cached_property
    def query(self) -> Parameters:
        """The parameters of the query, which has at most 64 KiB."""
        query: bytes = self["query_string"]
        if len(query) > MAX_QUERY:
            raise RequestError(f"the query must have at most {MAX_QUERY:,} bytes, got {len(query):,}")
        return _parsed(query)

    @cached_property
    def form(self) -> Parameters:
        """The fields of the body, as an HTML form sends them (``application/x-www-form-urlencoded``)."""
        return _parsed(self.body)

    @cached_property
    def headers(self) -> Parameters:
        """The headers, with names in lower case."""
        return Parameters((name.decode("latin-1"), value.decode("latin-1")) for name, value in self["headers"][::-1])


def _parsed(text: bytes) -> Parameters:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    return Parameters(reversed(pairs))


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request; None: its client has disconnected.

    Raises: UnreadBodyError: it is longer than MAX_BODY. RequestError: it did not arrive in BODY_TIMEOUT.
    """
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise UnreadBodyError(f"the body must have at most {MAX_BODY:,} bytes")
                has_more = message.get("more_body", False)
    except TimeoutError:
        raise RequestError(f"the body did not arrive in {BODY_TIMEOUT:g} s") from None
    return bytes(body)
