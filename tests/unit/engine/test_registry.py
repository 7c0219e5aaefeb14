"""Engines by name: drumline's own, and those of entry points of other packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine import registry
from drumline.engine.fake import FakeEngine
from drumline.engine.plugins import Plugin, find_plugins
from drumline.engine.protocol import Site
from drumline.engine.registry import engine_names, engine_options, open_engine
from drumline.errors import EngineError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which packages are imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._plugins.cache_clear()
    yield tmp_path
    registry._plugins.cache_clear()
    sys.modules.pop("moon_engine", None)


def install(folder: Path, distribution: str, entry: str, files: dict[str, str] | None = None) -> None:
    """Put what `pip` would put there for a package with this entry point."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nx = y:z\n\n[drumline.engines]\n{entry}\n\n[other]\na = b\n"
    )
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def site(folder: Path) -> Site:
    return Site(folder, folder, 1)


def test_an_entry_point_adds_an_engine(folder: Path) -> None:
    text = "from drumline.engine.fake import make_engine\n"
    install(folder, "drumline_moon", "moon = moon_engine", {"moon_engine/__init__.py": text})
    assert engine_names() == ("local", "ssh", "kubernetes", "jobset", "tfjob", "moon")
    assert isinstance(open_engine("moon", site(folder)), FakeEngine)


def test_the_error_for_an_unknown_engine_lists_the_known_ones(folder: Path) -> None:
    install(folder, "drumline_moon", "moon = moon_engine")
    with pytest.raises(EngineError, match="cannot run on `mars`") as caught:
        open_engine("mars", site(folder))
    assert caught.value.hint == "it can run on: local, ssh, kubernetes, jobset, tfjob, moon"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "ModuleNotFoundError: No module named 'moon_engine'"),
        ({"moon_engine/__init__.py": "1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"moon_engine/__init__.py": ""}, "moon_engine has no `make_engine`"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_refused_by_the_name_of_its_package(
    folder: Path, files: dict[str, str], words: str
) -> None:
    install(folder, "drumline_moon", "moon = moon_engine", files)
    with pytest.raises(EngineError) as caught:
        open_engine("moon", site(folder))
    assert caught.value.message == f"the engine `moon` of the package drumline-moon cannot be used: {words}"
    assert caught.value.hint.startswith("`pip uninstall drumline-moon`")


def test_a_spec_cannot_be_read_while_the_block_of_an_engine_is_unknown(folder: Path) -> None:
    install(folder, "drumline_moon", "moon = moon_engine", {"moon_engine/__init__.py": ""})
    with pytest.raises(EngineError, match=r"No module named 'moon_engine\.options'"):
        engine_options()


@pytest.mark.parametrize(("name", "owner"), [("moon", "drumline-moon"), ("ssh", "drumline")])
def test_the_error_for_an_engine_in_two_packages_names_both(folder: Path, name: str, owner: str) -> None:
    install(folder, "drumline_moon", "moon = moon_engine")
    install(folder, "lunar.tools", f"{name} = lunar")
    with pytest.raises(EngineError) as caught:
        engine_names()
    assert caught.value.message == f"two packages have an engine `{name}`: {owner} and lunar-tools"
    assert caught.value.hint == "`pip uninstall lunar-tools`"


@pytest.mark.parametrize("name", ["default", "Moon", "a.b", "1st", "a_b"])
def test_a_name_that_no_spec_can_have_is_refused(folder: Path, name: str) -> None:
    install(folder, "drumline_moon", f"{name} = moon_engine")
    with pytest.raises(EngineError, match=f"drumline-moon has an engine with an invalid name: `{name}`"):
        engine_names()


def test_a_built_in_engine_is_opened_even_if_a_plug_in_has_a_taken_name(folder: Path) -> None:
    install(folder, "lunar", "local = lunar")
    assert open_engine("fake", site(folder))


def test_the_first_copy_of_a_package_that_is_installed_twice_is_used(folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    for where, package in ((first, "old"), (second, "new")):
        where.mkdir()
        install(where, "drumline_moon", f"moon = {package}")
    found = find_plugins([str(second), str(first), str(second), str(folder / "nowhere")])
    assert found == [Plugin("moon", "new", "drumline-moon")]


def test_unreadable_entry_points_are_ignored(folder: Path) -> None:
    install(folder, "drumline_moon", "# moon = old\n; moon = older\nnothing\nmoon=moon_engine")
    (folder / "broken-1.dist-info").mkdir()
    (folder / "broken-1.dist-info" / "entry_points.txt").write_bytes(b"\xff[drumline.engines]\na = b")
    (folder / "empty.egg-info").mkdir()
    (folder / "empty.egg-info" / "entry_points.txt").write_text("[console_scripts]\na = b")
    assert find_plugins([str(folder)]) == [Plugin("moon", "moon_engine", "drumline-moon")]
