"""A store that remembers whether its server could be used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, final

from .event import StoreDownError
from .store import Commit, Notify, Page, Store


@final
class WatchedStore(Store):
    """Passes everything on to *store*."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Why the server could not be read, or written to, last; None: it could, or it is back since.
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Why the server cannot be used: by the last read or write, or because commits are not heard of."""
        return self._error or self._store.error

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._error = None

        def back() -> None:
            self._error = None
            notify_all()

        await self._store.open(notify, back)

    async def aclose(self) -> None:
        await self._store.aclose()

    def read(self, topic: str, after: int, rows: int, size: int) -> Coroutine[Any, Any, Page]:
        return self._watched(self._store.read(topic, after, rows, size))

    def commit(self, topic: str, commit: Commit, keep: float) -> Coroutine[Any, Any, Page]:
        return self._watched(self._store.commit(topic, commit, keep))

    async def _watched(self, answer: Awaitable[Page]) -> Page:
        try:
            page = await answer
        except StoreDownError as exc:
            self._error = str(exc)
            raise
        self._error = None
        return page
