"""Consumer groups: members wait for each other, then for the leader's plan, and send heartbeats.

JoinGroup -> ("join", group)              JoinBarrier: until all members have joined
SyncGroup -> ("sync", group)              wait_for(): until the leader has sent the assignments
Heartbeat -> (("session", ...), member)   Heartbeats: a member that misses one is removed, and the others rejoin

A member has a name from the broker. A static member also has an instance id of its own (KIP-345): when it restarts, its
new name takes the place of the older one, which is fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import uuid4

from kio.schema.errors import ErrorCode

from aiopurgatory import Purgatory
from aiopurgatory.operations import (
    Generation,
    GroupFullError,
    Heartbeats,
    JoinBarrier,
    JoinError,
)

from .errors import KafkaError

#: The most letters of a client's or an instance's name within a member's, and of a type of protocols.
_LONGEST_PREFIX: Final = 255
_LONGEST_TYPE: Final = 255


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
    #: Of a static member.
    instance: str | None = None


class Sender(NamedTuple):
    """The sender of a request: the name of a member, and the instance id of a static one."""

    name: str
    instance: str | None = None


class Joined(NamedTuple):
    """The answer to a member when the barrier opens."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    #: For the leader only: instance and metadata of each member.
    members: Mapping[str, tuple[str | None, bytes]]
    #: Of a static member that has restarted: its older name. It has the place of that in the generation.
    older: str = ""


