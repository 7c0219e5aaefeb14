"""Stores that older versions have written: what is shown of them stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.cli import run as drumline
from stores.shown import ENV, STORES, Call, runs_of, show_list, show_run, unpack

VERSIONS = sorted(path.name for path in STORES.iterdir() if (path / "store.tar.gz").exists())
SHOWN = [(version, path.stem) for version in VERSIONS for path in sorted((STORES / version / "shown").glob("*.txt"))]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that a test unpacks a store into."""
    for name, value in {**ENV, "DRUMLINE_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """The command line, in this process."""

    def call(words: list[str]) -> tuple[int, str]:
        code = drumline(words)
        said = capfd.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize(("version", "name"), SHOWN)
def test_a_store_of_an_older_version_shows_what_it_showed_then(version: str, name: str, home: Path, call: Call) -> None:
    unpack(version, home)
    shown = show_list(call, home) if name == "list" else show_run(call, home, name)
    assert shown == (STORES / version / "shown" / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_run_of_a_store_is_compared(version: str, home: Path) -> None:
    unpack(version, home)
    assert sorted([*runs_of(home), "list"]) == sorted(name for each, name in SHOWN if each == version)
