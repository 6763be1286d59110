"""Renders the advice as HTML. Knows only the Markdown that advise writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from .wording import Markup, table, text

_CODE: Final = re.compile(r"`([^`]+)`")
_BOLD: Final = re.compile(r"\*\*([^*]+)\*\*")
_CELLS: Final = re.compile(r"(?<!\\)\|")


def rendered(markdown: str) -> tuple[Markup, Markup]:
    """Return the text of *markdown* (paragraphs and lists), and its tables. Drops headings: the page has its own."""
    words, tables = [], []
    lines = [line for line in markdown.splitlines() if line.strip() and not line.startswith("#")]
    for kind, block in groupby(lines, key=_kind):
        group = list(block)
        if kind == "item":
            words.append(f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in group)}</ul>")
        elif kind == "row":
            tables.append(_table(group))
        else:
            words += [f"<p>{_inline(line)}</p>" for line in group]
    return Markup("\n".join(words)), Markup("\n".join(tables))


def _kind(line: str) -> str:
    return "item" if line.startswith("- ") else "row" if line.startswith("|") else "paragraph"


def _inline(line: str) -> Markup:
    return Markup(_BOLD.sub(r"<b>\1</b>", _CODE.sub(r"<code>\1</code>", text(line))))


def _table(lines: Sequence[str]) -> Markup:
    rows = [[cell.strip().replace(r"\|", "|") for cell in _CELLS.split(line.strip().strip("|"))] for line in lines]
    heads = rows[0]
    body = [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    whole = [(row + [""] * len(heads))[: len(heads)] for row in body]
    return table(heads, [[_inline(cell) for cell in row] for row in whole])
