"""Fixtures for tests of code that waits: ``manual_clock``, ``purgatory``, ``real_purgatory`` and ``no_leftovers``.

    async def test_poll_gives_up_after_30_seconds(purgatory, manual_clock):
        poll = asyncio.create_task(purgatory.wait_for(lambda: False, ["orders"], timeout=30.0))
        await manual_clock.advance(30.0)
        assert isinstance(poll.exception(), TimeoutError)

pytest finds this plugin by itself. The plugin lies beside the package, not inside it, so that aiopurgatory is imported
only when a test uses a fixture. By then, a coverage measurement has begun.

The fixtures run in the event loop of the test. They need pytest-asyncio (0.26 or newer, in either mode) or anyio's
plugin. Neither is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiopurgatory import Purgatory
    from aiopurgatory.testing import ManualClock
    from aiopurgatory.testing.leftovers import Leftovers

#: pytest-asyncio has an event loop for each of these scopes. A fixture must name the scope of its test's loop.
LOOP_SCOPES = ("function", "class", "module", "package", "session")


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that starts at 0 s and moves only by ``await manual_clock.advance(seconds)``."""
    from aiopurgatory.testing import ManualClock

    return ManualClock()


@pytest.fixture
def purgatory(request: pytest.FixtureRequest) -> Purgatory:
    """A started purgatory on *manual_clock*. At the end, its invariants are checked and it is closed."""
    made: Purgatory = request.getfixturevalue(_name_for(request, "purgatory"))
    return made


@pytest.fixture
def real_purgatory(request: pytest.FixtureRequest) -> Iterator[Purgatory]:
    """A started purgatory on real time. It fails a test that leaves something behind.

    The teardown fails if an operation is pending, if a task begun during the test still runs, or if an invariant does
    not hold. Tasks that the test has just cancelled get some loop iterations to end.
    """
    leftovers: Leftovers = request.getfixturevalue(_name_for(request, "real_purgatory"))
    yield leftovers.purgatory
    leftovers.test_has_ended()


@pytest.fixture
def no_leftovers() -> Iterator[None]:
    """Fails a test that leaves a wait in any purgatory that it has opened, such as its app's.

    It is enough to name it: ``pytestmark = pytest.mark.usefixtures("no_leftovers")``. A wait is left over if it is
    pending when its purgatory closes, or at the end of the test. The test may be synchronous.
    """
    from aiopurgatory.testing.leftovers import none_left

    with none_left():
        yield


def _name_for(request: pytest.FixtureRequest, name: str) -> str:
    """Return the name of the fixture that makes *name* in the event loop of the test."""
    marker = request.node.get_closest_marker("asyncio")  # set by the user, or by pytest-asyncio in auto mode
    is_anyio = marker is None and "anyio_backend" in request.fixturenames
    if is_anyio and request.getfixturevalue("anyio_backend_name") != "asyncio":
        pytest.fail(
            f"{name} runs on asyncio only: define a fixture anyio_backend that returns 'asyncio'", pytrace=False
        )
    if is_anyio:
        return f"_{name}_of_anyio"
    if _pytest_asyncio(request.config) is None:
        pytest.fail(f"{name} needs pytest-asyncio, or a test with @pytest.mark.anyio", pytrace=False)
    scope = marker.kwargs.get("loop_scope") if marker is not None else None
    return f"_{name}_of_{scope or request.config.getini('asyncio_default_test_loop_scope')}"


def _pytest_asyncio(config: pytest.Config) -> Any:
    """Return the package pytest-asyncio if pytest has loaded its plugin, else None."""
    plugin = sys.modules.get("pytest_asyncio.plugin")
    is_used = plugin is not None and config.pluginmanager.is_registered(plugin)
    return sys.modules["pytest_asyncio"] if is_used else None


def pytest_configure(config: pytest.Config) -> None:
    """Define the async fixtures once per plugin, because pytest-asyncio's strict mode runs only its own fixtures."""
    made = ModuleType("pytest_aiopurgatory.made")
    _define(made, "anyio", pytest.fixture)
    pytest_asyncio = _pytest_asyncio(config)
    if pytest_asyncio is not None:
        for scope in LOOP_SCOPES:
            _define(made, scope, pytest_asyncio.fixture(loop_scope=scope))
    config.pluginmanager.register(made, made.__name__)


def _define(made: ModuleType, loop: str, fixture: Callable[[Any], object]) -> None:
    async def purgatory(manual_clock: ManualClock) -> AsyncIterator[Purgatory]:
        from aiopurgatory import Purgatory
        from aiopurgatory.testing.leftovers import checked

        async with checked(Purgatory("test", clock=manual_clock)) as started:
            yield started

    async def real_purgatory() -> AsyncIterator[Leftovers]:
        from aiopurgatory import Purgatory
        from aiopurgatory.testing.leftovers import Leftovers, checked

        async with checked(Purgatory("test")) as started:
            leftovers = Leftovers(started)
            yield leftovers
            await leftovers.check()

    for function in (purgatory, real_purgatory):
        setattr(made, f"_{function.__name__}_of_{loop}", fixture(function))
