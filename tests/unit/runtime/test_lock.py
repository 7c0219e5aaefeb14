"""Locks: a held lock shows a running process, and a check does not keep others from taking it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Thread

from drumline.runtime.lock import is_locked, release_lock, take_lock


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    held = take_lock(path)
    assert held is not None
    assert path.read_text() == f"{os.getpid()}\n"
    assert is_locked(path)
    assert take_lock(path) is None
    os.close(held)
    assert not is_locked(path)


def test_a_lock_that_is_released_in_order_leaves_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = take_lock(path)
    assert held is not None
    release_lock(held)
    assert not is_locked(path)
    assert path.read_bytes() == b""


def test_taking_a_lock_waits_for_a_check_of_it_to_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    taken: list[int | None] = []
    with path.open() as checked:
        fcntl.flock(checked, fcntl.LOCK_SH)
        taker = Thread(target=lambda: taken.append(take_lock(path)))
        taker.start()
        taker.join(0.3)
        assert taken == []
    taker.join()
    (held,) = taken
    assert held is not None
    os.close(held)
