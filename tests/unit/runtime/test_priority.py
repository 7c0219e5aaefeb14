"""A process lowers its priority only as far as it can raise it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.runtime import priority

# Prints the nice value and the priority of the session: before, lowered, and restored.
SCRIPT = """
import os, sys
os.setsid() if os.getsid(0) != os.getpid() else None
sys.path[:0] = [os.environ["RUNTIME"]]
import priority
def show():
    try: group = open("/proc/self/autogroup").read().split()[-1]
    except FileNotFoundError: group = "none"
    print(os.getpriority(os.PRIO_PROCESS, 0), group)
show()
restore = priority.lower_priority()
show()
restore()
show()
"""


def show(*before: str) -> list[list[str]]:
    """Return nice and the session's priority: before, lowered, and restored."""
    folder = str(Path(priority.__file__).parent)
    shown = subprocess.run(
        [*before, sys.executable, "-c", SCRIPT],
        env={**os.environ, "RUNTIME": folder},
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    return [line.split() for line in shown.stdout.splitlines()]


def test_a_privileged_process_lowers_and_restores_its_nice_value_and_its_autogroup() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can raise a priority")
    before, lowered, restored = show()
    assert lowered[0] == "19"
    assert lowered[1] in ("19", "none")
    assert restored == before


def test_a_process_without_privileges_keeps_the_nice_value_that_it_could_not_raise_again() -> None:
    drop = ("setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice", "--reuid=61000", "--clear-groups")
    words = () if os.geteuid() else drop
    if subprocess.run([*words, sys.executable, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("this Python is for its owner alone")
    before, lowered, restored = show(*words)
    assert lowered[0] == before[0]
    assert lowered[1] in ("19", "none")
    assert restored == before
