"""Checks of arguments. Each error names the parameter, the rule and the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import iscoroutinefunction
from math import inf
from types import CoroutineType
from typing import Final, Protocol, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

#: Bytes of UTF-8 in a name. The pipeline quarantines a journal's rows of a purgatory with a longer or an empty one.
LONGEST_NAME: Final = 255
#: Characters of a key in a message.
LONGEST_SHOWN: Final = 200


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Raises: ImportError: an import in the block failed. It names the *extra* that brings the package."""
    try:
        yield
    except ImportError as exc:
        raise ImportError(f'{exc}: pip install "aiopurgatory[{name}]"') from exc


class NotStr(Protocol[T_co]):
    """A list, tuple, set or dict, but not a str or bytes: ``"a".__contains__`` does not take every object."""

    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[T_co]: ...


#: An iterable. Type checkers refuse a str, whose letters would be the items.
Items: TypeAlias = NotStr[T_co] | Iterator[T_co]


def described(thing: object) -> str:
    """Return the repr of *thing*; if that raises, since it is the user's code, the name of its class.

    In a tuple or list, only the items whose own repr raises are replaced.
    """
    try:
        return repr(thing)
    except RecursionError:
        return f"<{type(thing).__name__}>"
    except Exception:
        if not isinstance(thing, (tuple, list)):
            return f"<{type(thing).__name__}>"
        items = ", ".join([described(item) for item in thing])
        if isinstance(thing, list):
            return f"[{items}]"
        return f"({items},)" if len(thing) == 1 else f"({items})"


def shown(thing: object) -> str:
    """Return what described() does, shortened."""
    text = described(thing)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def require(holds: bool, parameter: str, rule: str, value: object, error: type[Exception] = ValueError) -> None:
    """Raises: *error*: *holds* is false."""
    if not holds:
        raise error(f"{parameter} must be {rule}, got {described(value)}")


def require_int(parameter: str, value: object, least: int | None = None) -> int:
    """Return *value*.

    Raises: TypeError: it is not an int (a bool is not one either); ValueError: it is less than *least*.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{parameter} must be an int, got {described(value)}")
    if least is not None:
        require(value >= least, parameter, f">= {least}", value)
    return value


def require_number(parameter: str, value: object, rule: str = "a number") -> float:
    """Return *value*. Raises: TypeError: it is not a number (a bool is not one either)."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{parameter} must be {rule}, got {described(value)}")
    return value


def require_seconds(parameter: str, value: object, least: float = 0.0, most: float = inf) -> float:
    """Return *value*. Raises: TypeError: it is no number; ValueError: it is NaN, or not from *least* to *most*."""
    seconds = require_number(parameter, value, "a number of seconds")
    rule = f">= {least:g} s" if most == inf else f"from {least:g} to {most:g} s"
    require(least <= seconds <= most, parameter, rule, value)
    return seconds


def require_settings(tick: object, wheel_size: object, purge_interval: object) -> None:
    """Check the settings of a purgatory; see Purgatory for their meaning.

    Raises: TypeError, ValueError: a setting has the wrong type or is out of range.
    """
    require_seconds("tick", tick, 1e-9, 1e6)
    require_int("wheel_size", wheel_size, 2)
    require_int("purge_interval", purge_interval, 0)


def require_text(parameter: str, value: object) -> None:
    """Raises: TypeError: *value* is not a str; ValueError: it cannot be encoded as UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{parameter} must be a str, got {described(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{parameter} must be text without surrogates, got {value!r}") from None


def require_name(parameter: str, value: object) -> None:
    """Check a name that labels statistics, metrics and the rows of a journal.

    Raises: TypeError: *value* is not a str; ValueError: it does not have 1 to 255 bytes of UTF-8.
    """
    require_text(parameter, value)
    size = len(str(value).encode())
    if not 1 <= size <= LONGEST_NAME:
        got = f"{size:,}; choose a shorter one" if size else "''; leave it out for a default"
        raise ValueError(f"{parameter} must have 1 to {LONGEST_NAME} bytes of UTF-8, got {got}")


def unhashable(parameter: str, key: object, exc: TypeError) -> TypeError:
    """Return the error to raise in place of *exc*, from a look-up of *key*: a clearer one if *key* is unhashable."""
    try:
        hash(key)
    except TypeError:
        return TypeError(
            f"{parameter} must be hashable, got {described(key)}; use a tuple in place of a list, dict or set"
        )
    except Exception:
        pass
    return exc


def require_hashable(parameter: str, key: object) -> None:
    """Raises: TypeError: *key* is not hashable."""
    try:
        hash(key)
    except TypeError as exc:
        raise unhashable(parameter, key, exc) from None


def require_function(parameter: str, function: object) -> None:
    """Raises: TypeError: *function* cannot be called."""
    if callable(function):
        return
    if isinstance(function, CoroutineType):
        function.close()  # else Python also warns of it
        raise TypeError(f"{parameter} must be a function, got the coroutine of one call; pass the function")
    raise TypeError(f"{parameter} must be a function, got {described(function)}")


def require_items(parameter: str, value: object, item: str) -> None:
    """Raises: TypeError: *value* is a single str, bytes or bytearray, or not iterable."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(type(value), "__iter__"):  # a class may have one
        got = described(value)
        hint = "" if value is None else f"; pass [{got}]"
        raise TypeError(f"{parameter} must be an iterable of {item}s, got {got}{hint}")


def require_methods(parameter: str, value: object, names: Iterable[str], kind: str) -> None:
    """Check that *value* is an instance with the methods *names* of a *kind*.

    Raises: TypeError: it is a class, or lacks a method.
    """
    if isinstance(value, type):
        raise TypeError(f"{parameter} must be an instance of a {kind}, got the class {value.__name__}; make one")
    for name in names:
        if not callable(getattr(value, name, None)):
            alike = get_close_matches(name, dir(value), 1)
            hint = f"; is {alike[0]} meant?" if alike and name not in alike else ""
            raise TypeError(f"{parameter} must have a method {name}(), as a {kind} has, got {described(value)}{hint}")


def require_plain_function(parameter: str, function: Callable[..., object]) -> None:
    """Raises: TypeError: *function* is no function, or an ``async def``: its coroutine would count as true."""
    require_function(parameter, function)
    if iscoroutinefunction(function):
        raise TypeError(f"{parameter} must be a plain function, not async def: it is called, and never awaited")


def require_error(exc: object) -> None:
    """Raises: TypeError: *exc* cannot be raised by an await."""
    if not isinstance(exc, Exception) or isinstance(exc, StopIteration):
        raise TypeError(f"exc must be an instance of Exception other than StopIteration, got {described(exc)}")
