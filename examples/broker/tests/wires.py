"""A client of raw requests, encoded by kio: requests that a real client would never send, or not at that moment."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import Any, Final, Self, get_args, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from .served import PATIENCE

KEYS: Final = {name: key for key, name in api_key_map.items()}
#: The defaults of requests.
VERSIONS: Final = {
    "produce": 9,
    "fetch": 11,
    "list_offsets": 5,
    "metadata": 8,
    "join_group": 7,
    "sync_group": 5,
    "heartbeat": 4,
    "leave_group": 4,
    "offset_commit": 8,
    "offset_fetch": 7,
    "find_coordinator": 3,
    "create_topics": 5,
    "delete_topics": 5,
    "init_producer_id": 4,
    "api_versions": 3,
}
_DEFAULTS: Final = {bool: False, str: "", bytes: b"", timedelta: timedelta(), tuple: ()}


def encoded(
    api: str, values: Mapping[str, Any], *, version: int | None = None, correlation_id: int = 1, client_id: str = "raw"
) -> bytes:
    """A request, without its length. A field that *values* does not have gets its default, or is empty."""
    schema: Any = load_request_schema(KEYS[api], VERSIONS[api] if version is None else version)
    head: Any = schema.__header_schema__
    names = ("request_api_key", "request_api_version", "correlation_id", "client_id")
    out = io.BytesIO()
    start = zip(names, (schema.__api_key__, schema.__version__, correlation_id, client_id), strict=True)
    known = {field.name for field in fields(head)}
    entity_writer(head)(out, head(**{name: value for name, value in start if name in known}))
    entity_writer(schema)(out, _entity(schema, values))
    return out.getvalue()


def framed(request: bytes) -> bytes:
    """A request with its length."""
    return len(request).to_bytes(4) + request


def _entity(kind: Any, values: Mapping[str, Any]) -> Any:
    hints, made = get_type_hints(kind), {}
    for field in fields(kind):
        if field.name in values:
            made[field.name] = _value(hints[field.name], values[field.name])
        elif field.default is MISSING:
            made[field.name] = _nothing(hints[field.name])
    return kind(**made)


def _value(hint: Any, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    inner = [each for each in _all_args(hint) if is_dataclass(each)]
    return tuple(_entity(inner[0], each) if inner else each for each in value)


def _all_args(hint: Any) -> list[Any]:
    return [inner for arg in get_args(hint) for inner in (arg, *_all_args(arg))]


def _nothing(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    origin = getattr(hint, "__origin__", hint)
    return next((value for kind, value in _DEFAULTS.items() if issubclass(origin, kind)), 0)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._ids = itertools.count(1)
        self._sent: dict[int, tuple[str, int]] = {}

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, api: str, *, version: int | None = None, **values: Any) -> None:
        number = next(self._ids)
        self._sent[number] = api, VERSIONS[api] if version is None else version
        self.writer.write(framed(encoded(api, values, version=version, correlation_id=number)))
        await self.writer.drain()

    async def receive(self) -> Any:
        """The next answer."""
        async with asyncio.timeout(PATIENCE):
            size = int.from_bytes(await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        api, version = self._sent.pop(int.from_bytes(frame[:4]))
        schema: Any = load_response_schema(KEYS[api], version)
        _, begin = entity_reader(schema.__header_schema__)(frame, 0)
        return entity_reader(schema)(frame, begin)[0]

    async def call(self, api: str, *, version: int | None = None, **values: Any) -> Any:
        await self.send(api, version=version, **values)
        return await self.receive()

    async def rest(self) -> bytes:
        """All bytes until the broker closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
