"""Consumer groups: members wait for each other, then for the leader's plan, and send heartbeats.

JoinGroup -> ("join", group)              JoinBarrier: until all members have joined
SyncGroup -> ("sync", group)              WatermarkWait: until the leader has sent the assignments
Heartbeat -> (("session", ...), member)   Heartbeats: a member that misses one is removed, and the others rejoin
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from kio.schema.errors import ErrorCode

from aiopurgatory import Purgatory
from aiopurgatory.operations import (
    Generation,
    GroupFullError,
    Heartbeats,
    JoinBarrier,
    JoinError,
    Watermark,
    WatermarkWait,
)

from .errors import KafkaError


@dataclass
class GroupSettings:
    """Times are in seconds."""

    #: How long an empty group waits for more members.
    initial_delay: float = 0.3
    max_members: int = 1_000
    #: The shortest and the longest session timeout that a member may ask for.
    sessions: tuple[float, float] = (0.1, 1_800.0)


@dataclass
class Member:
    """A member, as it described itself."""

    protocol_type: str
    #: Its protocols, the preferred one first: name -> metadata for the leader.
    protocols: dict[str, bytes]
    session_timeout: float
    rebalance_timeout: float


class Joined(NamedTuple):
    """The answer to a member when the barrier opens."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    #: For the leader only: the metadata of each member.
    members: Mapping[str, bytes]


