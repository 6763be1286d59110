"""OffsetCommit version 1, which kio does not have, is rewritten as version 2. Some clients send it without asking."""

from __future__ import annotations

from typing import Final

_DEFAULT_RETENTION: Final = b"\xff" * 8


class _Cursor:
    """Reads the fields of a request as they are."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, size: int) -> bytes:
        found = self._data[self._place : self._place + size]
        if len(found) < size:
            raise ValueError("the request ends too early")
        self._place += size
        return found

    def text(self) -> bytes:
        """Return a string with its length, which is negative for null."""
        length = self.take(2)
        return length + self.take(max(int.from_bytes(length, signed=True), 0))

    def rest(self) -> bytes:
        return self._data[self._place :]


def as_version_2(frame: bytes) -> bytes:
    """Return the request with a retention time, and without a timestamp for each partition. Raises: ValueError."""
    cursor = _Cursor(frame)
    key, _, correlation_id = cursor.take(2), cursor.take(2), cursor.take(4)
    client_id, group, generation, member = cursor.text(), cursor.text(), cursor.take(4), cursor.text()
    out = [key, (2).to_bytes(2), correlation_id, client_id, group, generation, member, _DEFAULT_RETENTION]
    out.append(topics := cursor.take(4))
    for _ in range(int.from_bytes(topics, signed=True)):
        out += [cursor.text(), partitions := cursor.take(4)]
        for _ in range(int.from_bytes(partitions, signed=True)):
            out.append(cursor.take(4 + 8))  # partition and offset
            cursor.take(8)  # the timestamp
            out.append(cursor.text())
    return b"".join([*out, cursor.rest()])
