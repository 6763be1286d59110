"""The hosts that may serve the page, and the origins that may read its answers.

A page of another site cannot read the answers of this one, but for two cases. It makes its own name resolve to this
server (DNS rebinding), or a middleware around the app allows it (CORS). In the first case, the browser sends that name
as the Host. In the second, it says where the request comes from.

Why not Starlette's TrustedHostMiddleware: some supported releases split the Host at its first colon, so ``[::1]`` never
matches (Kludex/starlette #3321). Nor does its answer name the setting to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ...arguments import Items, require_items

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_ADDRESS = r"\[[0-9a-f:.]+\]"
_HOST = re.compile(rf"({_NAME}|{_ADDRESS})(?::[0-9]*)?")
_ALLOWED = re.compile(rf"\*|(?:\*\.)?{_NAME}|{_ADDRESS}")


class Hosts:
    """The allowed host names, as the Inspector takes them.

    Raises: TypeError: *allowed* is one str, or not iterable. ValueError: it is empty, or a name could never match.
    """

    LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.1", "[::1]")

    def __init__(self, allowed: Items[str]) -> None:
        require_items("allowed_hosts", allowed, "name")
        self._names = set[str]()
        self._endings = list[str]()
        for host in allowed:
            if not isinstance(host, str) or not _ALLOWED.fullmatch(host.lower()):
                rule = "names without a port, such as 'example.com', '*.example.com', '[::1]' or '*'"
                raise ValueError(f"allowed_hosts must be {rule}, got {host!r}")
            if host.startswith("*."):
                self._endings.append(host[1:].lower())
            else:
                self._names.add(host.lower())
        if not (self._names or self._endings):
            raise ValueError("allowed_hosts must name at least one host, got none")

    def allow(self, headers: Sequence[str]) -> bool:
        """Whether a request with these Host headers may be answered. Ports are ignored."""
        if "*" in self._names:
            return True
        if len(headers) != 1 or not (found := _HOST.fullmatch(headers[0].lower())):
            return False
        return found[1] in self._names or found[1].endswith(tuple(self._endings))


def is_cross_origin(headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin could read the answer to a request with these *headers*."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # a link to the page is all right: a page cannot read the target
        return site not in ("same-origin", "none") and headers.get("sec-fetch-mode") != "navigate"
    # Browsers send no Sec-Fetch-Site over plain HTTP, but for this machine's own names.
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
