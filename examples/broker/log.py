"""The log of a partition: record batches, with bytes unchanged except for their offset and leader epoch."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c
from kio.schema.errors import ErrorCode

from .errors import KafkaError

#: The header of a batch. The checksum covers everything after the checksum field.
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM: Final = 21
_OFFSET: Final = struct.Struct(">q")
_MAGIC: Final = 2
# Sequence numbers have 31 bits, and wrap around.
_SEQUENCES: Final = 1 << 31
_LATEST_BATCHES: Final = 5
_MOST_PRODUCERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch as a producer sends it."""

    data: bytes
    records: int
    max_timestamp: int
    #: -1: the producer is not idempotent.
    producer_id: int
    producer_epoch: int
    sequence: int

    @classmethod
    def parse(cls, data: bytes | None) -> Batch:
        """Parse *data*. Raises: KafkaError: it is not one complete, valid batch."""
        if data is None or len(data) < _HEAD.size:
            raise KafkaError(ErrorCode.corrupt_message)
        _, length, _, magic, checksum, _, last, _, max_timestamp, *producer, records = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise KafkaError(ErrorCode.unsupported_for_message_format)
        if length + 12 != len(data) or crc32c.crc32c(data[_CHECKED_FROM:]) != checksum:
            raise KafkaError(ErrorCode.corrupt_message)
        if records < 1 or last != records - 1:
            raise KafkaError(ErrorCode.invalid_record)
        return cls(data, records, max_timestamp, *producer)


class _Kept(NamedTuple):
    """A batch in the log. ``place`` is the total size of all earlier batches, dropped ones included."""

    max_timestamp: int
    place: int
    data: bytes


class Log:
    """Batches by offset. Drops the oldest ones when they exceed *max_bytes*.

    Args: max_bytes: bytes to keep. The latest batch is kept at any size.
    """

    def __init__(self, max_bytes: int) -> None:
        self.start = 0
        self.end = 0
        self._max_bytes = max_bytes
        self._size = 0  # of all batches ever
        self._bases: list[int] = []
        self._kept: list[_Kept] = []
        self._producers = Producers()

    def known(self, batch: Batch) -> int | None:
        """Return the offset of *batch* if its producer has sent it before; else None.

        Raises: KafkaError: it does not follow the producer's previous batch.
        """
        return self._producers.known(batch)

    def append(self, batch: Batch) -> int:
        """Append *batch*. Returns: the offset of its first record."""
        base = self.end
        # The leader epoch is always 0. The checksum covers neither it nor the offset.
        data = _OFFSET.pack(base) + batch.data[8:12] + bytes(4) + batch.data[16:]
        self.end += batch.records
        self._bases.append(base)
        self._kept.append(_Kept(batch.max_timestamp, self._size, data))
        self._size += len(data)
        self._producers.note(batch, base)
        self._forget_oldest()
        return base

    def size(self, offset: int, until: int) -> int:
        """Return the size in bytes of the batches from the one with *offset* to the one that ends at *until*.

        Raises: KafkaError: *offset* is not in the log.
        """
        first = self._find(offset)
        if offset >= until:
            return 0
        last = bisect_left(self._bases, until)
        return self._kept[last - 1].place + len(self._kept[last - 1].data) - self._kept[first].place

    def read(self, offset: int, until: int, max_bytes: int) -> bytes:
        """Return as many batches of size() as fit into *max_bytes*. The first is returned whole unless that is 0.

        Raises: KafkaError: *offset* is not in the log.
        """
        first = last = self._find(offset)
        end = bisect_left(self._bases, until)
        if max_bytes <= 0 or first >= end:
            return b""
        most = self._kept[first].place + max_bytes
        while last < end and (last == first or self._kept[last].place + len(self._kept[last].data) <= most):
            last += 1
        return b"".join(kept.data for kept in self._kept[first:last])

    def offset_at(self, timestamp: int, until: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first batch before *until* with a record of *timestamp* or later, or None.

        The batch alone is found, not the record in it: that may be compressed.
        """
        for base, kept in zip(self._bases, self._kept, strict=True):
            if base < until and kept.max_timestamp >= timestamp:
                return max(base, self.start), kept.max_timestamp
        return None

    def _find(self, offset: int) -> int:
        """Return the index of the batch with *offset*; for the end, the number of batches."""
        if not self.start <= offset <= self.end:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return len(self._bases) if offset == self.end else bisect_right(self._bases, offset) - 1

    def _forget_oldest(self) -> None:
        # A quarter at once: deleting from the front of a list moves all items behind.
        if self._size - self._kept[0].place <= self._max_bytes * 1.25:
            return
        gone = bisect_left(self._kept, self._size - self._max_bytes, key=lambda kept: kept.place)
        gone = min(gone, len(self._kept) - 1)
        del self._bases[:gone], self._kept[:gone]
        self.start = max(self.start, self._bases[0])


class Producers:
    """The latest batches of idempotent producers, so that a batch sent again is not appended twice."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def known(self, batch: Batch) -> int | None:
        """Serve Log.known()."""
        if batch.producer_id < 0 or batch.producer_id not in self._latest:
            return None
        epoch, latest = self._latest[batch.producer_id]
        if batch.producer_epoch < epoch:
            raise KafkaError(ErrorCode.invalid_producer_epoch)
        if batch.producer_epoch > epoch:
            if batch.sequence:
                raise KafkaError(ErrorCode.out_of_order_sequence_number)
            return None
        for sequence, records, base in latest:
            if (sequence, records) == (batch.sequence, batch.records):
                return base
        sequence, records, _ = latest[-1]
        if batch.sequence != (sequence + records) % _SEQUENCES:
            raise KafkaError(ErrorCode.out_of_order_sequence_number)
        return None

    def note(self, batch: Batch, base: int) -> None:
        """Note that *batch* is in the log at *base*."""
        if batch.producer_id < 0:
            return
        epoch, latest = self._latest.pop(batch.producer_id, (batch.producer_epoch, []))
        latest = latest if epoch == batch.producer_epoch else []
        latest = [*latest[1 - _LATEST_BATCHES :], (batch.sequence, batch.records, base)]
        self._latest[batch.producer_id] = batch.producer_epoch, latest
        if len(self._latest) > _MOST_PRODUCERS:
            del self._latest[next(iter(self._latest))]
