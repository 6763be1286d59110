"""A number, and the operation that waits until it reaches a target. No Python code runs to try it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, Protocol, SupportsFloat, SupportsIndex, cast, final

from mypy_extensions import mypyc_attr

from ...arguments import described, require_int
from ...core.kit import AwaitableOperation
from ...errors import DeadlineError
from ...operation import wait


class AnyWatermark(Protocol):
    """A Watermark. (Compiled code checks the class of an argument with a message that names no parameter.)"""

    @property
    def value(self) -> Any: ...


@final
class Watermark:
    """A number that its owner sets and others wait for: the end of a log, a commit index, a count of bytes.

    It may go up and down. Setting it completes nothing: check the keys afterwards, as with any state.

        async with Purgatory("replay") as purgatory:
            end = Watermark()
            op = purgatory.watch(WatermarkWait(end, 2, timeout=30.0), keys=["log"])
            end.value += 1
            assert purgatory.check_and_complete("log") == 0
            end.value += 1
            assert purgatory.check_and_complete("log") == 1
            assert await op == 2

    Args: value: an int, of either sign and any size. Default 0.
    Raises: TypeError: *value* is not an int.
    Cost: reading or setting it takes up to twice as long as with a plain attribute.
    """

    __slots__ = ("_value",)

    def __init__(self, value: SupportsIndex = 0) -> None:
        self._value = as_int("value", value)

    def __repr__(self) -> str:
        return f"<Watermark {self._value}>"

    @property
    def value(self) -> int:
        """The current number. Raises: TypeError: it is set to something that is not an int."""
        return self._value

    @value.setter
    def value(self, value: SupportsIndex) -> None:
        self._value = as_int("value", value)


@mypyc_attr(allow_interpreted_subclasses=True)
class WatermarkWait(AwaitableOperation):
    """Waits until *watermark* reaches *target*. Watch it like any operation; its result is the value, an int.

    It behaves like a DelayedOperation with a try_complete() that returns
    ``watermark.value >= target and self.force_complete()``. Where the library is compiled, it makes no call into
    Python: watch() and the check that completes it take half the time with one key, 0.6 of it with three. A try
    that fails takes a third.

    At the deadline it raises DeadlineError, a TimeoutError. To return the value at that time instead, override
    on_expiration(). A subclass may override any hook of DelayedOperation, at a price: all its hooks, even inherited
    ones, are then called by name.

    Args:
        watermark: the number to wait for.
        target: the lowest value that completes it.
        timeout: seconds from the moment it is watched; None for no deadline. 0 or less: it expires on a later loop
            iteration, as any operation.

    Raises: TypeError: an argument has the wrong type. ValueError: *timeout* is NaN.
    Cost: about 150 bytes.
    """

    __slots__ = ("target", "watermark")

    def __init__(self, watermark: AnyWatermark, target: SupportsIndex, timeout: SupportsFloat | None) -> None:
        super().__init__(timeout)
        self.watermark: Final = as_watermark("watermark", watermark)
        self.target: Final = as_int("target", target)

    def __await__(self) -> Generator[Any, None, int]:
        """Wait for the value. Raises: DeadlineError at the deadline; otherwise as DelayedOperation."""
        return wait(self)

    def try_complete(self) -> bool:
        return self.watermark._value >= self.target and self.force_complete()

    def on_complete(self) -> int:
        return self.watermark._value

    def on_expiration(self) -> None:
        raise DeadlineError(f"the watermark was {self.watermark._value} after {self.timeout} s, not yet {self.target}")


def as_int(parameter: str, value: object) -> int:
    """Return *value*, the argument for *parameter*. Raises: TypeError: it is not an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        require_int(parameter, value)
    return cast(int, value)


def as_watermark(parameter: str, watermark: object) -> Watermark:
    """Return *watermark*, the argument for *parameter*. Raises: TypeError: it is not a Watermark."""
    if not isinstance(watermark, Watermark):
        raise TypeError(f"{parameter} must be a Watermark, got {described(watermark)}")
    return watermark
