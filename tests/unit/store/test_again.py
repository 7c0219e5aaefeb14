"""Whether a launch repeats the one before: only where all that has a part in a plan is as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.store import again
from drumline.store.again import asked, find_again
from drumline.store.folder import RunFolder
from drumline.store.launch import write_launch
from plans import plan_of

SPEC = "framework: plain"
TYPED = ["train", "-p", "rate=0.1"]


class Desk(NamedTuple):
    """A home, and a project in which a run was launched."""

    home: Path
    project: Path

    @property
    def before(self) -> RunFolder:
        return RunFolder(self.home / "runs" / "3")

    def launched(self, number: int = 3, *, spec: str = "drumline.yml") -> None:
        folder = RunFolder(self.home / "runs" / str(number))
        folder.path.mkdir(parents=True)
        plan = plan_of(SPEC, run=str(number))
        write_launch(folder, plan, spec=SPEC.encode(), directory=self.project, at=0.0, asked=asked(TYPED, spec))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    place = Desk(tmp_path / "home", tmp_path / "project")
    place.project.mkdir()
    (place.project / "drumline.yml").write_text(SPEC)
    monkeypatch.chdir(place.project)
    return place


def test_who_asks_again_gets_the_plan_again(desk: Desk) -> None:
    desk.launched()
    found = find_again(desk.home, TYPED)
    assert found
    assert (found.plan, found.spec, found.directory) == (desk.before.plan(), SPEC.encode(), desk.project)
    assert found.asked == asked(TYPED, "drumline.yml")


@pytest.mark.parametrize("typed", [["train"], ["train", "-p", "rate=0.2"], [*TYPED, "-d"], []])
def test_who_types_something_else_does_not(desk: Desk, typed: list[str]) -> None:
    desk.launched()
    assert find_again(desk.home, typed) is None


def test_another_spec_is_another_plan(desk: Desk) -> None:
    desk.launched()
    (desk.project / "drumline.yml").write_text(f"{SPEC} # and a word about it")
    assert find_again(desk.home, TYPED) is None
    (desk.project / "drumline.yml").unlink()
    assert find_again(desk.home, TYPED) is None


def test_another_folder_is_another_plan(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.launched()
    other = desk.project / "other"
    other.mkdir()
    (other / "drumline.yml").write_text(SPEC)
    monkeypatch.chdir(other)
    assert find_again(desk.home, TYPED) is None


def test_another_drumline_makes_a_plan_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.launched()
    monkeypatch.setattr(again, "__version__", "99.0")
    assert find_again(desk.home, TYPED) is None


def test_who_changes_drumline_sees_the_change(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "drumline"
    for part in ("cli", "plan", "spec/dialect"):
        (package / part).mkdir(parents=True)
        (package / part / "it.py").touch()
    (package / "spec" / "it.py").touch()
    monkeypatch.setattr(again, "_PACKAGE", str(package))
    desk.launched()
    assert find_again(desk.home, TYPED)
    for part in ("cli", "plan", "spec", "spec/dialect"):
        changed = package / part / "it.py"
        times = changed.stat()
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
        assert find_again(desk.home, TYPED) is None, part
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert find_again(desk.home, TYPED)


def test_only_the_newest_run_is_asked(desk: Desk) -> None:
    desk.launched(3)
    folder = RunFolder(desk.home / "runs" / "10")
    folder.path.mkdir()
    assert find_again(desk.home, TYPED) is None  # it is just being made, or was never started
    write_launch(folder, plan_of(SPEC, run="10"), spec=SPEC.encode(), directory=desk.project, at=0.0)
    assert find_again(desk.home, TYPED) is None  # whoever launched it says that more had a part in its plan


def test_nobody_has_launched_anything_yet(desk: Desk) -> None:
    assert find_again(desk.home, TYPED) is None


@pytest.mark.parametrize(
    "facts",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"asked": 7}',
        '{"asked": []}',
        '{"asked": [[], "", ""]}',
        '{"asked": [1, 2, 3, 4]}',
        '{"asked": [[], "", "\\u0000", ""]}',
    ],
)
def test_damage_is_nobodys_plan(desk: Desk, facts: str) -> None:
    desk.launched()
    desk.before.facts_file.write_text(facts)
    assert find_again(desk.home, TYPED) is None


def test_without_all_its_files_a_run_is_nobodys_plan(desk: Desk) -> None:
    for name in ("plan.json", "launch.json", "drumline.yml"):
        desk.launched()
        (desk.before.path / name).unlink()
        assert find_again(desk.home, TYPED) is None, name
        for rest in desk.before.path.iterdir():
            rest.unlink()
        desk.before.path.rmdir()


def test_a_plan_that_cannot_be_read_is_nobodys(desk: Desk) -> None:
    desk.launched()
    desk.before.plan_file.write_text(json.dumps({"v": 99}))
    assert find_again(desk.home, TYPED) is None


def test_what_can_be_read_only_once_is_never_read_twice(desk: Desk) -> None:
    os.mkfifo(desk.project / "pipe")
    assert asked(TYPED, "pipe") is None
    assert asked(TYPED, "-") is None
    desk.launched()
    (desk.project / "drumline.yml").unlink()
    os.mkfifo(desk.project / "drumline.yml")
    assert find_again(desk.home, TYPED) is None  # and nobody waits for whoever writes into it
