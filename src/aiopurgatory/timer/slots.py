"""Slots for the interpreted form. (Fields of compiled classes are slots by themselves.) Never compiled.

A field has its default before ``__init__``, so that a constructor need not call ours. A class attribute would do for
that, but Python allows none beside a slot of the same name; and without slots, the memory of an operation depends on
which one of its class came first. So a base class has the slots, and ``__new__`` fills them.
"""

from __future__ import annotations

from typing import Any, Final

#: The default of each field.
_DEFAULTS: Final[dict[str, Any]] = {}


def fill_slots(kind: Any, holder: Any) -> None:
    """Have ``kind.__new__`` fill the slots of *holder*, its base, with the defaults that stand in *kind*.

    It also fills the slots of the bases for which this was called before. Does nothing if *kind* is compiled.
    """
    names = getattr(holder, "__slots__", ())
    if not names:
        return
    for name in names:
        _DEFAULTS[name] = getattr(kind, name)
        delattr(kind, name)
    fields = [name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ()) if name in _DEFAULTS]
    # As text: a loop over the fields takes four times as long. A frozen dataclass is refused later, by watch().
    lines = [
        "def __new__(kind, *_, **__):",
        "    op = new(kind)",
        "    try:",
        *(f"        op.{name} = {name}" for name in fields),
        "    except AttributeError:",
        *(f"        put(op, '{name}', {name})" for name in fields),
        "    return op",
    ]
    scope = _DEFAULTS | {"new": object.__new__, "put": object.__setattr__}
    exec("\n".join(lines), scope)
    kind.__new__ = scope["__new__"]
