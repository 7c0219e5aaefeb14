"""A test that fails is tried again where the machine was away meanwhile, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaffold.absence import Reading, Watch, read_kernel
from scaffold.waiting import wait_until

FALLS_TWICE = """
from pathlib import Path

def test_it(tmp_path_factory):
    tried = Path(__file__).with_name("tried")
    count = int(tried.read_text()) if tried.exists() else 0
    tried.write_text(str(count + 1))
    assert count >= {falls}, f"fell {{count}}"
"""
RUNNER = """
import sys
import pytest
from scaffold.absence import TryAgain

class Machine:
    def taken(self, since):
        return {taken}

    def await_calm(self):
        print("waited")

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", {path!r}], plugins=[TryAgain(Machine())]))
"""


@pytest.mark.parametrize(
    ("taken", "falls", "code", "tries", "closing"),
    [
        (0.9, 0, 0, 1, "1 passed"),
        (0.9, 2, 0, 3, "1 passed, 2 tried again"),
        (0.9, 3, 1, 3, "1 failed, 2 tried again"),
        (0.3, 1, 1, 1, "1 failed"),
    ],
)
def test_only_what_fell_while_others_had_the_processors_is_tried_again(
    tmp_path: Path, taken: float, falls: int, code: int, tries: int, closing: str
) -> None:
    path = tmp_path / "test_small.py"
    path.write_text(FALLS_TWICE.format(falls=falls))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER.format(taken=taken, path=str(path))],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert int((tmp_path / "tried").read_text()) == tries
    assert done.stdout.splitlines()[-1].startswith(closing)
    # Nothing of it is hidden: what it said each time is printed.
    assert [f"fell {count}" in done.stdout for count in range(3)] == [count < min(falls, tries) for count in range(3)]
    assert ("others had 90% of the processors meanwhile" in done.stdout) == (tries > 1)


def test_what_the_kernel_counts_is_read() -> None:
    text = "cpu  10 1 5 100 2 0 3 40 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert read_kernel(text, 7.0) == Reading(at=7.0, stolen=40.0, whole=161.0)


def test_a_watch_that_has_seen_nothing_says_that_nothing_was_taken(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "absent")
    watch.start()
    assert watch.taken(0.0) == 0.0
    watch.await_calm()
    watch.stop()


def test_a_watch_knows_the_worst_window_since_a_moment_and_waits_until_the_machine_is_back(tmp_path: Path) -> None:
    count = tmp_path / "stat"
    idle, stolen = 0, 0

    def pass_ticks(more_idle: int, more_stolen: int) -> None:
        nonlocal idle, stolen
        idle, stolen = idle + more_idle, stolen + more_stolen
        whole = tmp_path / "new"
        whole.write_text(f"cpu  0 0 0 {idle} 0 0 0 {stolen} 0 0\n")
        whole.rename(count)

    pass_ticks(0, 0)
    watch = Watch(count, window_seconds=0.01)
    watch.start()
    try:
        begin = time.monotonic()
        pass_ticks(20, 80)
        wait_until(lambda: watch.taken(begin) > 0)
        assert watch.taken(begin) == 0.8
        watch.await_calm()  # nothing more is taken, so it is calm
        pass_ticks(90, 10)
        wait_until(lambda: watch.taken(time.monotonic() - 0.01) < 0.8)
        assert watch.taken(begin) == 0.8
    finally:
        watch.stop()
