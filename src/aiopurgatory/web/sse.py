"""How server-sent events are written."""

from __future__ import annotations

import re
from functools import lru_cache
from random import randint
from typing import Final

from .policy import Policy

#: A comment, which EventSource ignores.
HEARTBEAT: Final = b":\n\n"
#: Milliseconds before a replaced client reconnects, if its page does not close the EventSource.
_A_DAY: Final = 24 * 60 * 60 * 1000
#: Line ends; ``bytes.splitlines()`` would drop the last one.
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


def retry(policy: Policy) -> bytes:
    """Have the client reconnect after a random time within ``Policy.retry_after``."""
    low, high = policy.retry_after
    return b"retry: %d\n\n" % randint(low * 1000, high * 1000)


def replaced(exc: Exception) -> bytes:
    """The event of a stream that a newer one has replaced."""
    return b"retry: %d\nevent: replaced\n%b" % (_A_DAY, _data(_bytes(exc)))


@lru_cache(1)
def event(version: str, body: bytes) -> bytes:
    """The last event is cached: many streams send the same."""
    return b"id: %b\n%b" % (version.encode(), _data(body))


def gone(exc: Exception) -> bytes:
    """With an empty id, so that the client does not resume from its version when it reconnects."""
    return b"event: gone\nid:\n%b" % _data(_bytes(exc))


def _data(text: bytes) -> bytes:
    return b"data: %b\n\n" % b"\ndata: ".join(_LINE_END.split(text))


def _bytes(exc: Exception) -> bytes:
    return str(exc).encode(errors="replace")
