"""The request of a poll or a stream: query, body, and the headers Prefer (RFC 7240) and If-None-Match (RFC 9110).

Clients may be hostile: each expression below takes time linear in the length of the header, and only MAX_PARTS
parts of it are read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, final
from urllib.parse import parse_qsl, unquote_plus

from ..arguments import Items
from .answer import Answer, DisconnectedError, RequestError, UnreadBodyError, is_entity_tag
from .connected import Listen, Receive, Scope

K = TypeVar("K", bound=Hashable)

#: The tags of ``If-None-Match: *``, which matches any version. Compare with ``is``: a parsed tag may also be ``*``.
ANY: Final[tuple[str, ...]] = ("*",)
#: The most characters of a header, all its lines together. A longer one is ignored.
MAX_FIELD: Final = 8_192
#: The most preferences, or entity tags, of a header that are read.
MAX_PARTS: Final = 100
#: The most bytes of a query, of which some servers have no limit, and of a body; and the most fields of either. To
#: parse escapes takes up to 0.4 s per MiB.
MAX_QUERY: Final = 1 << 16
MAX_BODY: Final = 1 << 20
MAX_FIELDS: Final = 1_000
#: Seconds that a body may take to arrive.
BODY_TIMEOUT: Final = 30.0

# Unambiguous: at each character, only one part can match. So a match that fails tries nothing twice, and
# possessive quantifiers (*+) lose no match.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: The value of the first ``wait`` in a list, in which only a quoted string may have commas, and an unclosed quote that
#: ends it.
_WAIT = re.compile(
    rf'(?:[^",]*+(?:{_QUOTED}[^",]*+)*+,){{0,{MAX_PARTS - 1}}}?'
    rf'\s*+wait\s*+=([^",;]*+(?:{_QUOTED}[^",;]*+)*+)("?)',
    re.IGNORECASE | re.DOTALL,
)
_WHOLE_SECONDS = re.compile(r'[0-9]+|"(?:\\?[0-9])+"')
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
#: A part of a duration as Go writes it, and the seconds of its units.
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
#: The most characters of a duration.
_MAX_DURATION: Final = 40
#: An entity tag, or all that separates it from the next: a search would be slower.
_ENTITY_TAG = re.compile(r'(?:W/)?(?:"([^"]*+)"|([^\s",]++))|[\s,]++')
#: The suffix that Apache, HAProxy and others append to the ETag of a compressed answer: at most 9 characters.
_COMPRESSED = re.compile(r"(?:--?|;)(?:gzip|br|deflate|zstd)\Z")


@lru_cache(100)  # most clients send the same few
def wait_preference(prefer: str) -> float | None:
    """Return the seconds of ``Prefer: wait=10``; None if it has no valid wait.

    As RFC 7240 demands, values that cannot be parsed are ignored, and so is every ``wait`` but the first. Only the
    first MAX_PARTS preferences are read.
    """
    found = _WAIT.match(prefer) if len(prefer) <= MAX_FIELD else None
    value = found[1].strip() if found and not found[2] else ""
    return float(value.strip('"').replace("\\", "")) if _WHOLE_SECONDS.fullmatch(value) else None


def wait_in_query(text: str) -> float:
    """Return the seconds of ``?wait=10``, which may have a fraction, or a duration such as ``10s`` or ``1m30s``.

    Raises: RequestError: *text* is neither, or longer than MAX_FIELD.
    """
    if len(text) <= MAX_FIELD and _SECONDS.fullmatch(text):
        return float(text)
    parts = _PART.findall(text) if len(text) <= _MAX_DURATION else []
    if not parts or "".join(map("".join, parts)) != text:
        raise RequestError(f"wait must be a number of seconds >= 0, or a duration such as 10s, got {text[:50]!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def entity_tags(if_none_match: str) -> tuple[str, ...]:
    """Return the first MAX_PARTS entity tags, weak or strong, without their quotes; ANY for ``*``.

    Accepts tags without quotes. Removes the suffix that a proxy adds to a tag when it compresses an answer.
    """
    if len(if_none_match) > MAX_FIELD:
        return ()
    if if_none_match[:1] == '"' and is_entity_tag(tag := if_none_match[1:-1]) and if_none_match[-1:] == '"':
        return (tag,)  # most often: one of ours
    if if_none_match.strip() == "*":
        return ANY
    tags = (tag[tag.lastindex] for tag in _ENTITY_TAG.finditer(if_none_match) if tag.lastindex)
    return tuple([tag[:-9] + _COMPRESSED.sub("", tag[-9:]) for tag in islice(tags, MAX_PARTS)])


class Fields(Protocol):
    """A request's headers or query: a mapping's ``get()``. For headers, it must ignore case."""

    def get(self, name: str, /) -> str | None: ...


#: Makes the answer of a protocol: its body, status and headers.
Respond = Callable[[Answer], bytes | tuple[bytes, int, Mapping[str, str]]]


class PollRequest(NamedTuple, Generic[K]):
    """A poll or a stream as it came by HTTP. For the fields, see answer() and events() of Answering."""

    resource: K
    prefer: str | None = None
    if_none_match: str | None = None
    wait: float | str | None = None
    since: str | None = None
    keys: Items[Hashable] | None = None
    client: Hashable = None
    group: Hashable = None
    listen: Listen | None = None
    respond: Respond | None = None
    until: float | None = None


class Parameters(dict[str, str]):
    """Texts by name. The first of a repeated name counts. ``[...]`` answers 400 if the name is missing."""

    def __missing__(self, name: str) -> str:
        raise RequestError(f"the request must have {name!r}")


@final
class RequestScope(dict[str, Any]):
    """A copy of the ASGI scope of a request, with these attributes. Starlette's ``Request(scope)`` also takes it.

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


async def read_body(receive: Receive) -> bytes:
    """Return the body of a request.

    Raises: UnreadBodyError: it is longer than MAX_BODY. RequestError: it did not arrive in BODY_TIMEOUT.
        DisconnectedError: its client has left.
    """
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise DisconnectedError
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise UnreadBodyError(f"the body must have at most {MAX_BODY:,} bytes")
                has_more = message.get("more_body", False)
    except TimeoutError:
        raise RequestError(f"the body did not arrive in {BODY_TIMEOUT:g} s") from None
    return bytes(body)


def _in_query(scope: Scope, name: bytes, most: int) -> str | None:
    """The first *name* in the query, up to *most* bytes. To parse a long query takes half a second per megabyte."""
    query: bytes = scope["query_string"]
    if not query:
        return None
    _, found, rest = (b"&" + query).partition(b"&" + name + b"=")
    return unquote_plus(rest.partition(b"&")[0][:most].decode("latin-1")) if found else None


def wait_of_query(scope: Scope) -> str | None:
    return _in_query(scope, b"wait", MAX_FIELD + 1)


def after_of_query(scope: Scope) -> str | None:
    """Return the ``after`` of the query: the id of the last event that a page had before it was loaded again."""
    return _in_query(scope, b"after", MAX_FIELD) or None


def joined(scope: Scope, header: bytes) -> str | None:
    """Join the lines of *header* into one list (RFC 9110). Returns: None if there are none, or together too many."""
    found = [value for name, value in scope["headers"] if name == header]
    text = b", ".join(found)
    return text.decode("latin-1") if found and len(text) <= MAX_FIELD else None
