"""The pytest plugin in runs of its own: each way to run async tests, and tests that leave something behind."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

#: How to run async tests: options, and how a test module begins.
STRICT = (("-ppytest_asyncio.plugin", "--asyncio-mode=strict"), "import pytest\npytestmark = pytest.mark.asyncio\n")
AUTO = (("-ppytest_asyncio.plugin", "--asyncio-mode=auto"), "")
ANYIO = (
    ("-panyio.pytest_plugin",),
    """
import pytest
pytestmark = pytest.mark.anyio
@pytest.fixture
def anyio_backend():
    return "asyncio"
""",
)
FOREVER = """
import asyncio
from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import until_pending

class Forever(DelayedOperation[None]):
    def try_complete(self):
        return False

def wait(purgatory, timeout=60.0):
    return asyncio.create_task(purgatory.wait_for(lambda: False, ["orders"], timeout=timeout))

"""
#: Six tests that leave nothing, and three whose leftovers real_purgatory finds; then the same of no_leftovers: two and
#: three, of which one leaves its wait to the fixture of another purgatory.
TESTS = """
async def test_manual_time(purgatory, manual_clock):
    poll = wait(purgatory, 3600.0)
    await manual_clock.settle()
    assert purgatory.num_delayed == 1
    await manual_clock.advance(3600.0)
    assert isinstance(poll.exception(), TimeoutError)

async def test_next_begins_anew(purgatory, manual_clock):
    assert (purgatory.num_delayed, manual_clock.time()) == (0, 0.0)

async def test_left_to_the_fixture(purgatory):
    poll = wait(purgatory)
    await asyncio.sleep(0)
    poll.cancel()  # and nobody awaits it

async def test_real_time(real_purgatory):
    try:
        await wait(real_purgatory, 0.01)
    except TimeoutError:
        return
    raise AssertionError("it ended early")

async def test_cancelled_at_the_end(real_purgatory):
    poll = wait(real_purgatory)
    await asyncio.sleep(0)
    poll.cancel()

async def test_started_again(real_purgatory):
    await real_purgatory.aclose()
    await real_purgatory.start()

async def test_pending(real_purgatory):
    real_purgatory.watch(Forever(timeout=60.0), ["orders", "invoices"])

async def test_task(real_purgatory):
    global task
    task = asyncio.create_task(asyncio.sleep(60.0), name="leftover")

async def test_invariant(real_purgatory):
    from aiopurgatory.core.entry_points import core_of
    core_of(real_purgatory).watchers.pending += 1

async def test_closed_with_a_wait(no_leftovers):
    async with Purgatory("closed") as purgatory:
        waiting = wait(purgatory)
        await until_pending(purgatory)
    assert waiting.exception()

async def test_left_open_with_a_wait(no_leftovers):
    purgatory = Purgatory("open")
    await purgatory.start()
    purgatory.watch(Forever(timeout=60.0), ["orders"])

async def test_nothing_waits(no_leftovers):
    async with Purgatory() as purgatory:
        waiting = wait(purgatory)
        await until_pending(purgatory)
        waiting.cancel()

async def test_cancelled_and_open(no_leftovers):
    purgatory = Purgatory()
    await purgatory.start()
    waiting = wait(purgatory)
    await until_pending(purgatory)
    waiting.cancel()

async def test_fixture_on_a_manual_clock(no_leftovers, purgatory):
    purgatory.watch(Forever(timeout=60.0), ["orders"])
"""

SYNCHRONOUS = """
import asyncio
from aiopurgatory import Purgatory

async def serve(purgatory, cancels):
    async with purgatory:
        waiting = asyncio.create_task(purgatory.wait_for(lambda: False, ["orders"], timeout=60.0))
        await asyncio.sleep(0)
        if cancels:
            waiting.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(waiting, return_exceptions=True)

def test_left(no_leftovers):
    asyncio.run(serve(Purgatory(), False))

def test_not_left(no_leftovers):
    asyncio.run(serve(Purgatory(), True))

def test_next_is_not_watched():
    asyncio.run(serve(Purgatory(), False))
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner pytest loads its named plugins, and takes no options from here."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\nfilterwarnings = error\n    ignore:.*asyncio_default_fixture_loop_scope")
    pytester.makepyfile(test_it=source)
    return pytester.runpytest_subprocess("-ppytest_aiopurgatory", *options)


