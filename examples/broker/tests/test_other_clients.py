"""Clients that the broker was not built with: kafkajs, @platformatic/kafka, kcat, sarama, and Kafka's own in Java.

Their programs are in other_clients/. Each has the same commands: create, produce, consume COUNT.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from .served import PATIENCE, ROOT, Served

pytestmark = pytest.mark.slow

#: What `make test-broker` has installed.
CLIENTS: Final = Path(os.environ.get("OTHER_CLIENTS", ROOT / "build/clients"))
COMMANDS: Final = {
    "kafkajs": ["node", f"{CLIENTS}/kafkajs.mjs"],
    "platformatic": ["node", f"{CLIENTS}/platformatic.mjs"],
    "kcat": ["sh", str(Path(__file__).with_name("other_clients") / "kcat.sh")],
    "sarama": [f"{CLIENTS}/sarama"],
    "java": ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{CLIENTS}:{CLIENTS}/jars/*", "Java"],
}
#: What each client needs.
NEEDS: Final = {
    "kafkajs": f"{CLIENTS}/node_modules/kafkajs/index.js",
    "platformatic": f"{CLIENTS}/node_modules/@platformatic/kafka/package.json",
    "kcat": shutil.which("kcat") or "kcat",
    "sarama": f"{CLIENTS}/sarama",
    "java": f"{CLIENTS}/Java.class",
}
RECORDS: Final = 500


def node_version() -> int:
    return int(subprocess.check_output(["node", "--version"], text=True).strip("v\n").partition(".")[0])


class Client:
    """A client of another language, with a topic of its own."""

    def __init__(self, name: str, address: str, topic: str) -> None:
        if not Path(NEEDS[name]).exists():
            pytest.skip(f"{NEEDS[name]} is missing: make test-broker")
        if name == "platformatic" and node_version() < 20:
            pytest.skip(
                f"@platformatic/kafka needs Node 20 or newer on the PATH, got {node_version()}, as in Debian 12"
            )
        self._command = [*COMMANDS[name], address, topic]

    def run(self, *action: str) -> str:
        """Run its program. Returns: what it prints."""
        done = subprocess.run([*self._command, *action], capture_output=True, text=True, timeout=2 * PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def consume(self, count: int) -> list[tuple[int, int, str, int]]:
        """Read and commit *count* records as a group's member that then leaves.

        Returns: partition, offset, key and value of each.
        """
        read = [line.split() for line in self.run("consume", str(count)).splitlines()]
        return [(int(partition), int(offset), key, int(value)) for partition, offset, key, value in read]


@pytest.mark.parametrize("name", COMMANDS)
def test_member_that_restarts_reads_each_record_once_in_order(served: Served, name: str) -> None:
    client = Client(name, served.address, f"other-{name}")
    client.run("create")
    client.run("produce")
    read = client.consume(200) + client.consume(300)
    offsets, values, places = defaultdict(list), defaultdict(list), defaultdict(set)
    for partition, offset, key, value in read:
        offsets[partition].append(offset)
        values[key].append(value)
        places[key].add(partition)
    assert all(found == list(range(len(found))) for found in offsets.values())
    assert values == {f"k{k}": list(range(k, RECORDS, 13)) for k in range(13)}
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(offsets) > 1


def test_static_java_member_that_restarts_keeps_its_generation(served: Served) -> None:
    lines = Client("java", served.address, "other-static-java").run("restart").splitlines()
    assert [line for line in lines if line.startswith("generation")] == ["generation 1"] * 2
    assert len(set(lines)) == RECORDS + 1  # each record once
