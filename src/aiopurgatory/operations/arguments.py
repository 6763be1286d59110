"""What the ready-made operations refuse."""

from __future__ import annotations


def require_int(parameter: str, value: object, least: int | None = None) -> None:
    """Raises: TypeError: *value* is no int; ValueError: it is less than *least*."""
    if not isinstance(value, int):
        raise TypeError(f"{parameter} must be an int, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{parameter} must be >= {least}, got {value!r}")


def require_seconds(parameter: str, value: object) -> None:
    """Raises: TypeError: *value* is no number; ValueError: it is negative or NaN."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{parameter} must be a number of seconds, got {value!r}")
    if not value >= 0:
        raise ValueError(f"{parameter} must be >= 0 s, got {value!r}")


def require_error(exc: object) -> None:
    """Raises: TypeError: *exc* is nothing that an await can raise."""
    if not isinstance(exc, Exception) or isinstance(exc, StopIteration):
        raise TypeError(f"exc must be an instance of Exception other than StopIteration, got {exc!r}")
