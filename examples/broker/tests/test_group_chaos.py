"""Members of a group are killed in each phase of a rebalance, pause, leave and meet a twin; the rest must go on.

After each disturbance, the live members have all partitions again after two sessions at most. In a generation,
no two members commit to one partition. A restarted static member takes over: its older name commits no more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from ..groups import GroupSettings
from ..server import Broker, BrokerSettings
from .asks import create, join_values
from .conftest import Start
from .waits import until
from .wires import Wire

pytestmark = pytest.mark.slow

ROUNDS: Final = 12
PARTITIONS: Final = 6
#: Seconds.
SESSION, REBALANCE = 0.6, 8.0
INSTANCES: Final = ("a", "b", "c", "d")
#: When a member is to be disturbed: as it sends this request, or it pauses, or leaves.
PHASES: Final = ("join_group", "sync_group", "offset_commit", "heartbeat", "pause", "leave")
FENCED: Final = ErrorCode.fenced_instance_id
UNKNOWN: Final = ErrorCode.unknown_member_id


class KilledError(Exception):
    """The member has been killed, or has left."""


@dataclass
class World:
    """What all members share."""

    broker: Broker
    chosen: random.Random
    is_static: bool
    #: The names that have committed, by generation and partition, in order.
    committed: dict[tuple[int, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    unexpected: list[Any] = field(default_factory=list)


class Member:
    """A member that joins, syncs, commits and sends heartbeats, until it is disturbed or fenced."""

    def __init__(self, world: World, instance: str) -> None:
        self.instance = instance
        self.disturbed = ""
        self.name = ""
        self.generation = 0
        #: None: it has no plan.
        self.parts: list[int] | None = None
        self._world = world
        self.task = asyncio.create_task(self._run())

    @property
    def is_live(self) -> bool:
        return not self.task.done()

    async def _run(self) -> None:
        self._wire = await Wire.open(self._world.broker.port)
        try:
            code = ErrorCode.none
            while code != FENCED:
                self.parts = None
                if code == UNKNOWN:
                    self.name = ""
                code = await self._join()
        except KilledError:
            pass
        except Exception as error:
            self._world.unexpected.append(error)
        finally:
            self._wire.writer.transport.abort()

    async def _call(self, api: str, **values: Any) -> Any:
        if self.disturbed == api:
            if self._world.chosen.random() < 0.5:
                await self._wire.send(api, **values)
                await asyncio.sleep(self._world.chosen.choice([0.0, 0.001, 0.05, 0.3]))
            raise KilledError
        return await self._wire.call(api, **values)

    def _who(self) -> dict[str, str]:
        instance = {"group_instance_id": self.instance} if self._world.is_static else {}
        return {"member_id": self.name} | instance

    async def _join(self) -> ErrorCode:
        """Join, and work until there is an error. Returns: its code."""
        values = join_values("g", session=SESSION) | self._who() | {"rebalance_timeout": timedelta(seconds=REBALANCE)}
        answer = await self._call("join_group", **values)
        self.name = answer.member_id
        if answer.error_code != ErrorCode.none:
            return ErrorCode(answer.error_code)
        self.generation = answer.generation_id
        names = [each.member_id for each in answer.members]
        plan = [
            {"member_id": name, "assignment": bytes(range(place, PARTITIONS, len(names)))}
            for place, name in enumerate(names)
        ]
        values = {"group_id": "g", "generation_id": self.generation} | self._who()
        if plan:  # the others wait for it
            await asyncio.sleep(self._world.chosen.random() * SESSION / 2)
        answer = await self._call("sync_group", **values, assignments=plan)
        if answer.error_code != ErrorCode.none:
            return ErrorCode(answer.error_code)
        self.parts = list(answer.assignment)
        while True:
            await asyncio.sleep(0.05)
            if self.disturbed == "pause":
                await asyncio.sleep(SESSION * self._world.chosen.choice([0.5, 1.5]))
            await self._commit(self.parts)
            code = ErrorCode((await self._call("heartbeat", **values)).error_code)
            if self.disturbed == "leave":
                name = {"member_id": ""} if self._world.is_static and self._world.chosen.random() < 0.5 else {}
                await self._wire.call("leave_group", group_id="g", members=[self._who() | name])
                raise KilledError
            if code != ErrorCode.none:
                return code

    async def _commit(self, parts: list[int]) -> None:
        offsets = [{"partition_index": number, "committed_offset": 5} for number in parts]
        values = {"group_id": "g", "generation_id_or_member_epoch": self.generation} | self._who()
        answer = await self._call("offset_commit", **values, topics=[{"name": "t", "partitions": offsets}])
        for part in answer.topics[0].partitions if parts else ():
            if part.error_code == ErrorCode.none:
                self._world.committed[self.generation, part.partition_index].append(self.name)


def share_all(members: list[Member]) -> bool:
    """Whether the live members have all partitions, in the same generation."""
    members = [member for member in members if member.is_live]
    parts = sorted(number for member in members for number in member.parts or [])
    is_one = len({member.generation for member in members}) == 1
    return parts == list(range(PARTITIONS)) and is_one and all(member.parts is not None for member in members)


def owners(names: list[str]) -> list[str]:
    """The names in order, without repeats that follow each other."""
    return [name for before, name in zip(["", *names], names, strict=False) if name != before]


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_group_goes_on_whatever_happens_to_its_members(start: Start, is_static: bool, seed: int) -> None:
    broker = await start(BrokerSettings(group=GroupSettings(initial_delay=0.1)))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t", PARTITIONS)
    free = broker.budget.free
    chosen = random.Random(seed)
    world = World(broker, chosen, is_static)
    members = [Member(world, instance) for instance in INSTANCES]
    for _ in range(ROUNDS):
        for _ in range(chosen.randint(1, 3)):
            if chosen.random() < 0.2:
                members.append(Member(world, chosen.choice(INSTANCES)))  # perhaps a twin
            else:
                chosen.choice(members).disturbed = chosen.choice(PHASES)
            await asyncio.sleep(chosen.random() * 0.3)
        await asyncio.sleep(chosen.random() * 0.6)
        for member in members:
            member.disturbed = ""
        members = [member for member in members if member.is_live]
        missing = set(INSTANCES) - {member.instance for member in members}
        members += [Member(world, instance) for instance in sorted(missing) if chosen.random() < 0.8 or not members]
        begin = time.monotonic()
        await until(partial(share_all, members), "the live members share all partitions")
        assert time.monotonic() - begin < 2 * SESSION + 3.0
    for member in members:
        member.task.cancel()
    await asyncio.gather(*(member.task for member in members), return_exceptions=True)
    assert world.unexpected == []
    for names in world.committed.values():
        taken_over = owners(names)
        assert len(set(taken_over)) == len(taken_over)
        assert len({name.partition("-")[0] for name in names} if is_static else set(names)) == 1
    await until(lambda: broker.rebalances.statistics().pending == 0, "no session is left")
    assert broker.groups["g"].members == ()
    broker.groups["g"].offsets.clear()
    assert broker.budget.free == free
