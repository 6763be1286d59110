"""Servers of examples/protocols, their real clients in processes of their own, and a ledger of what these have seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from private_servers import free_port
from web.helpers import listens, wait_until  # type: ignore[import-not-found]

ROOT = Path(__file__).parents[2]
#: Seconds in which a client must start, and see a write, also after a restart.
PATIENCE = 30.0


class App:
    """uvicorn with an app of examples/protocols. ``with`` stops it."""

    def __init__(self, name: str, redis_url: str, workers: int, **env: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "uvicorn", f"protocols.{name}:app", "--port", str(self.port)]
        self._command += ["--workers", str(workers), "--log-level", "warning"]
        self._env = os.environ | {"REDIS_URL": redis_url, "PYTHONPATH": str(ROOT / "examples"), **env}
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 until stop()
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._env, stdout=self.log, stderr=self.log, start_new_session=True
        )
        wait_until(lambda: listens(("127.0.0.1", self.port)))

    def stop(self) -> float:
        """Stop it as a deployment does. Returns: the seconds that it took."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(15)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            self.stop()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.log.seek(0)
        said = self.log.read()
        self.log.close()
        assert failure[0] or said == "", said


class Watcher:
    """A process with a client for each key, or several, or one for all. It prints what it sees."""

    def __init__(self, program: str, url: str, keys: list[str]) -> None:
        self.keys = keys
        self.seen: dict[str, list[int]] = defaultdict(list)
        self._ready: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(f"{program}.py")), url, *keys],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # they tell of each refused poll
            text=True,
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            key, _, value = line.strip().rpartition(" ")
            if value == "ready":
                self._ready.add(key)
            else:
                self.seen[key].append(int(value))

    def received(self) -> list[tuple[str, int]]:
        return [(key, value) for key, values in [*self.seen.items()] for value in [*values]]

    def is_ready(self) -> bool:
        return self._ready == set(self.keys)

    def kill(self) -> None:
        """Kill it, with its connections, in the middle of whatever it does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()


class Ledger:
    """What was written, and what each watcher has seen: none missed, none twice, none lost.

    Args: of_events: each watcher is to see each value since its first, not only the newest.
    """

    def __init__(self, keys: list[str], of_events: bool = False) -> None:
        self._of_events = of_events
        self.written = dict.fromkeys(keys, 0)
        self.watchers: list[Watcher] = []
        self.delivered = 0

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, lambda: f"not {what}: written {self.written}, seen {self.last_seen()}", PATIENCE)

    def last_seen(self) -> list[dict[str, list[int]]]:
        return [{key: seen[-1:] for key, seen in watcher.seen.items()} for watcher in self.watchers]

    def start(self, program: str, url: str, clients: int = 1) -> Watcher:
        watcher = Watcher(program, url, list(self.written) * clients)
        self.watchers.append(watcher)
        self.until("ready", watcher.is_ready)
        return watcher

    def kill(self, watcher: Watcher) -> None:
        self.watchers.remove(watcher)
        watcher.kill()
        self._count(watcher)

    def settle(self) -> None:
        """Wait until each watcher has seen the newest value of each key."""

        def has_seen_all() -> bool:
            return all(
                watcher.seen[key][-1:] == [value] or value == 0
                for watcher in self.watchers
                for key, value in self.written.items()
            )

        self.until("seen by all", has_seen_all)

    def close(self) -> None:
        """Kill the watchers, and check that none has seen a value twice or out of order."""
        for watcher in list(self.watchers):
            self.kill(watcher)

    def _count(self, watcher: Watcher) -> None:
        for key, seen in watcher.seen.items():
            expected = list(range(seen[0], seen[-1] + 1)) if self._of_events else sorted(set(seen))
            assert seen == expected, f"{key} was seen as {seen}"
            self.delivered += len(seen)


class AtLeastOnce(Ledger):
    """What was sent, and all that watchers have received, also killed ones: again what they had not confirmed."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(keys)
        self._killed: Counter[tuple[str, int]] = Counter()

    def received(self) -> Counter[tuple[str, int]]:
        """How often each value was received."""
        found = self._killed.copy()
        for watcher in self.watchers:
            found.update(watcher.received())
        return found

    def settled(self) -> Counter[tuple[str, int]]:
        """As received(), once that is all."""
        sent = {(key, value) for key, last in self.written.items() for value in range(1, last + 1)}
        self.until("all received", lambda: self.received().keys() == sent)
        return self.received()

    def _count(self, watcher: Watcher) -> None:
        self._killed.update(watcher.received())
