"""Every program in the README and in docs/ runs, and prints the output shown on its page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

from aiopurgatory.cli import STAGES, parser_of
from examples import helpers  # type: ignore[attr-defined]

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
#: The programs run in folders of their own, and the Makefile's path to the compiled form is relative.
ENV = os.environ | {
    "PYTHONPATH": os.pathsep.join(
        os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
    )
}


def has_python(page: Path) -> bool:
    return re.search(r"^(```|<!-- )python", page.read_text("utf-8"), re.MULTILINE) is not None


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.timeout(120)  # a page may run pytest on its files
@pytest.mark.parametrize("page", [page for page in PAGES if has_python(page)], ids=name)
def test_programs_of_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    # A reader of the README copies one block; a page of docs/ is read from its beginning.
    apart = ["--apart"] if page == README else []
    command = [sys.executable, "-W", "error", str(ROOT / "tests" / "run_page.py"), str(page), *apart]
    done = subprocess.run(command, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_drawings_are_those_of_their_program(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "drawings.py"), str(tmp_path)], timeout=30, check=True)
    drawings = list(tmp_path.iterdir())
    assert len(drawings) == 5
    for drawing in drawings:
        assert drawing.read_text() == (ROOT / "docs" / "assets" / drawing.name).read_text()


def test_readme_has_its_programs_and_its_size() -> None:
    text = README.read_text("utf-8")
    assert text.count("```python") == 3
    assert 120 <= text.count("\n") <= 175
    assert text[: text.index("```python")].count("\n") < 15
    code = "".join(re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE))
    assert max(map(len, code.splitlines())) <= 84  # GitHub cuts off what is longer


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_of_page_is_at_most_92_columns_wide(page: Path) -> None:
    shown = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
    blocks = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```\n", shown, re.DOTALL | re.MULTILINE)
    lines = [line for language, code in blocks if language != "text" for line in code.splitlines()]
    assert [line for line in lines if len(line) > 92] == []  # a reader has to scroll to what is beyond


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "index.md"], ids=name)
def test_front_page_asks_which_wait_and_begins_simply(page: Path) -> None:
    text = page.read_text("utf-8")
    opening = next(part for part in text.split("\n\n") if not part.startswith("#"))
    assert "Kafka" not in opening  # nobody needs to know it
    assert "on_undelivered" not in text.split("```python")[1].partition("```")[0]
    (section,) = re.findall(r"^## Which wait do I use\?\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert "state-or-events.svg" in section
    for wait in ("wait_for()", "follow()", "LongPollRoute", "EventRoute"):
        assert wait in section


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_route_of_page_leaves_other_methods_to_others(page: Path) -> None:
    shown = re.sub(r"^<!-- python\n.*?^-->$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for line in re.findall(r"^.*[ [(]Route\(.*(?:LongPollRoute|EventRoute)\(.*$", shown, re.MULTILINE):
        assert 'methods=["GET"]' in line


def poll(url: str, version: str, wait: int = 20) -> httpx.Response:
    return httpx.get(url, headers={"If-None-Match": version, "Prefer": f"wait={wait}"}, timeout=30)


@contextmanager
def served(page: Path, title: str, folder: Path) -> Iterator[str]:
    """The address of the app that *page* has under *title*, served by uvicorn."""
    (folder / title).write_text(helpers.block(str(page), title))
    with helpers.served(folder, f"{Path(title).stem}:app", ENV) as address:
        yield address


def test_long_poll_of_readme_is_answered_by_a_post(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads, served(README, "app.py", tmp_path) as address:
        url = f"{address}/orders/berlin"
        first = httpx.get(url, timeout=30)
        assert (first.status_code, first.json(), first.headers["etag"]) == (200, [], '"0"')
        waiting = threads.submit(poll, url, '"0"')
        time.sleep(0.5)
        assert not waiting.done()
        assert httpx.post(url, params={"item": "apples"}).status_code == 200
        answer = waiting.result(timeout=10)
        assert (answer.status_code, answer.json(), answer.headers["etag"]) == (200, ["apples"], '"1"')
        assert poll(url, '"1"', wait=1).status_code == 304
        assert [poll(url, unknown).status_code for unknown in ['"2"', '"x"', '"-1"']] == [410] * 3


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_commands_of_tutorial_print_what_it_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial.md"
    (console,) = re.findall(r"^```console\n(\$ uvicorn .*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    server, *commands = [line[2:] for line in console.splitlines() if line.startswith("$ ")]
    assert server == "uvicorn chat:app &"
    said = [line for line in console.splitlines() if not line.startswith(("$ ", "..."))]
    with served(page, "chat.py", tmp_path) as address:
        httpx.get(f"{address}/rooms/tea", timeout=30)  # it is up
        script = "\n".join(commands).replace("localhost:8000", address).replace("&", "& sleep 0.5") + "\nwait"
        script = script.replace("curl ", "curl --silent --no-buffer ")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    for line in said:
        assert line in done.stdout.replace("\r", "")
    assert done.stdout.count("HTTP/1.1 200 OK") == console.count("HTTP/1.1 200 OK") == 2


COMMANDS = [
    found
    for page in PAGES
    for text in [page.read_text("utf-8").replace("\\\n", "")]
    for found in re.findall(r"^\$ aiopurgatory pipeline (\w+) ([^#\n]*)", text, re.MULTILINE)
]


@pytest.mark.parametrize(("stage", "arguments"), COMMANDS)
def test_command_of_page_is_understood(stage: str, arguments: str) -> None:
    assert parser_of(stage).parse_args(shlex.split(arguments)).out


def test_commands_of_pages_name_each_stage() -> None:
    assert {stage for stage, _ in COMMANDS} == STAGES.keys()


#: Files that name targets of the Makefile.
NAMING = [*PAGES, *sorted((ROOT / ".github").rglob("*.yml")), *sorted(ROOT.glob(".github/*.md"))]
NAMING += [ROOT / ".pre-commit-config.yaml"]


@pytest.mark.parametrize("page", NAMING, ids=name)
def test_page_names_make_targets_that_exist(page: Path) -> None:
    patterns = re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|\$ |run: |entry: |&& |sudo )make ([a-z][a-z-]+)", page.read_text("utf-8")):
        assert any(fnmatch(target, each.replace("%", "*")) for each in patterns), f"{page.name} names make {target}"


PACKAGE = ROOT / "src" / "aiopurgatory"
PACKAGES = [path.name for path in PACKAGE.iterdir() if path.is_dir()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_names_files_that_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"(?:`|\bpython )((?:examples|benchmarks|tests|src)/[\w./-]+)", text)
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    modules = re.findall(rf"`((?:{'|'.join(PACKAGES)})/\w+\.py)`", text)
    of_package = (PACKAGE / each for each in modules)
    for path in [*(ROOT / each for each in named), *(page.parent / each for each in linked), *of_package]:
        assert path.exists(), f"{page.name} names {path}"