class Group:
    """One group."""

    def __init__(self, purgatory: Purgatory, name: str, settings: GroupSettings) -> None:
        self.name = name
        #: (topic, partition) -> committed offset and metadata.
        self.offsets: dict[tuple[str, int], tuple[int, str]] = {}
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
        self._synced = 0  # the latest generation that has a plan
        self._plan: dict[str, bytes] = {}
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}  # the names of static members
        # One for each member, which may change its timeout.
        self._sessions: dict[str, Heartbeats[str]] = {}
        self._syncing: set[str] = set()  # members that wait for the plan

    @property
    def members(self) -> tuple[str, ...]:
        return self._barrier.members

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor offsets."""
        return not self._barrier.members and not self.offsets

    @property
    def generation(self) -> int:
        """The number of the latest generation."""
        return self._barrier.generation.number

    @property
    def state(self) -> str:
        """The state of the group, by Kafka's name."""
        if self._barrier.is_closed:
            return "PreparingRebalance"
        if not self._barrier.generation.members:  # there may be members that have only a name
            return "Empty"
        return "Stable" if self._synced == self.generation else "CompletingRebalance"

    def expect(self, client_id: str, session_timeout: float) -> str:
        """Return a name for a new member, which must join with it.

        Raises: KafkaError: the group is full, or *session_timeout* (seconds) is too short or too long.
        """
        self._check_session(session_timeout)
        name = _new_name(client_id)
        self._begin_session(name, session_timeout)
        self._expect(name)
        return name

    async def join_static(self, instance: str, member: Member) -> tuple[str, Joined]:
        """Join as a static member that has no name yet. If it had one, the new one takes its place.

        A group that is at work stays so, unless it has to change its protocol: then all members must rejoin.

        Returns: its name, and the result of join().
        Raises: KafkaError: as for join().
        """
        older = self._instances.get(instance, "")
        self._refuse(older, member)
        name = _new_name(instance)
        keeps_place = self._may_keep_place(older, member)
        self._keep(name, member)
        if not self._barrier.replace(older, name):
            self._expect(name)
        self._instances[instance] = name
        part = self._plan.get(older, b"")
        self._forget(older)
        if not keeps_place:
            return name, self._joined(name, await self._wait(name))
        self._plan[name] = part
        return name, self._joined(name, self._barrier.generation)._replace(older=older)

    async def join(self, name: str, member: Member) -> Joined:
        """Wait until all members have joined.

        Raises: KafkaError: the member is unknown or fenced, is refused, or was removed meanwhile.
        """
        self._check_name(name, member.instance, self._barrier.members)
        before = self._members.get(name)
        try:
            self._refuse(name, member)
        except KafkaError:
            if before is None:  # it has only a name, and no one must wait for it
                self._remove(name)
            raise
        self._keep(name, member)
        generation = self._barrier.generation
        is_leader = name == self._leader(generation)
        if self._barrier.is_closed or name not in generation.members or is_leader or before != member:
            generation = await self._wait(name)
        return self._joined(name, generation)

    def plan(self, sender: Sender, generation: int, plan: Mapping[str, bytes]) -> None:
        """Take the assignments by member, if *sender* leads and there are none yet.

        Raises: KafkaError: as for check(), or a rebalance has begun.
        """
        name = self.check(sender, generation)
        if self._barrier.is_closed:
            raise KafkaError(ErrorCode.rebalance_in_progress)
        if name == self._leader(self._barrier.generation) and self._synced < generation:
            members = set(self._barrier.generation.members)
            self._plan = {each: part for each, part in plan.items() if each in members}
            self._synced = generation
            self._purgatory.check_and_complete(self._sync_key)

    async def sync(self, sender: Sender, generation: int) -> bytes:
        """Wait for the leader's plan. Returns: the assignment of *sender*.

        Raises: KafkaError: as for check(), or a rebalance began meanwhile.
        """
        name = self.check(sender, generation)
        self._sessions[name].beat(name)
        timeout = self._barrier.rebalance_timeout
        self._syncing.add(name)
        try:
            await self._purgatory.wait_for(lambda: self._synced >= generation, [self._sync_key], timeout=timeout)
        except TimeoutError:  # the leader is alive, but has sent no plan
            self._remove(self._leader(self._barrier.generation))
            raise KafkaError(ErrorCode.rebalance_in_progress) from None
        finally:
            self._syncing.discard(name)
        self.check(sender, generation)  # it may have left meanwhile
        self._sessions[name].beat(name)
        return self._plan.get(name, b"")

    def heartbeat(self, sender: Sender, generation: int) -> None:
        """Note a heartbeat. Raises: KafkaError: as for check(), or all members must rejoin."""
        name = self.check(sender, generation)
        self._sessions[name].beat(name)
        if self._barrier.is_closed:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    def leave(self, sender: Sender) -> None:
        """Remove a member. Without a name, *sender* is a static member. Raises: KafkaError: it is unknown or fenced."""
        name = sender.name or self._instances.get(sender.instance or "", "")
        self._check_name(name, sender.instance, self._barrier.members)
        self._remove(name)

    def check(self, sender: Sender, generation: int) -> str:
        """Return the name of a member. Raises: KafkaError: it is unknown or fenced, or not of this *generation*."""
        self._check_name(sender.name, sender.instance, self._members)
        if generation != self._barrier.generation.number:
            raise KafkaError(ErrorCode.illegal_generation)
        return sender.name

    def commit(self, sender: Sender, generation: int, offsets: Mapping[tuple[str, int], tuple[int, str]]) -> None:
        """Store *offsets*.

        Raises: KafkaError: as for check(), there is no plan yet, or a non-member commits to a group with members.
        """
        if generation >= 0:
            name = self.check(sender, generation)
            self._sessions[name].beat(name)
            if self.state == "CompletingRebalance":  # its partitions may be another's now
                raise KafkaError(ErrorCode.rebalance_in_progress)
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

    def _check_name(self, name: str, instance: str | None, names: Container[str]) -> None:
        """Raise KafkaError if *name* is not one of *names*, or is an older name of *instance*."""
        if instance is not None and name != self._instances.get(instance, name):
            raise KafkaError(ErrorCode.fenced_instance_id)
        if name not in names:
            raise KafkaError(ErrorCode.unknown_member_id)

    def _expect(self, name: str) -> None:
        try:
            self._barrier.expect(name)
        except GroupFullError:
            self._forget(name)
            raise KafkaError(ErrorCode.group_max_size_reached) from None

    def _keep(self, name: str, member: Member) -> None:
        """Keep what a member says of itself, and begin its session."""
        self._begin_session(name, member.session_timeout)
        self._members[name] = member

    async def _wait(self, name: str) -> Generation[str]:
        """Wait at the barrier. Raises: KafkaError: as for join()."""
        member = self._members[name]
        self._barrier.rebalance_timeout = max(each.rebalance_timeout for each in self._members.values())
        self._interrupt_sync()
        try:
            generation = await self._barrier.join(name)
        except GroupFullError:
            self._forget(name)
            raise KafkaError(ErrorCode.group_max_size_reached) from None
        except JoinError:
            self._check_name(name, member.instance, self._members)
            raise KafkaError(ErrorCode.unknown_member_id) from None
        for each in generation.dropped:
            self._forget(each)
        self._check_name(name, member.instance, self._members)  # it may have left after the barrier opened
        self._sessions[name].beat(name)
        return generation

    def _may_keep_place(self, older: str, member: Member) -> bool:
        """Whether *member* may have the place of *older* at once: the group is at work, and has the same protocol then.

        As in Kafka, its metadata may differ: with some assignors, it has the partitions that a member had.
        """
        generation = self._barrier.generation
        if older not in generation.members or self.state != "Stable":
            return False
        members = self._members_of(generation)
        return _elected(members) == _elected(members | {older: member})

    def _refuse(self, name: str, member: Member) -> None:
        self._check_session(member.session_timeout)
        others = [each for other, each in self._members.items() if other != name]
        is_alike = all(each.protocol_type == member.protocol_type for each in others)
        common = set(member.protocols).intersection(*(each.protocols for each in others))
        if not common or not is_alike or not 1 <= len(member.protocol_type) <= _LONGEST_TYPE:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)

    def _joined(self, name: str, generation: Generation[str]) -> Joined:
        members = self._members_of(generation)
        protocol = _elected(members)
        leader = self._leader(generation)
        told = {each: (member.instance, member.protocols[protocol]) for each, member in members.items()}
        return Joined(generation.number, members[name].protocol_type, protocol, leader, told if name == leader else {})

    def _members_of(self, generation: Generation[str]) -> dict[str, Member]:
        return {name: self._members[name] for name in generation.members if name in self._members}

    def _leader(self, generation: Generation[str]) -> str:
        return generation.members[0] if generation.members else ""

    def _begin_session(self, name: str, timeout: float) -> None:
        self._stop_session(name)
        self._sessions[name] = Heartbeats[str](
            self._purgatory, ("session", self.name), timeout=timeout, on_missed=self._remove, excused=self._is_waiting
        )
        self._sessions[name].beat(name)

    def _is_waiting(self, name: str) -> bool:
        """Whether a member waits for an answer, and sends no heartbeats meanwhile."""
        return self._barrier.is_waiting(name) or name in self._syncing

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
        member = self._members.pop(name, None)
        if member and member.instance is not None and self._instances.get(member.instance) == name:
            del self._instances[member.instance]
        self._plan.pop(name, None)
        self._stop_session(name)

    def _stop_session(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session:
            session.stop(name)


def _new_name(prefix: str) -> str:
    return f"{prefix[:_LONGEST_PREFIX]}-{uuid4()}"


def _elected(members: Mapping[str, Member]) -> str:
    """Return the protocol with the most votes that all members support."""
    common = set.intersection(*(set(member.protocols) for member in members.values()))
    votes = Counter(next(name for name in member.protocols if name in common) for member in members.values())
    return votes.most_common(1)[0][0]
