"""Each rule of a bus under random faults. The control: without the rule, an operation stays parked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from random import Random
from typing import Any

import pytest

from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.gaps import Arrivals, Echo
from aiopurgatory.bus.outbox import Outbox

from .storm import Storm

SEEDS = range(60)


def test_rules_in_any_order_leave_nobody_parked() -> None:
    first = Random().randrange(10**9)
    print("seeds from", first)
    assert Storm().stuck(SEEDS) == 0
    assert Storm(cuts=1.0).stuck(SEEDS) == 0
    assert Storm().stuck(range(first, first + 40)) == 0


def test_rules_tiny_outbox_leaves_nobody_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.bus.outbox.MAX_OUTBOX", 2)
    assert Storm().stuck(SEEDS) == 0


def no_check_at_confirmation(self: Exchange, now: float) -> None:
    """Without R1, and without R8, which would make up for it later."""
    self._confirmed = True
    self._link += 1
    self.echo.reset()
    self._arrivals.reset(self._origin, self._link, self.echo.number, inf)


def forget_at_break(self: Outbox) -> None:
    """Without the first half of R2: sent messages count as received."""
    self._in_flight.clear()


def put_if(may_put: Callable[[Outbox, Hashable, float], bool]) -> Callable[..., None]:
    put = Outbox.put

    def put_some(self: Outbox, key: Hashable, line: str, now: float, limit: float = inf) -> None:
        if may_put(self, key, limit):
            put(self, key, line, now, limit)

    return put_some


def ping(self: Echo) -> None:
    """Without R3: the publishing connection's answer counts as a sign of life of both."""
    self._unacknowledged_since, self._acknowledged = inf, self.number
    self._unechoed.clear()


#: What is replaced.
CONTROLS: dict[str, tuple[type, str, Any]] = {
    "R1 everything is checked at confirmation": (Exchange, "confirmed", no_check_at_confirmation),
    "R2 in flight until acknowledged": (Outbox, "put_back", forget_at_break),
    "R2 sent again if published in flight": (Outbox, "put", put_if(lambda it, key, _: key not in it._in_flight)),
    "R3 the echo, and not a ping": (Echo, "acknowledged", ping),
    "R3 a timeout": (Echo, "overdue_at", lambda self: inf),
    "R5 collapse": (Outbox, "put", put_if(lambda it, *_: len(it) < 2)),
    "R5 limits add up": (Outbox, "put", put_if(lambda it, key, most: key not in it._waiting or most == inf)),
}


@pytest.mark.parametrize("rule", CONTROLS)
def test_control_without_the_rule_leaves_some_parked(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*CONTROLS[rule])
    seeds = range(400 if "R2" in rule or "limits" in rule else 60)
    assert any(Storm().stuck([seed]) for seed in seeds)


def test_control_hidden_reconnects_leave_some_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without R4, R6 and R8: the numbers of other processes are ignored."""
    monkeypatch.setattr(Arrivals, "gap_at", lambda *_: inf)
    assert any(Storm(hides=True, cuts=1.0).stuck([seed]) for seed in range(400))


def test_rules_hidden_reconnects_are_noticed_by_the_numbers() -> None:
    assert Storm(hides=True, cuts=1.0).stuck(range(100)) == 0
