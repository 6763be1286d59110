"""Prefer and If-None-Match as clients send them, hostile ones too."""

from __future__ import annotations

import math
import time

import pytest

from aiopurgatory import GoneError, NotFoundError, Purgatory
from aiopurgatory.streams import Event, MemoryLog
from aiopurgatory.web import LogPolling, Policy
from aiopurgatory.web.answer import is_entity_tag
from aiopurgatory.web.request import ANY, MAX_FIELD, entity_tags, wait_preference

from .polls import Given, Polls

#: The repeated part of a hostile field.
PIECES = ['"', '\\"', ",", " ", "wait", "wait =", "wait=1 ", "W/", 'W/"', '"a" ', "\t", "x", "-"]


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        ("wait=10", 10.0),
        ("WAIT=10", 10.0),
        (" wait = 10 ", 10.0),
        ('wait="10"', 10.0),
        (r'wait="\5"', 5.0),
        (r'foo="\", wait=5"', None),
        ("wait=0", 0.0),
        ("wait=" + "9" * 400, math.inf),
        ("wait=5" + ", x" * 1_000, 5.0),
        ("x, " * 99 + "wait=5", 5.0),
        ("x, " * 100 + "wait=5", None),
        ('"x,", ' * 99 + "wait=5", 5.0),
        ("wait=5" + ", x" * 10_000, None),
        ("respond-async, wait=10", 10.0),
        ("wait=10, respond-async", 10.0),
        ("wait=10; foo=bar", 10.0),
        ('foo="a, b"; bar, wait=7', 7.0),
        ("wait=1, wait=2", 1.0),
        ("wait=x, wait=2", None),
        ("", None),
        ("wait", None),
        ("wait=", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=1 2", None),
        ("wait=\u0661", None),
        ("await=5", None),
        ("wait-more=5", None),
        ('foo="x, wait=5"', None),
        ('foo="x", "wait=5"', None),
        ('wait="5', None),
        ('wait="5, x', None),
        (r'wait="5\"', None),
        ('wait=5"', None),
        ('wait=1"0"', None),
        ('wait="1""0"', None),
        ('wait="1,0"', None),
        ('wait="5", foo="x', 5.0),
        ('foo="x, wait=5', None),
        (",,,", None),
    ],
)
def test_wait_preference_follows_rfc_7240(prefer: str, seconds: float | None) -> None:
    assert wait_preference(prefer) == seconds


@pytest.mark.parametrize(
    ("field", "tags"),
    [
        ("", []),
        ('"7"', ["7"]),
        ('W/"7"', ["7"]),
        ('"a", W/"b","c"', ["a", "b", "c"]),
        ('"a,b"', ["a,b"]),
        ("7", ["7"]),
        ('"*"', ["*"]),
        ("W/*", ["*"]),
        ('"7-gzip", "8;gzip", W/"9--gzip", "a-br"', ["7", "8", "9", "a"]),
        ('"', []),
        ('""', [""]),
        ('"---gzip", "12345678--deflate", "-"', ["-", "12345678", "-"]),
        ('"a""b"c', ["a", "b", "c"]),
        (' ,, "a" ,\t, W/"b", ', ["a", "b"]),
        (', "a"' * 101 + ', "b"', ["a"] * 100),
        ('"' + "a" * 8_000 + '"', ["a" * 8_000]),
    ],
)
def test_entity_tags_are_taken_out_of_their_quotes(field: str, tags: list[str]) -> None:
    assert list(entity_tags(field)) == tags


@pytest.mark.parametrize(("field", "is_any"), [("*", True), (" * ", True), ('"*"', False), ("W/*", False)])
def test_only_a_bare_star_is_any_version(field: str, is_any: bool) -> None:
    assert (entity_tags(field) is ANY) is is_any


@pytest.mark.parametrize("version", ["7", "*", "a-1.b/c:d", "(orders,7)", "'", "\\", "~!"])
def test_entity_tag_that_goes_there_comes_back(version: str) -> None:
    assert is_entity_tag(version)
    assert entity_tags(f'"{version}"') == entity_tags(f'W/"{version}"') == (version,)


@pytest.mark.parametrize("version", ["", "7-gzip", "7;br", "a b", 'a"b', "a\r\nSet-Cookie: x", "\t", "\x7f", "\xe9"])
def test_entity_tag_that_would_break_the_header_is_none(version: str) -> None:
    assert not is_entity_tag(version)


@pytest.mark.parametrize("form", ["{}", "wait={}", "wait={}x y", '"{}', "{}!"])
@pytest.mark.parametrize("piece", PIECES)
def test_field_just_short_enough_is_parsed_in_linear_time(piece: str, form: str) -> None:
    """16 times the length takes about 16 times as long; in a quadratic search, 256 times."""
    short, long = (form.format(piece * ((size - len(form)) // len(piece))) for size in (MAX_FIELD // 16, MAX_FIELD))
    assert quickest(long) < 64 * quickest(short)


def quickest(field: str) -> float:
    """The CPU time that parsing *field* takes if nothing interferes."""
    times: list[float] = []
    for _ in range(5):
        start = time.process_time()
        wait_preference.__wrapped__(field)
        entity_tags(field)
        times.append(time.process_time() - start)
    return min(times)


EVIL = [f"x{end}set-cookie: a=1{end}{end}event: end{end}data: done" for end in ("\r\n", "\n", "\r", "\0", "\x85")]


@pytest.mark.parametrize("evil", EVIL[:4])
def test_event_with_a_line_end_in_its_id_or_name_is_refused(evil: str) -> None:
    for event_id, name in ((evil, None), ("1", evil)):
        with pytest.raises(ValueError, match="must be without line ends and NUL, got"):
            Event(event_id, "x", name)
    lines = Event("1", evil).sse().decode().replace("\r", "\n").splitlines()
    assert {line.partition(":")[0] for line in lines} <= {"id", "data", ""}


class Gone(Given):
    """A client can go on only from the beginning."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    def read(self, resource: str, since: str | None, version: str) -> bytes:
        if since is not None:
            raise GoneError(self._message, after=self._message)
        return self._message.encode()


@pytest.mark.parametrize("evil", EVIL)
async def test_text_from_outside_makes_no_header_or_field(purgatory: Purgatory, evil: str) -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        await log.append("t", "x")
        runs = LogPolling(log, Policy(max_wait=0.01))
        for topic in ("t", "unknown", evil):
            answer = await runs.answer(topic, {"if-none-match": f'"{evil}"'}, since=evil)
            assert_harmless(answer.raw_headers)
    for given in (GoneError(evil, after=evil), NotFoundError(evil)):
        polls = Polls(purgatory, Given(given))
        assert_harmless((await polls.now()).raw_headers)
        events = await polls.polling.events("n", {"last-event-id": evil}, since=evil)
        assert_harmless(events.raw_headers)
    stream = await Polls(purgatory, Gone(evil)).polling.events("n", {}, since=evil)
    fields = {line.partition(b":")[0] for line in (await anext(stream)).replace(b"\r", b"\n").split(b"\n")}
    assert fields <= {b"retry", b"event", b"id", b"data", b""}


def assert_harmless(headers: list[tuple[bytes, bytes]]) -> None:
    assert all(value.isascii() and value.decode().isprintable() for _, value in headers)
