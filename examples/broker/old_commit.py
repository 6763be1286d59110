"""OffsetCommit version 1, which kio does not have, is rewritten as version 2. Some clients send it without asking."""

from __future__ import annotations

from typing import Final

from .frames import Frame

_DEFAULT_RETENTION: Final = b"\xff" * 8


def as_version_2(data: bytes) -> bytes:
    """Return the request with a retention time, and without a timestamp for each partition.

    Raises: ValueError: it cannot be read.
    """
    frame = Frame(data)
    frame.string()  # the group
    frame.place += 4  # the generation
    frame.string()  # the member
    kept = frame.place
    out = [data[:2], (2).to_bytes(2), data[4:kept], _DEFAULT_RETENTION]
    for _ in range(frame.count()):
        frame.string()
        for _ in range(frame.count()):
            frame.place += 4 + 8  # partition and offset
            out.append(data[kept : frame.place])
            kept = frame.place = frame.place + 8  # without the timestamp
            frame.string()
    return b"".join([*out, data[kept:]])
