"""``async with``, the same for every object that has an aclose()."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closed at the end of ``async with``."""

    __slots__ = ()

    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class Starting(Closing):
    """Started by ``async with``, and closed at its end."""

    __slots__ = ()

    @abstractmethod
    async def start(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self
