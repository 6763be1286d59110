"""The demo of the broker meets its own demands, with Kafka's own client."""

from __future__ import annotations

import signal

import pytest

from .helpers import FORM, start


@pytest.mark.slow
def test_demo_broker_short_version_meets_every_must_be() -> None:
    process = start("demo_broker.py", "--seconds", "8", "--rate", "100")
    output, error = process.communicate(timeout=55)
    assert (process.returncode, error) == (0, ""), output
    assert f"aiopurgatory {FORM}" in output


@pytest.mark.slow
def test_demo_broker_interrupted_ends_at_once_and_says_so() -> None:
    process = start("demo_broker.py", "--seconds", "30")
    assert process.stdout is not None
    while "joins" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, output.splitlines()[-1]) == (130, "interrupted")
