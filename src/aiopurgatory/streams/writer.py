"""The writer: makes changes of one topic, one at a time, through outages and other writers' changes."""

from __future__ import annotations

import asyncio
from typing import Final, final

from .event import StoreDownError
from .rules import Decide, state_of
from .store import Commit, Page, Store

#: Seconds between two attempts while the server is down: the first pause, and the longest.
PAUSES: Final = (0.05, 1.0)


@final
class Writer:
    """Changes *topic*. Args: keep: seconds after which the topic may be deleted."""

    def __init__(self, store: Store, topic: str, keep: float) -> None:
        self._store, self._topic, self._keep = store, topic, keep
        #: The topic as it was last, if that is known.
        self._page: Page | None = None
        self._turn: Final = asyncio.Lock()

    async def write(self, decide: Decide, patience: float) -> str:
        """Make the change that *decide* wants, however often others change the topic meanwhile.

        Args: patience: seconds of an outage to wait through (S7).
        Returns: the id for the caller.
        Raises: StoreDownError: the outage is longer; the change may have been made. What *decide* raises.
        """
        async with self._turn:
            loop = asyncio.get_running_loop()
            until, pause = loop.time() + patience, PAUSES[0]
            tried: Commit | None = None
            while True:
                try:
                    if self._page is None:
                        self._page = await self._store.read(self._topic, 1 << 60, 1, 1)
                    if tried is None or self._page.version not in (tried.expected, tried.version):
                        write = decide(self._page, state_of(self._page))
                        tried = write.commit
                        if tried is None:
                            return write.id
                    self._page = await self._store.commit(self._topic, tried, self._keep)
                    if self._page.version == tried.version:
                        return write.id
                except StoreDownError:
                    if loop.time() + pause > until:
                        raise
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, PAUSES[1])
