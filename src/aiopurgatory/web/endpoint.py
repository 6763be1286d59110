"""The arguments of a route, and the request that it makes of an ASGI scope."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, overload

from ..arguments import require, require_plain_function
from ..streams import EventLog
from .answer import Answer
from .asgi import Receive, Scope
from .logs import after_in_query
from .policy import Policy
from .polling import LongPolling
from .prefer import MAX_FIELD, K, PollRequest

logger = logging.getLogger("aiopurgatory")

#: Characters of a path in a log message.
LONGEST_PATH: Final = 200


def path_parameter(scope: Scope) -> Any:
    """Return the only parameter of the route's path; without a framework, the rest of the path."""
    parameters = scope.get("path_params")
    if parameters is None:
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", "")).removeprefix("/")
    if len(parameters) != 1:
        names = ", ".join(parameters) or "none"
        raise TypeError(f"the path must have one parameter, got {names}; pass resource= to name the polled resource")
    return next(iter(parameters.values()))


class Endpoint(ABC):
    """The base of LongPollRoute and EventRoute. Their arguments are the same."""

    @overload
    def __init__(
        self,
        polling: EventLog,
        *,
        policy: Policy | None = None,
        resource: Callable[[Scope], str] = ...,
        since: Callable[[Scope], str | None] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        polling: LongPolling[K],
        *,
        resource: Callable[[Scope], K] = ...,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None: ...

    def __init__(
        self,
        polling: LongPolling[Any] | EventLog,
        *,
        policy: Policy | None = None,
        resource: Callable[[Scope], Any] = path_parameter,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None:
        if isinstance(polling, EventLog):
            require(keys is None, "keys", "left out for a log: its topics are its keys", keys)
            self._serve_log(polling, policy)
            since = since or after_in_query
        elif isinstance(polling, LongPolling):
            require(policy is None, "policy", "left out here: the LongPolling has one", policy)
            self._serve(polling)
        else:
            raise TypeError(f"polling must be a LongPolling or an EventLog, got {polling!r}")
        functions = {"resource": resource, "since": since, "keys": keys, "client": client, "group": group}
        for name, function in functions.items():
            if function is not None:
                require_plain_function(name, function)
        self._resource: Final = resource
        self._since: Final = since
        self._keys: Final = keys
        self._client: Final = client
        self._group: Final = group
        self._warned_of_method = False

    @abstractmethod
    def _serve_log(self, log: EventLog, policy: Policy | None) -> None:
        """Prepare to answer with the events of *log*."""

    @abstractmethod
    def _serve(self, polling: LongPolling[Any]) -> None:
        """Prepare to answer with the states of the source of *polling*."""

    def _refuse_method(self, scope: Scope, allowed: str) -> Answer:
        """Answer a method that is none of *allowed*. The first one is logged: it may belong to another route."""
        if not self._warned_of_method:
            self._warned_of_method = True
            method = scope["method"]
            logger.warning(
                "%s refused %s %r, as it answers GET only; if another route of this path answers %s, pass "
                "methods=['GET'] to the Route before it",
                *(type(self).__name__, method, scope["path"][:LONGEST_PATH], method),
            )
        return Answer(405, b"", [(b"allow", allowed.encode())])

    def _request(
        self,
        scope: Scope,
        receive: Receive,
        *,
        prefer: str | None = None,
        if_none_match: str | None = None,
        wait: str | None = None,
        last_event_id: str | None = None,
    ) -> PollRequest[Any]:
        """Return the request that *scope* describes, with its headers and the ``wait`` of its query."""
        return PollRequest(
            self._resource(scope),
            prefer,
            if_none_match,
            wait,
            last_event_id or (self._since and _version(self._since(scope))),
            self._keys and self._keys(scope),
            self._client and self._client(scope),
            self._group and self._group(scope),
            receive,
        )


def _version(since: str | None) -> str | None:
    if since is not None and not isinstance(since, str):
        raise TypeError(f"since must return a str or None, got {since!r}")
    return since


def joined(lines: list[bytes]) -> str | None:
    """Join the lines of a header into one list (RFC 9110). Returns: None if there are none, or together too many."""
    if not lines:
        return None
    text = b", ".join(lines)
    return text.decode("latin-1") if len(text) <= MAX_FIELD else None