@pytest.mark.parametrize(("options", "head"), [STRICT, AUTO, ANYIO], ids=["strict", "auto", "anyio"])
def test_fixtures_of_each_way_find_what_is_left(pytester: pytest.Pytester, options: tuple[str, ...], head: str) -> None:
    result = run(pytester, head + FOREVER + TESTS, *options)
    result.assert_outcomes(passed=14, errors=6)
    result.stdout.fnmatch_lines_random(
        [
            "*left behind by the test: 1 pending: <Forever*orders*invoices*",
            "*left behind by the test: 1 running: <Task pending name='leftover'*",
            "*AssertionError: I5:*",
            "*left behind by the test: purgatory 'closed': 1 pending: <ConditionWait pending*orders*",
            "*left behind by the test: purgatory 'open': 1 pending: <Forever*orders*",
            "*left behind by the test: purgatory 'test': 1 pending: <Forever*orders*",
        ]
    )


def test_no_leftovers_of_a_synchronous_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, SYNCHRONOUS)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*left behind by the test: purgatory 'default': 1 pending*"])


@pytest.mark.parametrize("scope", ["function", "class", "module", "package", "session"])
def test_purgatory_runs_in_the_loop_of_the_test(pytester: pytest.Pytester, scope: str) -> None:
    head = f"import pytest\npytestmark = pytest.mark.asyncio(loop_scope={scope!r})\n"
    source = """
class TestIt:
    async def test_it(self, purgatory, real_purgatory):
        assert purgatory.check_all() == real_purgatory.check_all() == 0

    async def test_left_open(self, no_leftovers):
        purgatory = Purgatory()
        await purgatory.start()
        purgatory.watch(Forever(timeout=60.0), ["orders"])
"""
    run(pytester, head + FOREVER + source, *STRICT[0]).assert_outcomes(passed=2, errors=1)


def test_loop_scope_of_the_configuration_counts(pytester: pytest.Pytester) -> None:
    source = "async def test_it(purgatory, real_purgatory):\n    purgatory.check_all()"
    run(pytester, source, *AUTO[0], "-oasyncio_default_test_loop_scope=session").assert_outcomes(passed=1)


def test_both_plugins_each_run_their_tests(pytester: pytest.Pytester) -> None:
    source = """
import pytest
@pytest.fixture
def anyio_backend():
    return "asyncio"
@pytest.mark.anyio
async def test_of_anyio(purgatory, manual_clock, real_purgatory):
    await manual_clock.advance(1.0)
@pytest.mark.asyncio
async def test_of_asyncio(purgatory, manual_clock, real_purgatory):
    await manual_clock.advance(1.0)
"""
    run(pytester, source, *STRICT[0], *ANYIO[0]).assert_outcomes(passed=2)


@pytest.mark.parametrize("name", ["purgatory", "real_purgatory"])
def test_no_plugin_for_async_tests_says_what_to_do(pytester: pytest.Pytester, name: str) -> None:
    result = run(pytester, f"def test_it({name}): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{name} needs pytest-asyncio, or a test with @pytest.mark.anyio*"])


def test_trio_backend_says_what_to_do(pytester: pytest.Pytester) -> None:
    head = ANYIO[1].replace("asyncio", "trio")
    result = run(pytester, head + "async def test_it(purgatory): pass", *ANYIO[0])
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*define a fixture anyio_backend that returns 'asyncio'*"])


def test_sync_test_has_a_clock_without_other_plugins(pytester: pytest.Pytester) -> None:
    source = "def test_it(manual_clock): assert manual_clock.time() == 0.0"
    run(pytester, source).assert_outcomes(passed=1)


def test_nothing_is_imported_until_a_fixture_is_used(pytester: pytest.Pytester) -> None:
    source = """
import sys
def ours():
    return {name for name in sys.modules if name.split(".")[0] == "aiopurgatory"}
def test_before():
    assert not ours()
def test_with_one(manual_clock):
    assert ours()
"""
    run(pytester, source, *STRICT[0], *ANYIO[0]).assert_outcomes(passed=2)


def test_pytest_finds_the_plugin_by_itself(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.makepyfile("def test_it(manual_clock): pass")
    pytester.runpytest_subprocess("-pno:asyncio").assert_outcomes(passed=1)
