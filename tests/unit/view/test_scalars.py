"""The replica that has written each of TensorBoard's files."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.progress import Progress
from drumline.store.scalars import find_event_files
from drumline.view.incarnation import IncarnationTraces
from drumline.view.progress import read_all_progress
from drumline.view.scalars import read_written

WRITTEN = Path(__file__).parents[1] / "run" / "scalars"
CHIEF, OTHER = ReplicaId("worker", 0), ReplicaId("worker", 1)
NOW = time.time()
DEAD = 4_000_001  # no machine has a process with this pid


def incarnation(
    run: Path, replica: ReplicaId, pid: int, *, started: float = NOW - 100, ended: float | None = None
) -> IncarnationTraces:
    folder = run / "attempts" / "0" / str(replica)
    folder.mkdir(parents=True)
    (folder / "keeper").write_text(json.dumps({"keeper": 1}) + "\n" + json.dumps({"pid": pid, "ticks": 7}) + "\n")
    return IncarnationTraces(folder, started, ended)


def write(output: Path, folder: str, pid: int | None, *, at: float = NOW, kind: str = "script") -> Path:
    name = f"events.out.tfevents.{int(at)}.host" + ("" if pid is None else f".{pid}.0.v2")
    path = output / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((WRITTEN / kind).read_bytes())
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "4"


def rounded(progress: Progress) -> Progress:
    return progress.replace(loss=progress.loss and round(progress.loss, 3))


def plain(progress: Progress) -> Progress:
    return rounded(progress).replace(rate=None, is_latest=False)


def progress_of(output: Path, *several: tuple[ReplicaId, IncarnationTraces]) -> dict[ReplicaId, Progress]:
    return {name: rounded(found) for name, (found, _) in read_written(str(output), dict(several), CHIEF).items()}


STEP_290 = Progress(step=290, loss=0.033, is_latest=True)
EPOCH_3 = Progress(epoch=3, loss=0.167, is_latest=True)


def test_a_file_belongs_to_the_replica_with_the_pid_in_its_name(run: Path) -> None:
    write(run / "output", "logs", 12)
    write(run / "output", "logs/train", 11, kind="keras")
    write(run / "output", "logs/validation", 11, kind="script")  # of no training
    several = (CHIEF, incarnation(run, CHIEF, 11)), (OTHER, incarnation(run, OTHER, 12))
    assert progress_of(run / "output", *several) == {CHIEF: EPOCH_3, OTHER: STEP_290}


def test_a_file_of_a_process_that_a_replica_started_belongs_to_the_replica(run: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=False) as child:
        write(run.parent, "elsewhere", child.pid)
        mine = incarnation(run, OTHER, os.getsid(0))
        assert progress_of(run.parent / "elsewhere", (OTHER, mine)) == {OTHER: STEP_290}
        child.kill()


@pytest.mark.parametrize("pid", [None, DEAD])
def test_a_file_of_an_ended_process_in_the_runs_folder_belongs_to_the_chief(run: Path, pid: int | None) -> None:
    write(run / "output", "model", pid, kind="estimator")
    chief = incarnation(run, CHIEF, 11)
    assert progress_of(run / "output", (CHIEF, chief))[CHIEF].step == 4
    write(run / "output", "model", DEAD + 1)  # with a second ended process, neither can be the chief for certain
    assert progress_of(run / "output", (CHIEF, chief)) == {}


def test_a_file_of_a_running_process_of_no_replica_is_ignored(run: Path) -> None:
    write(run / "output", "model", os.getpid())
    assert progress_of(run / "output", (CHIEF, incarnation(run, CHIEF, DEAD))) == {}


def test_in_a_shared_folder_only_files_with_the_pid_of_a_replica_are_used(run: Path) -> None:
    write(run.parent / "shared", "model", DEAD)
    assert progress_of(run.parent / "shared", (CHIEF, incarnation(run, CHIEF, 11))) == {}


def test_files_from_before_or_after_an_incarnation_are_ignored(run: Path) -> None:
    write(run / "output", "a", 11, at=NOW - 500)
    write(run / "output", "b", None, at=NOW - 500)
    write(run / "output", "c", 11, at=NOW)
    assert progress_of(run / "output", (CHIEF, incarnation(run, CHIEF, 11, ended=NOW - 50))) == {}


def test_a_log_takes_precedence_over_files_and_files_add_a_missing_loss(run: Path) -> None:
    write(run / "output", "logs", 11)
    write(run / "output", "logs", 12)
    several = {CHIEF: incarnation(run, CHIEF, 11), OTHER: incarnation(run, OTHER, 12)}
    (several[CHIEF].folder / "log").write_text("Epoch 2/3\n")
    (several[OTHER].folder / "log").write_text("step 7 loss 0.5\n")
    found = read_all_progress(several, str(run / "output"), CHIEF, NOW)
    assert plain(found[CHIEF].progress) == Progress(2, 3, loss=0.033)
    assert plain(found[OTHER].progress) == Progress(step=7, loss=0.5)


def test_the_search_for_event_files_is_limited(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"a{number:02}").mkdir()
    write(tmp_path, "a00/b", 11)
    assert len(find_event_files(tmp_path)) == 1
    assert find_event_files(tmp_path, most=20) == []
    assert find_event_files(tmp_path / "gone") == []


def test_files_that_cannot_be_read_are_ignored(run: Path) -> None:
    write(run / "output", "logs", 11).write_bytes(b"\0" * 5000)
    broken = write(run / "output", "other", 11)
    broken.unlink()
    broken.symlink_to(run / "gone")
    assert progress_of(run / "output", (CHIEF, incarnation(run, CHIEF, 11))) == {}
