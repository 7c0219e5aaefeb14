"""A script sees the same effects of the import of a package warm and cold."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.workspace import Workspace
from warm.test_processes import make_environment, notes

SPEC = "run: {python} train.py\nroles: {{worker: 2}}\nwarm: {{import: [package]}}"
THREAD = """
import threading
THREAD = threading.Thread(target=threading.Event().wait, daemon=True)
THREAD.start()
"""


@pytest.mark.parametrize(
    ("package", "reason"),
    [
        (f"{THREAD}DRAWN = THREAD.is_alive", "importing it starts a thread, which a fork would not have"),
        (
            "import random\nclass Own(random.Random):\n    def seed(self, *_): super().seed()\nDRAWN = Own().random",
            "importing it leaves a Own with an unknown seed",
        ),
    ],
)
def test_packages_with_state_that_forks_would_share_start_replicas_cold(
    workspace: Workspace, tmp_path: Path, package: str, reason: str
) -> None:
    python, _ = make_environment(tmp_path, package=package)
    workspace.write("train.py", "import package; print(package.DRAWN())")
    run = workspace.train(SPEC.format(python=python))
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {f"cold: {reason}"}
    assert run.log("worker.0") == b"True\n" or run.log("worker.0") != run.log("worker.1")


def test_a_random_generator_from_which_a_package_drew_is_seeded_again(workspace: Workspace, tmp_path: Path) -> None:
    package = "import random\nIT = random.Random()\nIT.random()\nDRAWN = IT.random"
    python, _ = make_environment(tmp_path, package=package)
    workspace.write("train.py", "import package; print(package.DRAWN())")
    run = workspace.train(SPEC.format(python=python))
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"warm"}
    assert run.log("worker.0") != run.log("worker.1")


def test_objects_of_a_package_are_freed_at_the_end_of_each_replica(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "book"
    python, _ = make_environment(tmp_path, package=f"class Book:\n    file = open({str(file)!r}, 'a')\n")
    workspace.write("train.py", "import package; package.Book.file.write('a line\\n')")
    run = workspace.train(SPEC.format(python=python))
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"warm"}
    assert file.read_text() == "a line\n" * 2
