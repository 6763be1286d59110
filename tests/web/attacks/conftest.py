from __future__ import annotations

from collections.abc import Callable

import pytest

Figure = Callable[[str], None]


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Notes measurements. pytest prints them at the end if it was called for this folder."""
    return lambda text: request.node.user_properties.append(("figure", text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.getreports("passed")
    figures = [(report.nodeid, text) for report in passed for name, text in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
    for test, text in sorted(figures):
        terminalreporter.line(f"{test.partition('::')[2]}: {text}")
