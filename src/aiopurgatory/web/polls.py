"""What waits in the purgatory for long polls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic

from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .asgi import Listener, Message, Receive, listen
from .sources import K

#: Messages of a request that a poll takes while it waits for its client to leave: the parts of a body nobody reads.
MAX_MESSAGES: Final = 64


class LongPoll(DelayedOperation[None], Generic[K]):
    """Waits until *resource* has another version than *known*.

    It does not read the body: that happens when the answer is written. So a check of many polls is short, and a body
    covers the events between the check and the answer.
    """

    __slots__ = ("_known", "_listener", "_messages", "_version", "client", "group", "left", "resource")

    def __init__(
        self, resource: K, version: Callable[[K], str], known: str, timeout: float, client: Hashable, group: Hashable
    ) -> None:
        super().__init__(timeout)
        self.resource, self.client, self.group = resource, client, group
        self._version, self._known = version, known
        #: The client has left.
        self.left = False
        self._messages = MAX_MESSAGES
        self._listener: Listener | None = None

    def try_complete(self) -> bool:
        return self._version(self.resource) != self._known and self.force_complete()

    def listen(self, receive: Receive) -> None:
        """Until stop_listening(): when the client leaves, cancel this."""
        self._listener = listen(receive, self._hear)

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None  # it refers to this: cut the cycle, so that no poll needs the garbage collector

    def _hear(self, message: Message | None) -> bool:
        """Returns: whether to listen on."""
        if message is None:  # receive() has raised
            return False
        if message["type"] == "http.disconnect":
            self.left = True
            self.cancel()
            return False
        # After the whole body only one message is to come; but a stand-in for a server may have one at every call.
        self._messages = self._messages - 1 if message.get("more_body") else min(self._messages - 1, 2)
        return self._messages > 0


class Linger(DelayedOperation[None]):
    """Checks *key* when its time is up, once for all its polls. A poll whose own time is up before is not held back."""

    __slots__ = ("_key", "_purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable, timeout: float) -> None:
        super().__init__(timeout)
        self._purgatory, self._key = purgatory, key

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._purgatory.check_and_complete_soon(self._key)
