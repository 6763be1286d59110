"""python docs/llms.py FOLDER: write llms.txt, llms-full.txt and each page as Markdown to FOLDER, for language models.

llms.txt lists the pages, in the form of https://llmstxt.org. llms-full.txt has all of them. In both, the programs that
pages include are written out, and so are the docstrings of the reference.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import griffe
from docstrings import Inherited

ROOT = Path(__file__).parents[1]
HIDDEN = re.compile(r"^<!-- python\n.*?^-->\n+|<(script|style)>.*?</\1>\n*", re.DOTALL | re.MULTILINE)
SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
NAME = re.compile(r"^::: ([\w.]+)\n(?: +\S.*\n)*", re.MULTILINE)
#: The reference is read from the sources, so that the pages can be built without what the library imports.
SOURCES = {
    name: griffe.load(name, search_paths=[ROOT / "src"], extensions=griffe.Extensions(Inherited()))
    for name in ("aiopurgatory", "pytest_aiopurgatory")
}


def sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each section of the navigation, with the titles and paths of its pages."""
    config = tomllib.loads((ROOT / ".zensical.toml").read_text("utf-8"))
    first = []
    for entry in config["project"]["nav"]:
        ((title, found),) = entry.items()
        if isinstance(found, str):
            first.append((title, found))
        else:
            if first:
                yield "Start here", first
                first = []
            yield title, [page for each in found for page in each.items()]


def snippet(found: re.Match[str]) -> str:
    path, text = found[1], (ROOT / found[1]).read_text("utf-8").rstrip()
    if not path.endswith(".svg"):
        return text
    title = re.search("<title>(.*?)</title>", text)
    return f"(A drawing: {title[1] if title else path})"


def described(name: str, found: griffe.Object, heading: str) -> str:
    kind = "async " if "async" in found.labels else ""
    docstring = "" if found.docstring is None else found.docstring.value
    return f"{heading} `{kind}{signed(name, found)}`\n\n{docstring}\n\n"


def signed(name: str, found: griffe.Object) -> str:
    """Return *name* with the parameters of a function or of a class, as they are in its source."""
    is_class = isinstance(found, griffe.Class)
    made = target_of(found.all_members["__init__"]) if is_class and "__init__" in found.all_members else found
    if not isinstance(made, griffe.Function):
        return name
    text = made.signature(name=name, return_type=not is_class)
    return re.sub(r"\((self|cls)(, )?", "(", text, count=1)


def documented(found: re.Match[str]) -> str:
    """Return the docstrings of a name of the reference, and of its public members."""
    package, _, path = found[1].partition(".")
    value = target_of(SOURCES[package][path] if path else SOURCES[package])
    name = path or package
    text = described(name, value, "##")
    for member, inner in sorted(value.all_members.items()):
        if member.startswith("_") or (inner.is_alias and value.is_module):
            continue
        inner = target_of(inner)
        if inner.is_function or "property" in inner.labels:
            text += described(f"{name}.{member}", inner, "###")
    return text


def target_of(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def markdown(path: str) -> str:
    """Return a page without markup for other programs, and with everything that it includes."""
    text = (ROOT / "docs" / path).read_text("utf-8")
    text = NAME.sub(documented, SNIPPET.sub(snippet, HIDDEN.sub("", text)))
    return text.rstrip() + "\n"


def summary(page: str) -> str:
    """Return the first sentences of *page*, without its links."""
    paragraph = next(part for part in page.split("\n\n")[1:] if part[:1].isalnum() or part.startswith("`"))
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    return " ".join(re.split(r"(?<=[.:])\s", text)[:2]).rstrip(":.") + "."


def main(folder: Path) -> None:
    index = markdown("index.md")
    title = index.partition("\n")[0]
    listed, full = f"{title}\n\n> {summary(index)}\n", ""
    for section, pages in sections():
        listed += f"\n## {section}\n\n"
        for name, path in pages:
            page = markdown(path)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(page, "utf-8")
            listed += f"- [{name}]({path}): {summary(page)}\n"
            full += page + "\n"
    (folder / "llms.txt").write_text(listed, "utf-8")
    (folder / "llms-full.txt").write_text(full, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
