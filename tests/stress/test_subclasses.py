"""Users' subclasses are ordinary Python of any shape, even over a compiled base class.

A compiled generic class was seen to corrupt memory under weakly referenced instances of interpreted subclasses.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

T = TypeVar("T")
BATCHES = 3  # of each shape
BATCH = 4_000


class Never(DelayedOperation[T]):
    __slots__ = ()

    def try_complete(self) -> bool:
        return False


class Valued(Never[T]):
    """Its subclasses have room for a value."""

    __slots__ = ()
    value: T

    def __init__(self, value: T) -> None:
        super().__init__(timeout=30.0)
        self.value = value


class Plain(Valued[int]):
    pass


class Slotted(Valued[int]):
    __slots__ = ("value",)


class SlottedWithWeakref(Valued[int]):
    __slots__ = ("__weakref__", "value")


class OfSlotted(Slotted):
    pass


@dataclass
class Data(Never[int]):
    value: int

    def __post_init__(self) -> None:
        super().__init__(timeout=30.0)


@dataclass(slots=True, weakref_slot=True, eq=False)
class SlottedData(Never[int]):
    value: int

    def __post_init__(self) -> None:
        DelayedOperation.__init__(self, timeout=30.0)  # slots=True makes another class: no super()


class Mixin:
    def __init__(self, value: int, **others: Any) -> None:
        super().__init__(**others)
        self.value = value


class Mixed(Mixin, Never[int]):
    def __init__(self, value: int) -> None:
        super().__init__(value, timeout=30.0)


class UserGeneric(Valued[T], Generic[T]):
    pass


SHAPES: list[Any] = [
    *(Plain, Slotted, SlottedWithWeakref, OfSlotted),
    *(Data, SlottedData, Mixed, UserGeneric, UserGeneric[int]),
]


def test_subclass_100k_instances_live_and_die() -> None:
    # In a process of its own: memory that was corrupted must not take pytest along.
    subprocess.run([sys.executable, __file__], check=True, timeout=50)


async def live_and_die() -> None:
    clock = ManualClock()
    async with Purgatory(clock=clock) as purgatory:
        for make in BATCHES * SHAPES:
            refs = await live(make, purgatory, clock)
            gc.collect()
            assert [ref() for ref in refs if ref() is not None] == []


async def live(make: Any, purgatory: Purgatory, clock: ManualClock) -> list[weakref.ref[Any]]:
    ops = [make(n) for n in range(BATCH)]
    # Without __weakref__ a slotted class has none.
    refs = [weakref.ref(op) for op in ops if hasattr(op, "__weakref__")]
    for n, op in enumerate(ops):
        assert purgatory.watch(op, ["shared", n]) is op
        if hasattr(op, "__dict__"):
            op.itself = op  # for the garbage collector
    gc.collect()
    assert [op.value for op in ops] == list(range(BATCH))
    assert all(type(ref) is weakref.ref and ref() is op for ref, op in zip(refs, ops, strict=False))
    for op in ops[::3]:
        assert op.force_complete()
    for op in ops[1::3]:
        assert op.cancel()
    check_invariants(purgatory)
    await clock.advance(30.0)
    assert all(op.expired for op in ops[2::3])
    return refs


if __name__ == "__main__":
    asyncio.run(live_and_die())
