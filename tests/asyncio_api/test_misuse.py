"""Checks of unwatched keys: probable mistakes are logged once, and counted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import check_invariants

from .parts import Op, turns

UUID = uuid.UUID("ffefaccb-fc02-4a1e-91b3-636a75429775")


TWINS: list[tuple[Hashable, Hashable]] = [
    (7, "7"),
    (-7, "-7"),
    (7, b"7"),
    ("room", b"room"),
    (UUID, str(UUID)),
    (("orders", 7), ("orders", "7")),
    (("orders", 7), (b"orders", 7)),
    (("orders", 7, 3), ("orders", "7", "3")),
    (("orders", 7, 3), ("orders", "7", 3)),
    (("orders", UUID), ("orders", str(UUID))),
]


async def test_check_from_a_thread_after_close_says_nothing(warned: Callable[[], list[str]]) -> None:
    async with Purgatory() as purgatory:
        pass
    assert await asyncio.to_thread(purgatory.check_and_complete, "key") == 0
    assert warned() == []
    await purgatory.start()
    assert await asyncio.to_thread(purgatory.check_and_complete, "key") == 0
    assert len(warned()) == 1
    await purgatory.aclose()


NO_TWINS: list[tuple[Hashable, Hashable]] = [
    (7, "007"),
    (7, "\u0667"),
    (7, b"07"),
    (0, "-0"),
    ("True", True),
    (UUID, str(UUID).upper()),
]


@pytest.mark.parametrize(("one", "other"), [*NO_TWINS, *[(other, one) for one, other in NO_TWINS]], ids=repr)
async def test_what_only_resembles_a_key_is_no_twin(
    purgatory: Purgatory, warned: Callable[[], list[str]], one: Hashable, other: Hashable
) -> None:
    purgatory.watch(Op(60.0), [one, ("orders", one)])
    for key in (other, ("orders", other)):
        assert purgatory.check_and_complete(key) == 0
    assert (warned(), purgatory.statistics().checks_of_twins) == ([], 0)


@pytest.mark.parametrize(("one", "other"), [*TWINS, *[(other, one) for one, other in TWINS]], ids=repr)
async def test_check_of_the_twin_of_a_watched_key_is_said(
    purgatory: Purgatory, warned: Callable[[], list[str]], one: Hashable, other: Hashable
) -> None:
    purgatory.watch(Op(60.0), [one])
    assert purgatory.check_and_complete(other) == 0
    (message,) = warned()
    assert repr(one) in message
    assert repr(other) in message
    assert purgatory.name in message
    assert purgatory.statistics().checks_of_twins == 1


CHECKS: dict[str, Callable[[Purgatory, Hashable], object]] = {
    "check_and_complete": Purgatory.check_and_complete,
    "check_and_complete, limit": lambda purgatory, key: purgatory.check_and_complete(key, limit=1),
    "notify": Purgatory.notify,
    "notify_threadsafe": Purgatory.notify_threadsafe,
}


@pytest.mark.parametrize("name", ["check_and_complete", "notify", "check_each"])
async def test_part_of_a_key_is_not_taken_for_a_limit(purgatory: Purgatory, name: str) -> None:
    """For the key ("orders", 7), pass a tuple: "orders" with limit=7 would wake nobody, in silence."""
    purgatory.watch(Op(60.0), [("orders", 7)])
    with pytest.raises(TypeError):
        getattr(purgatory, name)("orders", 7)


@pytest.mark.parametrize("name", CHECKS)
async def test_every_kind_of_check_says_it(purgatory: Purgatory, warned: Callable[[], list[str]], name: str) -> None:
    purgatory.watch(Op(60.0), ["7"])
    CHECKS[name](purgatory, 7)
    await asyncio.sleep(0.01)  # the loop's wake-up descriptor
    assert (len(warned()), purgatory.statistics().checks_of_twins) == (1, 1)


async def test_twin_is_said_once_per_shape_and_counted(purgatory: Purgatory, warned: Callable[[], list[str]]) -> None:
    for number in range(3):
        purgatory.watch(Op(60.0), [str(number)])
        purgatory.watch(Op(60.0), [("orders", str(number))])
        purgatory.watch(Op(60.0), [("rooms", number)])
    for number in range(3):
        purgatory.check_and_complete(number)
        purgatory.check_and_complete(("orders", number))
        purgatory.check_and_complete(("rooms", str(number)))
    assert len(warned()) == 3
    assert purgatory.statistics().checks_of_twins == 9


async def test_warnings_of_shapes_without_end_are_few(purgatory: Purgatory, warned: Callable[[], list[str]]) -> None:
    for number in range(500):
        purgatory.watch(Op(60.0), [(f"user {number}", "7")])
        purgatory.check_and_complete((f"user {number}", 7))
    assert 0 < len(warned()) < 50
    assert purgatory.statistics().checks_of_twins == 500


async def test_tuple_watched_as_its_parts_is_said(purgatory: Purgatory, warned: Callable[[], list[str]]) -> None:
    purgatory.watch(Op(60.0), ("orders", 0))
    assert purgatory.check_and_complete(("orders", 0)) == 0
    (message,) = warned()
    assert "[('orders', 0)]" in message
    assert purgatory.statistics().checks_of_twins == 1


async def test_right_keys_and_unknown_ones_are_not_said(purgatory: Purgatory, warned: Callable[[], list[str]]) -> None:
    watched: list[Hashable] = ["7", 8, ("orders", 7), "orders", UUID]
    for key in watched:
        purgatory.watch(Op(60.0), [key])
    unknown: list[Hashable] = [8.0, "9", 10, ("orders", 11), ("orders",), (), uuid.uuid4(), None, "x" * 5000]
    for key in watched + unknown:
        purgatory.check_and_complete(key)
        purgatory.notify(key)
    await turns(3)
    assert (warned(), purgatory.statistics().checks_of_twins) == ([], 0)


@pytest.mark.parametrize("rhythm", [2, 64, 512])
async def test_twin_is_noticed_in_a_busy_old_purgatory(
    purgatory: Purgatory, warned: Callable[[], list[str]], rhythm: int
) -> None:
    """One check in *rhythm* is a mistake. The other checks are of keys without an operation."""
    purgatory.watch(Op(60.0), ["wanted"])
    for number in range(20_000):
        purgatory.check_and_complete(f"unwanted {number}")
    purgatory.watch(Op(60.0), ["7"])
    wrong = 0
    while not warned():
        for _ in range(rhythm - 1):
            purgatory.check_and_complete("unwanted")
        purgatory.check_and_complete(7)
        wrong += 1
        assert wrong < 10_000
    assert purgatory.statistics().checks_of_twins >= 1


class OddText(str):
    """A key with broken methods of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise LookupError

    def encode(self, *args: Any) -> bytes:
        raise LookupError


