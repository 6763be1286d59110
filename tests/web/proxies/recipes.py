"""The programs and configurations of docs/proxies.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "proxies.md"


def recipe(language: str, number: int = 0) -> str:
    """The code block in *language*: the first on the page, or a later one."""
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return blocks[number]


def changed(text: str, changes: dict[str, str]) -> str:
    """*text* with each key of *changes* replaced by its value; it must be there."""
    for old, new in changes.items():
        assert old in text, f"{PAGE.name} no longer has {old!r}"
        text = text.replace(old, new)
    return text
