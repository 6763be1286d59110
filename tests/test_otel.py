"""Spans of real waits, as OpenTelemetry's own SDK records them."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: make setup")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.operations import Thresholds
from aiopurgatory.otel import Spans
from aiopurgatory.testing import ManualClock, until_pending


def test_spans_of_a_tracer_in_place_of_its_provider_name_the_argument() -> None:
    tracer: Any = TracerProvider().get_tracer("app")
    with pytest.raises(TypeError, match="tracer_provider must be a TracerProvider, got <"):
        Spans(tracer)


class Traced:
    """A tracer provider, its spans, and a purgatory with spans."""

    def __init__(self, clock: ManualClock | None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")
        self.purgatory = Purgatory("polls", clock=clock, observers=[Spans(self.provider)])

    @property
    def waits(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("wait ")]

    def the_wait(self) -> ReadableSpan:
        (span,) = self.waits
        return span


@pytest.fixture
async def traced(clock: ManualClock) -> AsyncIterator[Traced]:
    traced = Traced(clock)
    async with traced.purgatory:
        yield traced
    traced.provider.shutdown()


class Wait(DelayedOperation[str]):
    ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()


class Handlers:
    """Tasks, each in a span of its own, as the handlers of requests are."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self.ids: dict[str, int] = {}

    async def handle(self, name: str, work: Any) -> None:
        with self._tracer.start_as_current_span(name) as span:
            self.ids[name] = span.get_span_context().span_id
            with suppress(Exception, asyncio.CancelledError):
                await work


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("aiopurgatory."): value for name, value in (span.attributes or {}).items()}


async def test_completed_wait_has_the_parent_of_its_task(traced: Traced) -> None:
    handlers, op = Handlers(traced.tracer), Wait(30.0)
    task = asyncio.create_task(handlers.handle("GET /", traced.purgatory.watch(op, [("orders", 7), "all"])))
    await until_pending(traced.purgatory, 1)
    await asyncio.sleep(0)
    op.ready = True
    with traced.tracer.start_as_current_span("POST /"):  # the task that ends the wait is not its parent
        assert traced.purgatory.check_and_complete(("orders", 7)) == 1
    await task
    span = traced.the_wait()
    assert (span.name, parent_of(span)) == ("wait polls", handlers.ids["GET /"])
    assert attributes_of(span) == {
        "purgatory": "polls",
        "operation": "Wait",
        "outcome": "completed",
        "keys": ("(str, int)", "str"),
    }
    assert span.status.status_code is StatusCode.UNSET


async def waits_of_each_kind(purgatory: Purgatory, kind: str) -> object:
    async def read() -> None:
        await asyncio.sleep(0)

    if kind == "watch":
        return await purgatory.watch(Wait(5.0), ["key"])
    if kind == "wait_for":
        return await purgatory.wait_for(lambda: False, ["key"], timeout=5.0)
    if kind == "awaited":
        return await purgatory.wait_for(read, ["key"], timeout=5.0)
    if kind == "shield":
        return await asyncio.shield(purgatory.watch(Wait(5.0), ["key"]))
    return await Thresholds(purgatory, "key").reached(7, timeout=5.0)


KINDS = ["watch", "wait_for", "awaited", "shield", "reached"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [Outcome.EXPIRED, Outcome.CANCELLED, Outcome.FAILED])
async def test_every_kind_of_wait_has_its_parent(traced: Traced, clock: ManualClock, kind: str, end: Outcome) -> None:
    handlers = Handlers(traced.tracer)
    task = asyncio.create_task(handlers.handle("GET /", waits_of_each_kind(traced.purgatory, kind)))
    await clock.advance(1.0)
    key = ("offset", "key", 7) if kind == "reached" else "key"
    if end is Outcome.EXPIRED:
        await clock.advance(4.5)
    elif end is Outcome.CANCELLED:
        traced.purgatory.cancel_for_key(key)
    else:
        traced.purgatory.close()
    await asyncio.wait([task])
    span = traced.the_wait()
    assert parent_of(span) == handlers.ids["GET /"]
    found = attributes_of(span)
    assert found["outcome"] == end.value
    assert found.get("error.type") == ("PurgatoryClosedError" if end is Outcome.FAILED else None)
    assert (span.status.status_code is StatusCode.ERROR) == (end is Outcome.FAILED)
    assert ("lateness_seconds" in found) == (end is Outcome.EXPIRED)


async def test_missed_trigger_is_an_attribute(traced: Traced, clock: ManualClock) -> None:
    op = Wait(5.0)
    task = asyncio.create_task(Handlers(traced.tracer).handle("GET /", traced.purgatory.watch(op, ["key"])))
    await until_pending(traced.purgatory, 1)
    op.ready = True
    await clock.advance(5.0)
    await task
    assert attributes_of(traced.the_wait())["missed_trigger"] is True


async def test_span_times_are_those_of_the_wait() -> None:
    traced = Traced(None)
    async with traced.purgatory:
        before = time.time_ns()
        with suppress(TimeoutError):
            await traced.purgatory.wait_for(lambda: False, ["key"], timeout=0.05)
        after = time.time_ns()
    span = traced.the_wait()
    assert span.start_time is not None
    assert span.end_time is not None
    assert before - 5_000_000 <= span.start_time < span.end_time <= after  # two clocks
    assert span.end_time - span.start_time >= 50_000_000
    assert parent_of(span) is None


async def test_operations_that_no_task_awaits_make_no_span(traced: Traced, clock: ManualClock) -> None:
    ready = Wait(5.0)
    ready.ready = True
    assert await traced.purgatory.watch(ready, ["key"]) is None  # it never waited
    traced.purgatory.watch(Wait(5.0), ["key"])
    await clock.advance(5.0)
    async with traced.purgatory.timeout(1.0):
        pass
    assert traced.waits == []


async def test_first_of_several_tasks_is_the_parent(traced: Traced) -> None:
    handlers, op = Handlers(traced.tracer), traced.purgatory.watch(Wait(5.0), ["key"])
    tasks = [asyncio.create_task(handlers.handle(name, op)) for name in ("first", "second")]
    await asyncio.sleep(0)
    op.force_complete()
    await asyncio.wait(tasks)
    assert parent_of(traced.the_wait()) == handlers.ids["first"]


async def test_end_in_the_context_of_the_task_itself(traced: Traced) -> None:
    """Two tasks may share a context. It cannot be entered twice."""
    handlers, op, shared = Handlers(traced.tracer), Wait(5.0), copy_context()
    traced.purgatory.watch(op, ["key"])
    task = asyncio.create_task(handlers.handle("GET /", op), context=shared)
    await asyncio.sleep(0)

    async def end() -> None:
        op.force_complete()

    await asyncio.create_task(end(), context=shared)
    await task
    assert parent_of(traced.the_wait()) == handlers.ids["GET /"]


async def test_context_is_freed_with_the_wait(purgatory: Purgatory) -> None:
    """Of the operation, nothing but the result stays (I6)."""

    class Kept:
        pass

    variable: ContextVar[Kept] = ContextVar("variable")

    async def wait(op: Wait) -> weakref.ref[Kept]:
        variable.set(Kept())
        await op
        return weakref.ref(variable.get())

    op = purgatory.watch(Wait(5.0), ["key"])
    task = asyncio.create_task(wait(op))
    await asyncio.sleep(0)
    op.force_complete()
    kept = await task
    del task
    await asyncio.sleep(0)
    assert kept() is None
