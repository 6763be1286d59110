"""Commands and answers of Redis, as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("redis")

from redis.exceptions import InvalidResponse, ResponseError

from aiopurgatory.bus import redis_wire
from aiopurgatory.bus.redis_wire import MORE, PlainReader, new_reader, pack

both = pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "hiredis"])

answers = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def written(answer: Any) -> bytes:
    """*answer* as Redis writes it."""
    match answer:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % answer
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(answer), answer)
    return b"*%d\r\n" % len(answer) + b"".join(map(written, answer))


def require(is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use hiredis, or not."""
    if is_plain:
        monkeypatch.setattr(redis_wire, "hiredis", None)
    else:
        pytest.importorskip("hiredis")


def read(reader: Any, chunks: list[bytes]) -> list[Any]:
    found = []
    for chunk in chunks:
        reader.feed(chunk)
        while (answer := reader.gets()) is not MORE:
            found.append(answer)
    return found


@given(st.lists(answers, max_size=4), st.lists(st.integers(1, 9), min_size=1))
def test_plain_reader_answers_in_pieces(sent: list[Any], sizes: list[int]) -> None:
    text, chunks = b"".join(map(written, sent)), []
    for size in sizes * len(text):
        chunks.append(text[:size])
        text = text[size:]
    assert read(PlainReader(), chunks) == sent


@both
def test_reader_error_in_an_array_is_an_answer(is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    require(is_plain, monkeypatch)
    chunks = [b"+PO", b"NG\r\n*2\r\n*-1\r\n-NOSCRIPT no such", b" script\r\n$"]
    simple, [nothing, error] = read(new_reader(), chunks)
    assert (simple, nothing) == (b"PONG", None)
    assert isinstance(error, ResponseError)
    assert error.args == ("NOSCRIPT no such script",)


@both
@pytest.mark.parametrize("text", [b"HTTP/1.1 400 Bad Request\r\n", b"$1x\r\n", b":\r\n", b"\r\n"])
def test_reader_other_protocol_raises(text: bytes, is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    require(is_plain, monkeypatch)
    reader = new_reader()
    reader.feed(text)
    with pytest.raises(InvalidResponse):
        reader.gets()


@both
def test_pack_text_and_numbers_has_their_bytes(is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    require(is_plain, monkeypatch)
    assert pack(("SET", "\u00e9\r\n", -17)) == b"*3\r\n$3\r\nSET\r\n$4\r\n\xc3\xa9\r\n\r\n$3\r\n-17\r\n"
