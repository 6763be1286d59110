"""Every program in the README runs, and prints what the README says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", README, re.DOTALL | re.MULTILINE)


def test_readme_has_programs() -> None:
    assert len(PROGRAMS) >= 2


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_readme_program_prints_what_it_says(program: str, output: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output


def test_readme_names_every_make_target_it_uses() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"(?:`|\$ )make ([a-z][a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README names make {target}"
