"""Folders, links in their paths and files are refused if other users could have changed them."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from drumline.errors import EngineError
from drumline.runtime.private import make_folder
from drumline.store import trust
from drumline.store.home import cache_of, check_run, home_of
from scaffold.past_runs import finished, write_run

OTHER = 61_234
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def refused(path: Path, variable: str = "DRUMLINE_HOME") -> str:
    """Return the reason for which a folder is refused."""
    with pytest.raises(EngineError) as error:
        trust.require_trusted(str(path), variable)
    assert error.value.hint.startswith(f"set {variable} to a folder that only you can write, or `chmod go-w` this one")
    head, _, reason = error.value.message.partition(": ")
    assert head == f"the folder {path} is not used, since others could have changed it"
    return reason


def accepted(path: Path) -> bool:
    trust.require_trusted(str(path), "DRUMLINE_HOME")
    return True


def test_a_folder_of_this_user_and_a_missing_folder_are_accepted(tmp_path: Path) -> None:
    assert accepted(tmp_path)
    assert accepted(tmp_path / "a" / "b")


@pytest.mark.parametrize("mode", [0o777, 0o722, 0o720, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if mode & 0o022 == 0o020 and os.geteuid() == 0:
        os.chown(home, 0, OTHER)  # a group that is not this user's alone
    home.chmod(mode)
    assert refused(home) == f"{home} can be written by others (mode {mode:04o})"


def test_a_parent_that_others_can_write_is_refused_unless_it_has_the_sticky_bit(tmp_path: Path) -> None:
    parent = tmp_path / "shared"
    parent.mkdir()
    parent.chmod(0o777)
    for home in (parent / "home", parent / "missing" / "home"):
        assert refused(home) == f"{parent} can be written by others (mode 0777)"
    parent.chmod(0o1777)
    assert accepted(parent / "home")


@root_only
def test_a_folder_of_another_user_is_refused_even_for_root(tmp_path: Path) -> None:
    parent = tmp_path / "theirs"
    (parent / "home").mkdir(parents=True)
    os.chown(parent / "home", OTHER, OTHER)
    assert refused(parent / "home") == f"{parent}/home belongs to user {OTHER}"
    os.chown(parent, OTHER, OTHER)
    os.chown(parent / "home", 0, 0)  # the owner of the parent can replace it
    assert refused(parent / "home") == f"{parent} belongs to user {OTHER}"


@root_only
def test_a_link_of_another_user_and_a_folder_behind_a_link_are_refused(tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    for folder in (shared, target):
        folder.mkdir()
    shared.chmod(0o1777)
    link = shared / "home"
    link.symlink_to(target)
    assert accepted(link)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert refused(link) == f"{link} belongs to user {OTHER}"
    os.chown(link, 0, 0, follow_symlinks=False)
    target.chmod(0o777)
    assert refused(link) == f"{target} can be written by others (mode 0777)"


def test_relative_links_and_dots_are_resolved_as_by_the_kernel(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    (open_to_all / "home").mkdir(parents=True)
    open_to_all.chmod(0o777)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("../open/./home")
    (tmp_path / "a" / "up").symlink_to("b")
    reason = f"{open_to_all} can be written by others (mode 0777)"
    assert refused(tmp_path / "a" / "link") == reason
    assert refused(Path(f"{tmp_path}/a/up/../../open/home")) == reason
    (tmp_path / "loop").symlink_to("loop")
    assert accepted(tmp_path / "loop" / "home")  # the kernel opens nothing there


@root_only
def test_a_private_group_may_write_but_not_with_an_access_control_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o770)
    assert accepted(home)  # root's group has no other member
    monkeypatch.setattr(trust, "_has_list", lambda path: True)
    assert refused(home) == f"{home} can be written by others (mode 0770)"


@root_only
def test_an_access_control_list_is_checked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # Tag, permissions and id of the owner, another user, the group, the mask and all others.
    entries = [(0x01, 7, -1), (0x02, 7, OTHER), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(home, "system.posix_acl_access", data)
    except OSError:
        pytest.skip("this file system has no access control lists")
    os.chown(home, 0, 0)
    assert "can be written by others" in refused(home)


@pytest.mark.parametrize(
    ("environ", "find", "variable"),
    [
        (lambda path: {"DRUMLINE_HOME": f"{path}/x"}, home_of, "DRUMLINE_HOME"),
        (lambda path: {"XDG_DATA_HOME": f"{path}/x"}, home_of, "DRUMLINE_HOME"),
        (lambda path: {"HOME": f"{path}/x"}, home_of, "DRUMLINE_HOME"),
        (lambda path: {"XDG_CACHE_HOME": f"{path}/x"}, cache_of, "XDG_CACHE_HOME"),
        (lambda path: {"HOME": f"{path}/x"}, cache_of, "XDG_CACHE_HOME"),
    ],
)
def test_folders_of_data_and_cache_are_checked_however_they_are_configured(
    tmp_path: Path,
    environ: Callable[[Path], Mapping[str, str]],
    find: Callable[[Mapping[str, str]], Path],
    variable: str,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert find(environ(tmp_path))
    with pytest.raises(EngineError, match=f"{shared} can be written by others") as error:
        find(environ(shared))
    assert error.value.hint.startswith(f"set {variable} ")


@pytest.mark.parametrize("name", ["runs", "runs/4", "runs/4/plan.json", "runs/4/launch.json", "runs/4/events.jsonl"])
def test_a_part_of_a_run_that_others_can_write_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "home", 4, finished())
    check_run(str(folder.path))
    part = tmp_path / "home" / name
    part.chmod(part.stat().st_mode | 0o002)
    with pytest.raises(EngineError, match=f"{part} can be written by others"):
        folder.plan()


@root_only
@pytest.mark.parametrize("name", ["runs", "runs/4", "runs/4/plan.json", "runs/4/launch.json", "runs/4/events.jsonl"])
def test_a_part_of_a_run_that_belongs_to_another_user_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "home", 4, finished())
    part = tmp_path / "home" / name
    os.chown(part, OTHER, OTHER)
    with pytest.raises(EngineError, match=f"{part} belongs to user {OTHER}"):
        folder.plan()


@pytest.mark.parametrize("name", ["last-run", "index.sqlite"])
def test_a_link_in_place_of_a_file_of_the_home_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / name).symlink_to("/etc/passwd")
    with pytest.raises(EngineError, match=f"{name} is a symbolic link"):
        home_of({"DRUMLINE_HOME": f"{tmp_path}/home"})


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_parents_are_created_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_folder(tmp_path / ".local" / "share" / "drumline")
        make_folder(tmp_path / ".local" / "share" / "drumline")
    finally:
        os.umask(before)
    for folder in (tmp_path / ".local", *(tmp_path / ".local").rglob("*")):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_cannot_be_made_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            make_folder(path)
