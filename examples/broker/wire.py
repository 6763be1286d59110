"""Kafka's wire protocol on top of kio: the supported versions, and one way to answer all of them."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from .frames import Frame
from .old_commit import as_version_2

#: The oldest and the newest supported version of each request. Later ones use topic ids or need more fields.
VERSIONS: Final = {
    "produce": (3, 9),
    "fetch": (4, 13),
    "list_offsets": (1, 7),
    "metadata": (0, 12),
    "offset_commit": (1, 8),
    "offset_fetch": (1, 8),
    "find_coordinator": (0, 4),
    "join_group": (1, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 4),
    "sync_group": (0, 5),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 5),
    "init_producer_id": (0, 4),
}
KEYS: Final = {name: key for key, name in api_key_map.items() if name in VERSIONS}
_NAMES: Final = {key: name for name, key in KEYS.items()}
_LENGTH: Final = 4
_START: Final = struct.Struct(">hhi")
#: A consumer repeats these with another correlation id. Of the latest ones, up to so many bytes, the bodies are kept.
_REPEATED: Final = ("fetch", "heartbeat")
_MOST_KEPT: Final = 2_048
_request_schema: Final = cache(load_request_schema)  # each call of kio's function imports a module again
_response_schema: Final = cache(load_response_schema)


class WireError(Exception):
    """The request cannot be answered, so the connection is closed, as in Kafka.

    It is not one of a supported version, or it was refused and its client expects no answer.
    """


@dataclass(slots=True)
class Request:
    """A parsed request."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    #: An instance of kio's class for this version.
    body: Any

    @property
    def is_unknown_version(self) -> bool:
        """Whether the version is unknown. Only ApiVersions is answered then, so that a client can find a common one."""
        return self.body is None


def parse(frame: bytes) -> Request:
    """Parse a *frame* without its length. Raises: WireError: it is not a supported request."""
    try:
        key, version, correlation_id = _START.unpack_from(frame)
    except struct.error:
        raise WireError(f"a request must have at least {_START.size} bytes, got {len(frame)}") from None
    api = _NAMES.get(key)
    if api is None:
        raise WireError(f"API key {key} is not supported")
    oldest, newest = VERSIONS[api]
    if not oldest <= version <= newest:
        if api == "api_versions":
            return Request(api, 0, correlation_id, "", None)
        raise WireError(f"{api} is supported in versions {oldest} to {newest}, got {version}")
    read: Any = _read
    if api in _REPEATED and len(frame) <= _MOST_KEPT:
        read, frame = _read_repeated, _START.pack(key, version, 0) + frame[_START.size :]
    try:
        if (api, version) == ("offset_commit", 1):
            frame, version = as_version_2(frame), 2  # the answers of both are the same
        client_id, body = read(frame, api, version)
    except Exception as error:  # malformed bytes can make kio raise anything
        raise WireError(f"{api} version {version} cannot be read: {type(error).__name__}: {error}") from None
    return Request(api, version, correlation_id, client_id, body)


def _read(frame: bytes, api: str, version: int) -> tuple[str, Any]:
    """Return the client id and the body."""
    schema = _request_schema(KEYS[api], version)
    Frame(frame).check(schema)
    header, begin = entity_reader(schema.__header_schema__)(frame, 0)
    body, size = entity_reader(schema)(frame, begin)
    # In a request for all topics, librdkafka writes 3 bytes too many from version 9 on. Kafka ignores them as well.
    has_more = begin + size != len(frame)
    if has_more and not (api == "metadata" and schema.__flexible__):
        raise ValueError(f"there are {len(frame) - begin - size} bytes after its end")
    return header.client_id or "", body


_read_repeated: Final = lru_cache(1 << 10)(_read)


def answer(request: Request, values: Any) -> bytes:
    """Return the frame of an answer with its length. Attributes of *values* that the version lacks are ignored."""
    # kio writes any object that has the attributes. To create its own entity would take as long as writing it.
    schema: Any = _response_schema(KEYS[request.api], request.version)
    out = io.BytesIO(bytes(_LENGTH))
    out.seek(_LENGTH)
    out.write(request.correlation_id.to_bytes(4, signed=True))
    if schema.__header_schema__.__flexible__:
        out.write(b"\x00")  # no tagged fields
    entity_writer(schema)(out, values)
    with out.getbuffer() as frame:
        frame[:_LENGTH] = (len(frame) - _LENGTH).to_bytes(_LENGTH)
    return out.getvalue()
