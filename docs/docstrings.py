"""For make docs: what a page shows of a docstring that a reader of the code needs no help with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_SECTION = re.compile(r"^(Args|Raises|Returns|Cost|Source): (?=\S)", re.MULTILINE)


class Sections(griffe.Extension):
    """A section in one line gets a paragraph, with its name in bold."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _SECTION.sub(r"\n**\1:** ", obj.docstring.value)


class Inherited(griffe.Extension):
    """A method without a docstring gets its base's."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for kind in _classes(pkg):
            for name, member in kind.members.items():
                if not member.is_alias and member.docstring is None:
                    found = (base.members[name].docstring for base in kind.mro() if name in base.members)
                    member.docstring = next(filter(None, found), None)


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
        elif isinstance(member, griffe.Module):
            yield from _classes(member)
