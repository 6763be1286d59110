"""The timestamps of the records in a batch. Only a search by time looks inside a batch, which may be compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import cramjam
from kio.schema.errors import ErrorCode

from .errors import KafkaError

_CODEC: Final = 0x07
#: The most bytes of a batch after decompression. A few bytes could become gigabytes.
_MOST_BYTES: Final = 16 << 20
_MOST_BITS: Final = 63
_OLDEST: Final = 1 - (1 << 63)
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16


def offsets_and_times(
    data: bytes, base: int, attributes: int, timestamp: int, records: int
) -> Iterator[tuple[int, int]]:
    """Yield the offset and the timestamp of each record.

    Args:
        data: the bytes after the header of a batch.
        base, attributes, timestamp, records: from the header; *timestamp* is that of the first record.

    Raises: KafkaError: they cannot be read.
    """
    try:
        content = _CODECS[attributes & _CODEC](data)
        place = 0
        for _ in range(records):
            size, place = _varint(content, place)
            time, inner = _varint(content, place + 1)
            offset, _ = _varint(content, inner)
            if not 0 <= offset < records or not _OLDEST <= timestamp + time <= -_OLDEST:
                raise KafkaError(ErrorCode.corrupt_message)
            yield base + offset, timestamp + time
            place += max(size, 1)
    except (KeyError, IndexError, cramjam.DecompressionError):
        raise KafkaError(ErrorCode.corrupt_message) from None


def _varint(data: bytes | bytearray, place: int) -> tuple[int, int]:
    """Read a number of variable length in zigzag encoding. Returns: the number, and the place after it."""
    value = shift = 0
    while (byte := data[place]) & 0x80 and shift < _MOST_BITS:
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), place + 1


def _inflated(decompress_into: Callable[[bytes, bytearray], int], data: bytes) -> bytearray:
    """Decompress *data*. Raises: cramjam.DecompressionError: it is corrupt, or becomes too large."""
    content = bytearray(_MOST_BYTES)
    del content[decompress_into(data, content) :]
    return content


def _unsnappy(data: bytes) -> bytes:
    """Decompress one block, or the blocks with a length each that snappy-java and librdkafka send."""
    if not data.startswith(_XERIAL):
        return _unsnapped([data])
    blocks, place = [], _XERIAL_HEAD
    while place < len(data):
        begin = place + 4
        place = begin + int.from_bytes(data[place:begin])
        blocks.append(data[begin:place])
    return _unsnapped(blocks)


def _unsnapped(blocks: list[bytes]) -> bytes:
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > _MOST_BYTES:
        raise cramjam.DecompressionError
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


_CODECS: Final[dict[int, Callable[[bytes], bytes | bytearray]]] = {
    0: bytes,
    1: partial(_inflated, cramjam.gzip.decompress_into),
    2: _unsnappy,
    3: partial(_inflated, cramjam.lz4.decompress_into),
    4: partial(_inflated, cramjam.zstd.decompress_into),
}
