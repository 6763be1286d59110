"""Each rule of a bus against a naive network. The control: without the rule, an operation stays parked."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from random import Random
from typing import Any

import pytest

from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.gaps import Echo, Pace
from aiopurgatory.bus.outbox import Outbox

from .network import Hiding, stuck

SEEDS = range(40)


def test_rules_in_any_order_leave_nobody_parked() -> None:
    first = Random().randrange(10**9)
    print("seeds from", first)
    assert stuck(Exchange, SEEDS) == 0
    assert stuck(Exchange, range(first, first + 40)) == 0


def test_rules_tiny_outbox_leaves_nobody_parked() -> None:
    assert stuck(Exchange, SEEDS, max_outbox=2) == 0


class NoCheckAtConfirmation(Exchange):
    """Without R1, and without R8, which would make up for it later."""

    def confirmed(self, now: float) -> None:
        self._confirmed = True
        self._link += 1
        self.echo.reset()
        self._arrivals.reset(self._origin, self._link, self.echo.next_number() - 1, inf)


class ForgetsAtBreak(Outbox):
    """Without the first half of R2: sent messages count as received."""

    def put_back(self) -> None:
        self._in_flight = {}


class SendsOnce(Outbox):
    """Without the second half of R2: a key in flight is not sent again."""

    def put(self, key: Hashable, line: str, now: float, limit: float = inf) -> None:
        if key not in self._in_flight:
            super().put(key, line, now, limit)


class MergesLimits(Outbox):
    """Without the sum of R5: a publish with a limit counts for all that wait to be sent."""

    def put(self, key: Hashable, line: str, now: float, limit: float = inf) -> None:
        if key not in self._waiting or limit == inf:
            super().put(key, line, now, limit)


class Ping(Echo):
    """Without R3: the publishing connection's answer counts as a sign of life of both."""

    def acknowledged(self) -> None:
        super().acknowledged()
        self._unechoed.clear()


class NoTimeout(Echo):
    """Without R3: no process waits for a reply in time."""

    def is_overdue(self, now: float) -> bool:
        return False


class DropsWhatIsTooMuch(Outbox):
    """Without R5."""

    def put(self, key: Hashable, line: str, now: float, limit: float = inf) -> None:
        if len(self) < self._most:
            super().put(key, line, now, limit)


class _WithOutbox(Exchange):
    outbox_kind: type[Outbox] = Outbox
    echo_kind: type[Echo] = Echo

    def __init__(self, origin: str, targets: Any, pace: Pace, max_outbox: int) -> None:
        super().__init__(origin, targets, pace, max_outbox=max_outbox)
        self.outbox = self.outbox_kind(max_outbox)  # type: ignore[misc]
        self.echo = self.echo_kind(pace)  # type: ignore[misc]


def with_parts(outbox: type[Outbox] = Outbox, echo: type[Echo] = Echo) -> type[Exchange]:
    return type("Control", (_WithOutbox,), {"outbox_kind": outbox, "echo_kind": echo})


CONTROLS: dict[str, tuple[type[Exchange], int]] = {
    "R1 everything is checked at confirmation": (NoCheckAtConfirmation, 1000),
    "R2 in flight until acknowledged": (with_parts(ForgetsAtBreak), 1000),
    "R2 sent again if published in flight": (with_parts(SendsOnce), 1000),
    "R3 the echo, and not a ping": (with_parts(echo=Ping), 1000),
    "R3 a timeout": (with_parts(echo=NoTimeout), 1000),
    "R5 collapse": (with_parts(DropsWhatIsTooMuch), 2),
    "R5 limits add up": (with_parts(MergesLimits), 1000),
}


@pytest.mark.parametrize("rule", CONTROLS)
def test_control_without_the_rule_leaves_some_parked(rule: str) -> None:
    kind, max_outbox = CONTROLS[rule]
    assert any(
        stuck(kind, [seed], max_outbox=max_outbox) for seed in range(400 if "R2" in rule or "limits" in rule else 60)
    )


class Unnumbered(Exchange):
    """Without R6 and R8: the numbers of other processes are ignored."""

    def confirmed(self, now: float) -> None:
        super().confirmed(now)
        self._arrivals.gap_at = lambda *_: inf  # type: ignore[method-assign]


def test_control_hidden_reconnects_leave_some_parked() -> None:
    """Without R4, R6 and R8."""
    assert any(stuck(Unnumbered, [seed], member=Hiding) for seed in range(400))


def test_rules_hidden_reconnects_are_noticed_by_the_numbers() -> None:
    assert stuck(Exchange, range(100), member=Hiding) == 0