async def test_odd_methods_of_keys_break_no_check(purgatory: Purgatory, warned: Callable[[], list[str]]) -> None:
    purgatory.watch(Op(60.0), [7])
    keys: list[Hashable] = [OddText("7"), OddText("x"), ("orders", OddText("7")), "\ud800", b"\xff", 10**5000]
    for key in keys:
        assert purgatory.check_and_complete(key) == 0
        purgatory.notify(key)
    assert all("OddText" in message for message in warned())


# before the start


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", CHECKS)
async def test_check_before_the_start_warns_in_debug_mode(
    warned: Callable[[], list[str]], debug: bool, name: str
) -> None:
    asyncio.get_running_loop().set_debug(debug)
    purgatory = Purgatory("early")
    for _ in range(3):
        CHECKS[name](purgatory, "key")
    assert len(warned()) == debug
    assert all(word in message for message in warned() for word in ("'early'", "'key'", "start"))


async def test_environment_sets_debug_mode_also_in_a_loop_that_ignores_it(
    warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    assert not asyncio.get_running_loop().get_debug()  # as under uvicorn
    Purgatory("early").check_and_complete("key")
    assert len(warned()) == 1


# from another thread


async def test_check_from_a_thread_is_said_after_many_other_warnings(
    purgatory: Purgatory, warned: Callable[[], list[str]]
) -> None:
    for number in range(30):
        purgatory.watch(Op(60.0), [(f"kind {number}", 7)])
        purgatory.check_and_complete((f"kind {number}", "7"))
    await asyncio.to_thread(purgatory.check_and_complete, "nobody")
    assert "in another thread; from here, use notify_threadsafe(key)" in warned()[-1]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("waiting", [False, True])
async def test_check_from_a_thread_while_nobody_waits_is_said(
    purgatory: Purgatory, warned: Callable[[], list[str]], waiting: bool, debug: bool
) -> None:
    asyncio.get_running_loop().set_debug(debug)
    if waiting:
        purgatory.watch(Op(60.0), ["other"])
    for _ in range(3):
        assert await asyncio.to_thread(purgatory.check_and_complete, "key") == 0
    (message,) = warned()
    assert "notify_threadsafe" in message
    assert "'key'" in message


async def test_debug_mode_examines_every_miss(warned: Callable[[], list[str]]) -> None:
    asyncio.get_running_loop().set_debug(True)
    async with Purgatory() as purgatory:
        purgatory.watch(Op(60.0), ["7"])
        for _ in range(3000):
            purgatory.check_and_complete("nobody")
        purgatory.check_and_complete(7)  # out of debug mode, an old purgatory examines some
    assert len(warned()) == 1


class Ping(DelayedOperation[None]):
    """Its try checks a key, though nothing has changed."""

    def __init__(self, purgatory: Purgatory, key: str) -> None:
        super().__init__(30.0)
        self.purgatory = purgatory
        self.key = key
        self.ready = False

    def try_complete(self) -> bool:
        if self.ready:
            return self.force_complete()
        self.purgatory.check_and_complete(self.key)
        return False


STARTS: dict[str, Callable[[Purgatory], object]] = {
    "watch": lambda purgatory: None,
    "check_and_complete": lambda purgatory: purgatory.check_and_complete("a"),
    "check_all": Purgatory.check_all,
    "notify": lambda purgatory: purgatory.notify("a"),
    "notify_all": Purgatory.notify_all,
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("check", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("keys", ["aa", "ab"], ids=["its own key", "each other's"])
async def test_checks_without_end_let_the_loop_turn(
    purgatory: Purgatory, warned: Callable[[], list[str]], keys: str, check: Callable[[Purgatory], object]
) -> None:
    ops = [purgatory.watch(Ping(purgatory, keys[1]), [keys[0]]), purgatory.watch(Ping(purgatory, keys[0]), [keys[1]])]
    other = purgatory.watch(Op(), ["other"])
    check(purgatory)
    await turns(20)
    other.ready = True
    purgatory.notify("other")
    await other
    (text,) = warned()
    assert text.startswith("purgatory 'test': try_complete() of Ping, waiting under '")
    assert "call check_and_complete() where the state changes" in text
    check_invariants(purgatory)
    for op in ops:
        op.ready = True
    purgatory.check_all()
    await asyncio.gather(*ops)
