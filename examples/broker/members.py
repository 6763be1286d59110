"""Handlers for requests of consumer group members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from .answers import OK, Key, Values, by_topic, code_of_step, partitions
from .errors import KafkaError
from .groups import Joined, Member, Sender
from .wire import Request

if TYPE_CHECKING:
    from .server import Broker

# From this version on, a member without a name is given one, and must join again with it.
_NAMES_FIRST: Final = 4
# From this version on, a static leader that has restarted can be told to make no new plan (KIP-814).
_SKIPS_ASSIGNMENT: Final = 9
# The most characters of the metadata that a consumer commits with an offset.
_LONGEST_METADATA: Final = 4096


async def join_group(broker: Broker, request: Request) -> Values:
    body, request.body = request.body, None  # the wait needs no second copy of what the group keeps
    (name, instance), group_id = _sender(body), body.group_id
    session = body.session_timeout.total_seconds()
    protocols = {each.name: bytes(each.metadata) for each in body.protocols}
    rebalance = max(body.rebalance_timeout.total_seconds(), 0.0)
    member = Member(body.protocol_type, protocols, session, rebalance, instance)
    del body
    try:
        group = broker.group(group_id, makes=True)
        if not name and instance is not None:
            name, joined = await group.join_static(instance, member)
        else:
            if not name:
                name = group.expect(request.client_id, session)
                if request.version >= _NAMES_FIRST:
                    raise KafkaError(ErrorCode.member_id_required)
            joined = await group.join(name, member)
    except KafkaError as error:
        return Values(error_code=error.code, member_id=name, generation_id=-1, protocol_name="", leader="", members=())
    return _joined(name, joined, request.version)


def _joined(name: str, joined: Joined, version: int) -> Values:
    leader, members = joined.leader, joined.members
    skips_assignment = leader == name and bool(joined.older)  # its plan is in force, and it shall make no other
    if skips_assignment and version < _SKIPS_ASSIGNMENT:
        leader, members = joined.older, {}  # so it does not know that it leads
    return Values(
        error_code=OK,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=leader,
        skip_assignment=skips_assignment,
        member_id=name,
        members=[
            Values(member_id=each, group_instance_id=instance, metadata=metadata)
            for each, (instance, metadata) in members.items()
        ],
    )


async def sync_group(broker: Broker, request: Request) -> Values:
    body, request.body = request.body, None  # as in join_group()
    sender, generation = _sender(body), body.generation_id
    names = {name: getattr(body, name, None) for name in ("protocol_type", "protocol_name")}
    try:
        group = broker.group(body.group_id)
        group.plan(sender, generation, {each.member_id: bytes(each.assignment) for each in body.assignments})
        del body
        part = await group.sync(sender, generation)
    except KafkaError as error:
        return Values(error_code=error.code, assignment=b"")
    return Values(error_code=OK, assignment=part, **names)


def heartbeat(broker: Broker, request: Request) -> Values:
    body = request.body

    def beat() -> None:
        broker.group(body.group_id).heartbeat(_sender(body), body.generation_id)

    return Values(error_code=code_of_step(beat))


def leave_group(broker: Broker, request: Request) -> Values:
    body = request.body

    def leave(sender: Sender) -> None:
        broker.group(body.group_id).leave(sender)

    members = [_sender(each) for each in getattr(body, "members", [body])]
    codes = [code_of_step(leave, sender) for sender in members]
    answers = [
        Values(member_id=sender.name, group_instance_id=sender.instance, error_code=code)
        for sender, code in zip(members, codes, strict=True)
    ]
    return Values(error_code=OK if hasattr(body, "members") else codes[0], members=answers)


def offset_commit(broker: Broker, request: Request) -> Values:
    body = request.body
    offsets = {
        (topic, part.partition_index): (part.committed_offset, part.committed_metadata or "")
        for topic, part in partitions(body.topics)
    }

    def check(topic: str, number: int) -> None:
        broker.partition(topic, number)
        if len(offsets[topic, number][1]) > _LONGEST_METADATA:
            raise KafkaError(ErrorCode.offset_metadata_too_large)

    codes = {key: code_of_step(check, *key) for key in offsets}
    known = {key: offset for key, offset in offsets.items() if codes[key] == OK}

    def commit() -> None:
        generation = getattr(body, "generation_id_or_member_epoch", -1)
        broker.group(body.group_id, makes=generation < 0).commit(_sender(body), generation, known)

    code = code_of_step(commit)
    answers = {key: Values(partition_index=key[1], error_code=codes[key] if code == OK else code) for key in offsets}
    return Values(topics=by_topic(answers))


def offset_fetch(broker: Broker, request: Request) -> Values:
    body = request.body
    if hasattr(body, "groups"):
        groups = {each.group_id: each.topics for each in body.groups}  # each once: its answer may be long
        return Values(groups=[_fetched(broker, group, topics) for group, topics in groups.items()])
    return _fetched(broker, body.group_id, body.topics)


def _fetched(broker: Broker, group: str, topics: Iterable[Any] | None) -> Values:
    known: Mapping[Key, tuple[int, str]] = broker.groups[group].offsets if group in broker.groups else {}
    wanted = list(known)
    if topics is not None:
        wanted = list(partitions(topics, parts="partition_indexes"))
    answers = {}
    for key in wanted:
        offset, metadata = known.get(key, (-1, ""))
        answers[key] = Values(partition_index=key[1], committed_offset=offset, metadata=metadata, error_code=OK)
    return Values(group_id=group, topics=by_topic(answers), error_code=OK)


def _sender(body: Any) -> Sender:
    """Return the sender of a request, or of a part of it. Older versions have no instance ids."""
    return Sender(body.member_id, getattr(body, "group_instance_id", None))
