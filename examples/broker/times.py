"""The timestamps of the records in a batch. Only a search by time looks inside a batch, which may be compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import cramjam
from kio.schema.errors import ErrorCode

from .errors import KafkaError

_CODEC: Final = 0x07
_MOST_BITS: Final = 63
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16


def offsets_and_times(data: bytes, base: int, attributes: int, timestamp: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the timestamp of each record.

    Args:
        data: the bytes after the header of a batch.
        base, attributes, timestamp: from the header; *timestamp* is that of the first record.

    Raises: KafkaError: they cannot be read.
    """
    try:
        content = _CODECS[attributes & _CODEC](data)
        place = 0
        while place < len(content):
            size, place = _varint(content, place)
            time, inner = _varint(content, place + 1)
            offset, _ = _varint(content, inner)
            yield base + offset, timestamp + time
            place += max(size, 1)
    except (KeyError, IndexError, cramjam.DecompressionError):
        raise KafkaError(ErrorCode.corrupt_message) from None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of variable length in zigzag encoding. Returns: the number, and the place after it."""
    value = shift = 0
    while (byte := data[place]) & 0x80 and shift < _MOST_BITS:
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), place + 1


def _unsnappy(data: bytes) -> bytes:
    """Decompress one block, or the blocks with a length each that snappy-java and librdkafka send."""
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks, place = [], _XERIAL_HEAD
    while place < len(data):
        begin = place + 4
        place = begin + int.from_bytes(data[place:begin])
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[begin:place])))
    return b"".join(blocks)


_CODECS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: lambda data: bytes(cramjam.gzip.decompress(data)),
    2: _unsnappy,
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}
