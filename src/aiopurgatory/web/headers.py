"""The request headers of a long poll: Prefer (RFC 7240) and If-None-Match (RFC 9110).

Clients may be hostile: each expression below takes time linear in the length of the header.
"""

from __future__ import annotations

import re

#: ``If-None-Match: *``, which matches any version.
ANY = "*"

_QUOTED = re.compile(r'"([^"]*)"')
_WAIT = re.compile(r"(?:^|,)\s*wait\s*=\s*([^,;\s]*)\s*(?=[,;]|$)", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]+")
_VERSION = re.compile(r"[!#-~]+")
_ENTITY_TAG = re.compile(r'(?:W/)?(?:"([^"]*)"|([^\s",]+))')


def wait_preference(prefer: str) -> float | None:
    """The seconds of ``Prefer: wait=10``; None if there are none.

    As RFC 7240 demands, values that cannot be parsed are ignored, and so is every ``wait`` but the first.
    """
    found = _WAIT.search(_QUOTED.sub(_digits, prefer) if '"' in prefer else prefer)
    return float(found[1]) if found and _SECONDS.fullmatch(found[1]) else None


def _digits(quoted: re.Match[str]) -> str:
    return quoted[1] if _SECONDS.fullmatch(quoted[1]) else "quoted"


def entity_tags(if_none_match: str) -> tuple[str, ...]:
    """The entity tags, weak or strong, without their quotes; (ANY,) for ``*``. Tags sent without quotes count."""
    if if_none_match.strip() == ANY:
        return (ANY,)
    return tuple([quoted or bare for quoted, bare in _ENTITY_TAG.findall(if_none_match)])


def is_entity_tag(version: str) -> bool:
    """May *version* stand in the quotes of an ETag?"""
    return _VERSION.fullmatch(version) is not None and version != ANY
