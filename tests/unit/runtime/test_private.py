"""Regular, private files are read and written; anything else in their place is refused."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import pytest

from drumline.runtime.lock import is_locked
from drumline.runtime.private import NOT_REGULAR, open_file, read_regular


def plant(path: Path, kind: str) -> socket.socket | None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("/dev/zero")
        case "socket":
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            return listener
    return None


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "socket"])
def test_a_pipe_or_folder_in_the_place_of_a_file_is_neither_read_nor_waited_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    planted = plant(path := Path("planted"), kind)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_APPEND):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            open_file(path, flags)
        assert caught.value.errno in NOT_REGULAR
    with pytest.raises(OSError) as caught:  # noqa: PT011
        read_regular(path, 100)
    assert caught.value.errno in NOT_REGULAR
    assert not is_locked(path)
    if planted:
        planted.close()


def test_an_opened_file_is_in_blocking_mode(tmp_path: Path) -> None:
    """The log is the stdout of a replica, and a program may read its flags."""
    file = open_file(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(file)
