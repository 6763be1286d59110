"""Keys as lines: they come back as the keys they were, and nothing else can do harm."""

from __future__ import annotations

import enum
import math
import tracemalloc
import uuid
from collections import namedtuple
from collections.abc import Hashable, Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiopurgatory.bus.keys import MAX_DEPTH, MAX_LINE, MAX_MESSAGE, MalformedError, decode, decode_all, encode, pack

SCALARS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.binary(max_size=40),
    st.uuids(),
)
KEYS = st.recursive(SCALARS, lambda items: st.lists(items, max_size=4).map(tuple), max_leaves=12)


@given(KEYS)
def test_decode_encoded_key_is_the_same_key(key: Hashable) -> None:
    line = encode(key)
    assert decode(line) == key
    assert hash(decode(line)) == hash(key)
    assert line.isascii()
    assert "\n" not in line
    assert line[0] not in "*@"


@given(KEYS, KEYS)
def test_decode_different_keys_stay_different(one: Hashable, other: Hashable) -> None:
    assert (decode(encode(one)) == decode(encode(other))) == (one == other)


@given(st.lists(KEYS))
def test_decode_all_is_decode_of_each(keys: list[Hashable]) -> None:
    lines = [encode(key) for key in keys]
    assert decode_all(lines) == [decode(line) for line in lines] == keys


@pytest.mark.parametrize(
    "lines", [["*"], ["1", ""], ["1,2"], ["[1", "2]"], ["{}"], ["[" * 100_000], ["1" * 5_000], ["1e999"]]
)
def test_decode_all_refuses_what_holds_no_key(lines: list[str]) -> None:
    with pytest.raises(MalformedError):
        decode_all(lines)


def test_decode_one_true_and_float_are_one_key() -> None:
    assert {decode(encode(key)) for key in (1, True, 1.0)} == {1}
    assert {decode(encode((key, "a"))) for key in (0, False, -0.0)} == {(0, "a")}


class Colour(enum.IntEnum):
    RED = 1


class Name(enum.StrEnum):
    ANN = "ann"


class Mixed(str, enum.Enum):  # noqa: UP042 as before Python 3.11
    BOB = "bob"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("orders", 7), '["orders",7]'),
        (b"\x00\xff", '{"$bytes":"00ff"}'),
        (uuid.UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        ("\u00e4\n\0", '"\\u00e4\\n\\u0000"'),
        (Colour.RED, "1"),
        (Name.ANN, '"ann"'),
        (Mixed.BOB, '"bob"'),
        (Point(1, ("a",)), '[1,["a"]]'),
        ((), "[]"),
        ("*", '"*"'),
        ("@me", '"@me"'),
    ],
)
def test_encode_writes_what_others_can_write(key: Hashable, line: str) -> None:
    assert encode(key) == line
    assert decode(line) == key


def test_encode_uuid_of_asyncpg_is_a_uuid() -> None:
    own = pytest.importorskip("asyncpg.pgproto.pgproto").UUID
    key = own("00000000-0000-0000-0000-000000000001")
    assert decode(encode(("a", key))) == ("a", uuid.UUID(int=1))


class Odd(str):
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class OddButForItsHash(str):
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = str.__hash__


class OddTuple(tuple[object, ...]):
    """A user's own class of keys. It is published as a tuple, and a tuple finds no key of this class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OddTuple) and tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


class OddHash(Point):
    def __hash__(self) -> int:
        return 1


class OddIterator(tuple[object, ...]):
    """Compares like a tuple of its items, but iterates over others."""

    def __iter__(self) -> Iterator[object]:
        return iter("others")


ODD = [Odd("a"), OddButForItsHash("a"), OddTuple("a"), ("b", OddTuple("a")), OddHash(1, 2), (OddHash(1, 2),)]


@pytest.mark.parametrize("key", [object(), ["a"], ("a", {}), frozenset(), 1j, Ellipsis, *ODD])
def test_encode_other_types_are_refused(key: Hashable) -> None:
    with pytest.raises(TypeError, match="key must be a str, int, float, bool, None, bytes, UUID"):
        encode(key)


def test_encode_iterator_of_its_own_is_not_asked() -> None:
    assert decode(encode(OddIterator("ab"))) == OddIterator("ab") == ("a", "b")


def test_decode_long_lines_are_not_kept() -> None:
    lines = [f"[{number},{'[],' * 2400}{'1.5,' * 100}1]" for number in range(40)]
    tracemalloc.start()
    for line in lines:
        decode(line)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000


def nested(depth: int, key: Hashable = "x") -> Hashable:
    for _ in range(depth):
        key = (key,)
    return key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (math.nan, "finite"),
        ((1, math.inf), "finite"),
        (10**5000, "4,300 digits"),
        ("\ud800", "surrogates"),
        ("a" * (MAX_LINE - 1), "at most 7800 bytes of JSON, got 7801; publish an id"),
        (nested(MAX_DEPTH + 1), "at most 16 deep"),
        (nested(5000), "at most 16 deep"),
    ],
    ids=["nan", "inf", "digits", "surrogate", "long", "deep", "deeper"],
)
def test_encode_bad_values_are_refused(key: Hashable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(key)


def test_encode_key_that_cannot_be_shown_is_refused() -> None:
    class Unshowable:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(TypeError, match=r"^key must be .*; got <Unshowable>"):
        encode(Unshowable())


def test_encode_limits_are_allowed_whatever_is_innermost() -> None:
    assert decode(encode("a" * (MAX_LINE - 2))) == "a" * (MAX_LINE - 2)
    for innermost in ((), ("a",), 1):
        key = nested(MAX_DEPTH - isinstance(innermost, tuple), innermost)
        assert decode(encode(key)) == key
        with pytest.raises(ValueError, match="at most 16 deep"):
            encode((key,))


HOSTILE = [
    "", "[", "]", '"', "nul", "*2", "{}", '{"$bytes":"0"}', '{"$bytes":1}', '{"$uuid":"1"}', '{"$bytes":"00","a":1}',
    '{"$uuid":{"$uuid":"1"}}', "NaN", "Infinity", "-Infinity", "1e999", "[1e999]", "[" * 7000, "[" * 100 + "]" * 100,
    "1" * 5000, "\x00", "1 2", '"a" "b"', "[1]]", '{"$bytes":"zz"}', '"\n"', "\ufffd\ufffd", "{" * 7000, '[{"a":[]}]',
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_decode_hostile_line_is_malformed(line: str) -> None:
    with pytest.raises(MalformedError):
        decode(line)


@given(st.text(max_size=60))
def test_decode_any_text_is_a_key_or_malformed(line: str) -> None:
    with suppress(MalformedError):
        hash(decode(line))


@example(["x" * 9] * (MAX_MESSAGE // 5))  # no room is left in the first
@given(st.lists(st.integers(1, MAX_LINE).map(lambda length: "x" * length), max_size=20))
def test_pack_splits_and_keeps_order(lines: list[str]) -> None:
    messages = pack("@0123456789abcdef 123456", 9, lines)
    assert all(len(message) <= MAX_MESSAGE for message in messages)
    assert [line for message in messages for line in message.split("\n")[1:]] == lines
    heads = [message.split("\n")[0] for message in messages]
    assert heads == [f"@0123456789abcdef 123456 {number}" for number in range(9, 9 + len(messages))]
