"""No path and no link leads out of a folder."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.project.beneath import Beneath, OutsideError, split, stays_beneath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a link to a folder beside it, in which is a file."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("good")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder").mkdir()
    (root / "folder/file").write_text("inside")
    return root


def outside_is_untouched(root: Path) -> bool:
    outside = root.parent / "outside"
    return [each.name for each in outside.iterdir()] == ["file"] and (outside / "file").read_text() == "good"


@pytest.mark.parametrize("path", ["", ".", "..", "/", "/etc", "a/..", "../a", "a//b", "a/", "a\0b", "\ud800"])
def test_a_path_that_is_absolute_has_dots_or_an_empty_name_is_refused(root: Path, path: str) -> None:
    with pytest.raises(OutsideError):
        split(path)
    with Beneath(root) as folder, pytest.raises(OutsideError):
        folder.remove_tree(path)


def test_no_operation_follows_a_link(root: Path) -> None:
    with Beneath(root) as folder:
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(NotADirectoryError, match=r"root/link/file"):
                folder.open("link/file", flags)
        with pytest.raises(OSError, match="link"):
            folder.open("link", os.O_RDONLY)
        with pytest.raises(NotADirectoryError):
            folder.make_folder("link/new")
        with pytest.raises(NotADirectoryError):
            folder.make_link("link/new", "file")
        with pytest.raises(NotADirectoryError):
            folder.move("folder/file", folder, "link/file")
        with pytest.raises(NotADirectoryError):
            folder.move("link/file", folder, "folder/file")
        folder.remove("link/file")
        folder.remove_tree("link/file")
        assert folder.lstat("link/file") is None
        assert folder.readlink("link/file") is None
        assert {path for path, _ in folder.walk()} == {"link", "folder", "folder/file"}
        assert list(folder.walk("link")) == []
    assert outside_is_untouched(root)


def test_a_link_itself_is_replaced_moved_and_removed(root: Path) -> None:
    with Beneath(root) as folder:
        folder.make_folder("link")
        assert (root / "link").is_dir()
        assert not (root / "link").is_symlink()
        folder.make_link("other", "folder/file")
        folder.move("other", folder, "link")  # a folder makes room for it
        assert (root / "link").read_text() == "inside"
        folder.remove_tree("link")
        assert not (root / "link").is_symlink()
        folder.remove("missing")
        folder.remove("folder")  # it is not empty
        assert (root / "folder/file").exists()
        folder.remove_tree("folder")
        assert not (root / "folder").exists()
    assert outside_is_untouched(root)


def test_only_regular_files_are_opened_and_none_is_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, Beneath(root) as folder:
        listening.bind(str(root / "socket"))
        for path in ("pipe", "socket", "folder"):
            with pytest.raises(OSError, match=path):
                folder.open(path, os.O_RDONLY)


def test_parent_folders_are_made_and_files_in_their_place_are_kept(root: Path) -> None:
    with Beneath(root) as folder:
        folder.make_folder("a/b/c")
        folder.make_folder("a/b/c")
        assert (root / "a/b/c").is_dir()
        with pytest.raises(NotADirectoryError):
            folder.make_folder("folder/file/c")
        folder.make_folder("folder/file")
        assert (root / "folder/file").is_dir()


@pytest.mark.parametrize(
    ("path", "target", "stays"),
    [
        ("a", "b", True),
        ("a", "b/c", True),
        ("d/a", "../b", True),
        ("d/e/a", "../../b/c", True),
        ("d/a", "..", True),
        ("a", "./b//c/", True),
        ("a", "..", False),
        ("a", "../b", False),
        ("d/a", "../../b", False),
        ("d/a", "x/../../..", False),
        ("d/a", "x/..", False),
        ("d/a", ".././..", False),
        ("a", "/etc", False),
        ("a", "", False),
        ("a", "b\0", False),
        ("a", "\ud800", False),
    ],
)
def test_a_link_is_kept_only_if_its_parent_steps_come_first_and_stay_in_the_folder(
    path: str, target: str, stays: bool
) -> None:
    assert stays_beneath(path, target) is stays


names = st.sampled_from(["a", "b", "c"])
targets = st.lists(st.sampled_from(["a", "b", "c", "..", "..", "."]), min_size=1, max_size=6).map("/".join)


@given(st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), targets, max_size=6))
def test_links_that_are_kept_never_lead_out_together_with_any_others(links: dict[str, str]) -> None:

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "x/y/root")
        root.mkdir(parents=True)
        with Beneath(root) as folder:
            for path, target in sorted(links.items()):
                try:
                    if "/" in path:
                        folder.make_folder(path.rpartition("/")[0])
                    if stays_beneath(path, target):
                        folder.make_link(path, target)
                except (FileExistsError, NotADirectoryError):
                    continue
            found = [path for path, _ in folder.walk()]
        for path in found:
            assert f"{os.path.realpath(root / path)}/".startswith(f"{os.path.realpath(root)}/")
