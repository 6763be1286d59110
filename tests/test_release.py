"""Release workflows and settings agree, and the checks refuse a faulty wheel."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    return loaded(ROOT / ".ci" / "wheels.py")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_wheel(folder: Path, name: str, *files: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        for file in ("aiopurgatory/py.typed", "pytest_aiopurgatory.py", *files):
            wheel.writestr(file, "")
    return path


PURE, COMPILED = "aiopurgatory-1-py3-none-any.whl", "aiopurgatory-1-cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(("name", "files"), [(PURE, ()), (COMPILED, ("aiopurgatory/timer/timer.so",))])
def test_look_into_wheel_as_it_should_be_passes(
    wheels: ModuleType, tmp_path: Path, name: str, files: tuple[str, ...]
) -> None:
    wheels.look_into(make_wheel(tmp_path, name, *files))


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        (PURE, "tests/test_form.py", "carries tests/test_form.py"),
        (PURE, "aiopurgatory/timer/timer.c", "carries aiopurgatory/timer/timer.c"),
        (PURE, "aiopurgatory/timer/timer.so", "has 1 compiled modules"),
        (COMPILED, "aiopurgatory/more.py", "has 0 compiled modules"),
    ],
)
def test_look_into_wheel_with_a_fault_names_it(
    wheels: ModuleType, tmp_path: Path, name: str, file: str, message: str
) -> None:
    with pytest.raises(wheels.FailedError, match=re.escape(message)):
        wheels.look_into(make_wheel(tmp_path, name, file))


def test_run_failed_command_shows_its_output(wheels: ModuleType) -> None:
    with pytest.raises(wheels.FailedError, match=r"(?s)no such thing.*false' failed"):
        wheels.run("sh", "-c", "echo no such thing; false")


def test_every_python_is_tested_and_built(wheels: ModuleType) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, settings = pyproject["project"], pyproject["tool"]["cibuildwheel"]
    built = [f"cp{version.replace('.', '')}-*" for version in wheels.VERSIONS]
    assert settings["build"].split() == [*built, "cp314t-*"]  # also free-threaded
    versions = ", ".join(f'"{version}"' for version in wheels.VERSIONS)
    assert f"python: [{versions}]" in (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    assert f"VERSIONS := {' '.join(wheels.VERSIONS)}\n" in (ROOT / "Makefile").read_text("utf-8")
    named = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    assert named == list(wheels.VERSIONS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_to_a_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8"))
    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action  # a tag can be moved to other code
            assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), action


# the build


@pytest.fixture
def hatch_build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hatch_build.py, without hatchling, which is installed for a build only."""
    for name, hook in (("builders.hooks", "BuildHookInterface"), ("metadata", "MetadataHookInterface")):
        interface = ModuleType("interface")
        setattr(interface, hook, type(hook, (), {"__class_getitem__": classmethod(lambda cls, item: cls)}))
        monkeypatch.setitem(sys.modules, f"hatchling.{name}.plugin.interface", interface)
    return loaded(ROOT / "hatch_build.py")


def test_add_docstrings_without_a_place_returns_their_names(
    hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    source, c_source = Path("src/module.py"), Path("module.c")
    source.parent.mkdir()
    source.write_text('"""First."""\ndef lost() -> None:\n    """Second."""\n')
    c_source.write_text('"module", NULL, /* docstring */')
    assert hatch_build.add_docstrings([source], [c_source]) == ["module.lost"]
    assert c_source.read_text() == '"module", "First.", /* docstring */'


# the README on PyPI

BASE = "https://github.com/OWNER/NAME/blob/v1/"


def test_absolute_links_changes_relative_ones_only(hatch_build: ModuleType) -> None:
    text = "[a](docs/a.md#b) [c](#d) [e](https://e.org) [f](mailto:f@e.org)\n```python\nx[0](y)\n```\n[g](LICENSE)\n"
    assert hatch_build.absolute_links(text, "") == text
    for base in (BASE, BASE.rstrip("/")):
        assert hatch_build.absolute_links(text, base) == text.replace("docs/", f"{BASE}docs/").replace(
            "LICENSE", f"{BASE}LICENSE"
        )


def test_absolute_links_of_images_lead_to_the_picture_itself(hatch_build: ModuleType) -> None:
    text = "![a](docs/a.svg) [b](docs/a.svg) [![c](docs/c.png)](docs/c.md)"  # GitHub's "blob" is a page around it
    raw = BASE.replace("/blob/", "/raw/")
    assert (
        hatch_build.absolute_links(text, BASE)
        == f"![a]({raw}docs/a.svg) [b]({BASE}docs/a.svg) [![c]({raw}docs/c.png)]({BASE}docs/c.md)"
    )


def test_readme_on_pypi_links_to_files_that_exist(hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, metadata = hatch_build.ReadmeHook(), dict[str, dict[str, str]]()
    hook.root = str(ROOT)
    monkeypatch.setenv("README_LINKS", BASE)
    hook.update(metadata)
    assert metadata["readme"]["content-type"] == "text/markdown"
    links = re.findall(r"\]\(([^)#]+)", re.sub(r"(?ms)^```.*?^```$", "", metadata["readme"]["text"]))
    assert len(links) > 20
    for link in links:
        assert link.startswith((BASE, BASE.replace("/blob/", "/raw/")))
        assert (ROOT / link.partition("/v1/")[2]).exists(), link


def test_release_waits_for_all_tests_and_for_those_of_the_wheels() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    wheels, publish = workflow.split("  publish:\n")
    assert 'tags: ["v*"]' in wheels
    assert "uses: ./.github/workflows/wheels.yml" in wheels
    assert "id-token" not in wheels  # only the job that uploads may speak for the project
    assert "needs: [test, wheels]" in publish
    for line in ("id-token: write", "pypa/gh-action-pypi-publish@", "attestations: true", "pattern: wheels-*"):
        assert line in publish
    called = (ROOT / ".github/workflows/wheels.yml").read_text("utf-8")
    assert "workflow_call:" in called
    assert "README_LINKS:" in called
    assert "push:" not in called  # or a tag would build everything twice


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    yield loaded(ROOT / ".ci" / "rehearse.py")
    sys.modules.pop("wheels", None)


def test_notes_of_a_tag_are_its_part_of_the_changelog(rehearse: ModuleType) -> None:
    changelog = "# Changelog\n\n## 0.2.0 (2027-01-02)\n\nNew.\n\n## 0.1.0 (unreleased)\n\nThe first.\n"
    assert rehearse.notes_of(changelog, "0.2.0") == "New.\n"
    assert rehearse.notes_of(changelog, "0.1.0") == "The first.\n"
    with pytest.raises(rehearse.FailedError, match=r"nothing under '## 0\.1'"):
        rehearse.notes_of(changelog.replace("0.1.0", "0.3.0"), "0.1")
    assert rehearse.notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), rehearse.version_of(ROOT))


def test_every_extra_is_rehearsed_with_a_module_of_its_own(rehearse: ModuleType) -> None:
    assert rehearse.MODULES.keys() == set(rehearse.EXTRAS)
    assert len(set(rehearse.MODULES.values())) == len(rehearse.EXTRAS)


def test_index_in_a_folder_lists_the_files(rehearse: ModuleType, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    wheel = make_wheel(dist, PURE)
    assert rehearse.make_index(dist, tmp_path).startswith("file:///")
    page = (tmp_path / "simple" / "aiopurgatory" / "index.html").read_text()
    assert f'href="{wheel.name}"' in page
    assert (tmp_path / "simple" / "aiopurgatory" / wheel.name).exists()
