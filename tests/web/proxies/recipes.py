"""The programs and configurations of docs/proxies.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of *page* in *language*."""
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def recipe(language: str, number: int = 0) -> str:
    """The code block in *language*: the first on the page, or a later one."""
    return blocks("proxies.md", language)[number]


def changed(text: str, changes: dict[str, str]) -> str:
    """*text* with each key of *changes* replaced by its value; it must be there."""
    for old, new in changes.items():
        assert old in text, f"docs/proxies.md no longer has {old!r}"
        text = text.replace(old, new)
    return text
