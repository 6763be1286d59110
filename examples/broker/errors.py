"""Errors as Kafka's error codes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from aiopurgatory.operations import NotEnoughReplicasError, SourceError


class KafkaError(SourceError):
    """An error that is answered with one of Kafka's codes. As a SourceError, it ends a waiting fetch."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def code_of(error: Exception | None) -> ErrorCode:
    """Return the code for the result of a wait for acks; None: success."""
    if error is None:
        return ErrorCode.none
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, TimeoutError):
        return ErrorCode.request_timed_out
    if isinstance(error, NotEnoughReplicasError):
        return ErrorCode.not_enough_replicas_after_append
    return ErrorCode.unknown_server_error
