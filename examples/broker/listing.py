"""Handlers that list, describe and delete groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from .answers import Values, code_of_step
from .errors import KafkaError
from .groups import Group
from .wire import Request

if TYPE_CHECKING:
    from .server import Broker

# A member's name is the id of its client, a dash, and a UUID.
_SUFFIX: Final = 37


def list_groups(broker: Broker, request: Request) -> Values:
    wanted = {state.casefold() for state in getattr(request.body, "states_filter", ())}
    found = [
        Values(group_id=name, protocol_type=group.protocol_type, group_state=group.state)
        for name, group in broker.groups.items()
        if not wanted or group.state.casefold() in wanted
    ]
    return Values(error_code=ErrorCode.none, groups=found)


def describe_groups(broker: Broker, request: Request) -> Values:
    names = dict.fromkeys(request.body.groups)  # each once: its answer may be long
    return Values(groups=[_described(name, broker.groups.get(name)) for name in names])


def _described(name: str, group: Group | None) -> Values:
    members = []
    for member, (instance, metadata, assignment) in group.described().items() if group else ():
        members.append(
            Values(
                member_id=member,
                group_instance_id=instance,
                client_id=member[:-_SUFFIX],
                client_host="/",
                member_metadata=metadata,
                member_assignment=assignment,
            )
        )
    return Values(
        error_code=ErrorCode.none,
        group_id=name,
        group_state=group.state if group else "Dead",
        protocol_type=group.protocol_type if group else "",
        protocol_data=group.protocol if group else "",
        members=members,
    )


def delete_groups(broker: Broker, request: Request) -> Values:
    def delete(name: str) -> None:
        if name not in broker.groups:
            raise KafkaError(ErrorCode.group_id_not_found)
        if broker.groups[name].members:
            raise KafkaError(ErrorCode.non_empty_group)
        broker.groups.pop(name).offsets.clear()

    names = request.body.groups_names
    return Values(results=[Values(group_id=name, error_code=code_of_step(delete, name)) for name in names])