class Group:
    """One group."""

    def __init__(self, purgatory: Purgatory, name: str, settings: GroupSettings) -> None:
        self.name = name
        #: (topic, partition) -> committed offset and metadata.
        self.offsets: dict[tuple[str, int], tuple[int, str]] = {}
        #: That of the members who joined last.
        self.protocol_type = ""
        self._purgatory = purgatory
        self._settings = settings
        self._barrier = JoinBarrier[str](
            purgatory,
            ("join", name),
            rebalance_timeout=60.0,
            initial_delay=settings.initial_delay,
            max_members=settings.max_members,
        )
        self._sync_key = ("sync", name)
        self._synced = Watermark()  # the latest generation that has a plan
        self._plan: dict[str, bytes] = {}
        self._members: dict[str, Member] = {}
        self._sessions: dict[float, Heartbeats[str]] = {}

    @property
    def members(self) -> tuple[str, ...]:
        return self._barrier.members

    @property
    def generation(self) -> int:
        """The number of the latest generation."""
        return self._barrier.generation.number

    @property
    def state(self) -> str:
        """What the group does, by Kafka's name."""
        if not self.members:
            return "Empty"
        if self._barrier.is_closed:
            return "PreparingRebalance"
        return "Stable" if self._synced.value == self.generation else "CompletingRebalance"

    @property
    def protocol(self) -> str:
        """The protocol of the latest generation, while it is stable; else empty."""
        return _elected(list(self._members.values())) if self.state == "Stable" else ""

    def described(self) -> dict[str, tuple[bytes, bytes]]:
        """Return metadata and assignment of each member. Both are empty unless the group is stable."""
        protocol = self.protocol
        return {
            name: (member.protocols[protocol], self._plan.get(name, b"")) if protocol else (b"", b"")
            for name, member in self._members.items()
        }

    def expect(self, client_id: str, session_timeout: float) -> str:
        """Return a name for a new member, which must join with it.

        Raises: KafkaError: the group is full, or *session_timeout* (seconds) is too short or too long.
        """
        self._check_session(session_timeout)
        name = f"{client_id}-{uuid4()}"
        try:
            self._barrier.expect(name)
        except GroupFullError:
            raise KafkaError(ErrorCode.group_max_size_reached) from None
        self._sessions_of(session_timeout).beat(name)
        return name

    async def join(self, name: str, member: Member) -> Joined:
        """Wait until all members have joined. Raises: KafkaError: the member is refused, or was removed meanwhile."""
        try:
            self._refuse(name, member)
        except KafkaError:
            if name not in self._members:  # it has only a name, and no one must wait for it
                self._remove(name)
            raise
        before = self._members.get(name)
        self._stop_session(name)  # its timeout may have changed
        self._members[name] = member
        self.protocol_type = member.protocol_type
        self._beat(name)
        generation = self._barrier.generation
        is_leader = name == self._leader(generation)
        if self._barrier.is_closed or name not in generation.members or is_leader or before != member:
            self._barrier.rebalance_timeout = max(each.rebalance_timeout for each in self._members.values())
            self._interrupt_sync()
            try:
                generation = await self._barrier.join(name)
            except GroupFullError:
                self._forget(name)
                raise KafkaError(ErrorCode.group_max_size_reached) from None
            except JoinError:
                raise KafkaError(ErrorCode.unknown_member_id) from None
            for each in generation.dropped:
                self._forget(each)
            if name not in self._members:  # it left after the barrier opened
                raise KafkaError(ErrorCode.unknown_member_id)
            self._beat(name)
        return self._joined(name, generation)

    async def sync(self, name: str, generation: int, plan: Mapping[str, bytes]) -> bytes:
        """Wait for the leader's plan. Returns: the assignment of *name*.

        Args: plan: assignments by member, from the leader; empty from others.
        Raises: KafkaError: as for check(), or a rebalance began meanwhile.
        """
        self.check(name, generation)
        if self._barrier.is_closed:
            raise KafkaError(ErrorCode.rebalance_in_progress)
        self._beat(name)
        if name == self._leader(self._barrier.generation) and self._synced.value < generation:
            self._plan = dict(plan)
            self._synced.value = generation
            self._purgatory.check_and_complete(self._sync_key)
        wait = WatermarkWait(self._synced, generation, self._members[name].rebalance_timeout)
        try:
            await self._purgatory.watch(wait, [self._sync_key])
        except TimeoutError:  # the leader is alive, but has sent no plan
            self._remove(self._leader(self._barrier.generation))
            raise KafkaError(ErrorCode.rebalance_in_progress) from None
        self._beat(name)
        return self._plan.get(name, b"")

    def heartbeat(self, name: str, generation: int) -> None:
        """Note a heartbeat. Raises: KafkaError: as for check(), or all members must rejoin."""
        self.check(name, generation)
        self._beat(name)
        if self._barrier.is_closed:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    def leave(self, name: str) -> None:
        """Remove a member. Raises: KafkaError: there is no such member."""
        if name not in self._barrier.members:
            raise KafkaError(ErrorCode.unknown_member_id)
        self._remove(name)

    def check(self, name: str, generation: int) -> None:
        """Raise KafkaError if *name* is not a member, or *generation* is not the latest."""
        if name not in self._members:
            raise KafkaError(ErrorCode.unknown_member_id)
        if generation != self._barrier.generation.number:
            raise KafkaError(ErrorCode.illegal_generation)

    def commit(self, name: str, generation: int, offsets: Mapping[tuple[str, int], tuple[int, str]]) -> None:
        """Store *offsets*. Raises: KafkaError: as for check(), or a non-member commits to a group with members."""
        if generation >= 0:
            self.check(name, generation)
            self._beat(name)
        elif self._barrier.members:
            raise KafkaError(ErrorCode.unknown_member_id)
        self.offsets.update(offsets)

    def close(self) -> None:
        """Answer every waiting member: the broker is stopping."""
        for key in (("join", self.name), self._sync_key):
            self._purgatory.fail_for_key(key, KafkaError(ErrorCode.coordinator_not_available))

    def _check_session(self, timeout: float) -> None:
        shortest, longest = self._settings.sessions
        if not shortest <= timeout <= longest:
            raise KafkaError(ErrorCode.invalid_session_timeout)

    def _refuse(self, name: str, member: Member) -> None:
        self._check_session(member.session_timeout)
        others = [each for other, each in self._members.items() if other != name]
        is_alike = all(each.protocol_type == member.protocol_type for each in others)
        common = set(member.protocols).intersection(*(each.protocols for each in others))
        if not common or not is_alike:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)

    def _joined(self, name: str, generation: Generation[str]) -> Joined:
        members = [(each, self._members[each]) for each in generation.members if each in self._members]
        protocol = _elected([member for _, member in members])
        leader = self._leader(generation)
        told = {each: member.protocols[protocol] for each, member in members} if name == leader else {}
        return Joined(generation.number, self._members[name].protocol_type, protocol, leader, told)

    def _leader(self, generation: Generation[str]) -> str:
        return generation.members[0] if generation.members else ""

    def _beat(self, name: str) -> None:
        self._sessions_of(self._members[name].session_timeout).beat(name)

    def _sessions_of(self, timeout: float) -> Heartbeats[str]:
        if timeout not in self._sessions:
            key = ("session", self.name, timeout)
            self._sessions[timeout] = Heartbeats[str](
                self._purgatory, key, timeout=timeout, on_missed=self._remove, excused=self._barrier.is_waiting
            )
        return self._sessions[timeout]

    def _interrupt_sync(self) -> None:
        """Fail the waits for the old plan: a rebalance begins, and members must rejoin."""
        if not self._barrier.is_closed:
            self._purgatory.fail_for_key(self._sync_key, KafkaError(ErrorCode.rebalance_in_progress))

    def _remove(self, name: str) -> None:
        """Remove a member, so that the others must rejoin."""
        if name in self._barrier.generation.members:
            self._interrupt_sync()
        self._barrier.leave(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._members.pop(name, None)
        self._stop_session(name)

    def _stop_session(self, name: str) -> None:
        for sessions in self._sessions.values():
            sessions.stop(name)


def _elected(members: Sequence[Member]) -> str:
    """Return the protocol with the most votes among those that all members support."""
    common = set(members[0].protocols).intersection(*(member.protocols for member in members))
    votes = Counter(next(name for name in member.protocols if name in common) for member in members)
    return votes.most_common(1)[0][0]
