"""A poll and its answer as HTTP values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, Protocol

from .asgi import Receive
from .sources import K

RawHeader = tuple[bytes, bytes]

NO_STORE: Final = (b"cache-control", b"no-store")
VARY: Final = (b"vary", b"Prefer")
PLAIN_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")


class Fields(Protocol):
    """A request's headers or query: a mapping's ``get()``. For headers, it must ignore case."""

    def get(self, name: str, /) -> str | None: ...


class PollRequest(NamedTuple, Generic[K]):
    """A poll as it came by HTTP. For the fields, see LongPolling.answer()."""

    resource: K
    prefer: str | None
    if_none_match: str | None
    wait: str | None
    since: str | None
    keys: Iterable[Hashable] | None
    client: Hashable
    group: Hashable
    receive: Receive | None


class Answer(NamedTuple):
    """An HTTP answer, to be handed to the framework.

    Attributes:
        status: 200; 304 or 204 for nothing new; 400, 404, 409, 410, 413 or 503 for a refusal; 499: the client has left.
        body: what the source read; else a message, or nothing.
        raw_headers: pairs of bytes, names in lower case. Content-Length is not among them.
    """

    status: int
    body: bytes
    raw_headers: list[RawHeader]

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.raw_headers}
