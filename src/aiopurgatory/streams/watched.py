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
        #: Why the last read or commit failed. Reads may succeed while commits fail, as on a full disk.
        self._errors: dict[str, str] = {}

    @property
    def error(self) -> str | None:
        """Why the server cannot be used: the later failure of both, or because commits are not heard of."""
        return next(reversed(self._errors.values()), None) or self._store.error

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._errors.clear()

        def back() -> None:
            self._errors.clear()
            notify_all()

        await self._store.open(notify, back)

    async def aclose(self) -> None:
        await self._store.aclose()

    def read(self, topic: str, after: int, rows: int, size: int) -> Coroutine[Any, Any, Page]:
        return self._watched("read", self._store.read(topic, after, rows, size))

    def commit(self, topic: str, commit: Commit, keep: float) -> Coroutine[Any, Any, Page]:
        return self._watched("commit", self._store.commit(topic, commit, keep))

    async def _watched(self, what: str, answer: Awaitable[Page]) -> Page:
        try:
            page = await answer
        except StoreDownError as exc:
            self._errors.pop(what, None)  # so that it comes last
            self._errors[what] = str(exc)
            raise
        self._errors.pop(what, None)
        return page
