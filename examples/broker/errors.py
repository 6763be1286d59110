"""What goes wrong, as Kafka's clients are told of it."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from aiopurgatory.operations import NotEnoughReplicasError, SourceError


class KafkaError(SourceError):
    """An answer that is one of Kafka's error codes. As a SourceError, it ends a fetch that waits."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def code_of(error: Exception | None) -> ErrorCode:
    """The code of what a wait for acks ended with."""
    if error is None:
        return ErrorCode.none
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, TimeoutError):
        return ErrorCode.request_timed_out
    if isinstance(error, NotEnoughReplicasError):
        return ErrorCode.not_enough_replicas_after_append
    return ErrorCode.unknown_server_error
