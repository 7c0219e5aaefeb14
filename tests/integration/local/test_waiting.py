"""The queue: real runs that need more GPUs than are free, and processes that are killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from drumline.engine.local.claim_registry import ClaimRegistry
from drumline.run.event import AttemptDelayed, AttemptPlaced, RoomFound
from drumline.run.state import Phase
from drumline.runtime.keeper import boot_id
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

# Each run records its start, and continues until the test ends it.
RUN = "run: echo $$ >> $HERE/up-$DRUMLINE_RUN; until [ -e $HERE/end-$DRUMLINE_RUN ]; do sleep 0.05; done"


@pytest.fixture
def machine(workspace: Workspace) -> Workspace:
    """Return a workspace on a machine with four simulated GPUs."""
    workspace.env["DRUMLINE_GPUS"] = "0,1,2,3"
    return workspace


def train(workspace: Workspace, gpus: int | None, *words: str, more: str = "") -> Run:
    asked = "" if gpus is None else f"resources: {{gpus: {gpus}}}\n"
    return workspace.train(f"{RUN}\n{asked}{more}", *words)


def wait_up(run: Run) -> None:
    run.wait_for(Phase.RUNNING)
    run.workspace.wait_numbers(f"up-{run.id}", 1)


def end(run: Run) -> None:
    run.workspace.write(f"end-{run.id}", "")
    run.wait_for(Phase.FINISHED)


def wait_waiting(run: Run, message: str) -> None:
    wait_until(lambda: run.state.waits == message)
    assert run.state.phase is Phase.PENDING


def claims(workspace: Workspace) -> dict[str, bool]:
    """Return each entry of the claim registry, and whether its request is granted."""
    entries = ClaimRegistry(workspace.home, boot=boot_id(), run="0").entries()
    return {run: entry.holds for run, entry in entries.items()}


def is_over(run: Run) -> bool:
    return run.state.phase.is_final


def registry_files(workspace: Workspace) -> list[str]:
    return [name for _, folders, files in os.walk(workspace.home / "ledger") for name in (*folders, *files)]


def test_a_run_that_does_not_fit_shows_what_it_waits_for_and_starts_when_resources_are_free(machine: Workspace) -> None:
    first = train(machine, 3)
    wait_up(first)
    second = train(machine, 2)
    words = "waits for 2 of 4 gpus, run 1 has 3"
    wait_waiting(second, words)
    listing = machine.run("status").out.splitlines()
    assert listing[1].split()[:3] == ["2", "bad-day", "PENDING"]
    assert listing[1].endswith(words)
    assert f"State:      PENDING: {words}\n" in machine.run("status", "2").out
    assert [row["message"] for row in json.loads(machine.run("status", "-o", "json").out)] == [words, ""]
    assert f"2 {words}\n" in machine.run("events", "2").out
    assert not (second.path / "attempts").exists()
    end(first)
    wait_up(second)
    assert second.state.waits == ""
    assert machine.run("status", "2").out.splitlines()[1] == "State:      RUNNING"
    end(second)
    assert [type(event) for event in second.events[1:4]] == [AttemptDelayed, RoomFound, AttemptPlaced]
    assert f"--> PENDING ({words})" in machine.run("logs", "2").out
    assert registry_files(machine) == ["lock"]


def test_queued_runs_start_in_order_and_a_small_run_does_not_pass_a_large_one(machine: Workspace) -> None:
    first, big = train(machine, 3), train(machine, 4)
    small = train(machine, 1)
    wait_waiting(small, "waits behind run 2, which waits for 4 gpus")
    harmless = train(machine, 0)
    wait_up(harmless)
    end(first)
    wait_up(big)
    wait_waiting(small, "waits for 1 of 4 gpus, run 2 has 4")
    end(big)
    wait_up(small)
    end(small)
    end(harmless)


@pytest.mark.cold("Python needs more than this memory")
def test_a_later_run_starts_first_if_it_delays_no_other_run(machine: Workspace) -> None:
    first = train(machine, 3)
    wait_up(first)
    waiting = train(machine, 2)
    wait_waiting(waiting, "waits for 2 of 4 gpus, run 1 has 3")
    other = machine.train(f"{RUN}\nresources: {{cpus: 0.01, memory: 1MiB}}")
    wait_up(other)
    for run in (other, first, waiting):
        end(run)


def test_a_queued_run_is_killed_at_once(machine: Workspace) -> None:
    first = train(machine, 4)
    second, third = train(machine, 4), train(machine, 4)
    wait_waiting(third, "waits for 4 of 4 gpus, run 1 has 4; behind run 2")
    assert machine.run("kill", second.id).out == "killed run 2; none of its processes is left\n"
    assert second.state.phase is Phase.KILLED
    wait_waiting(third, "waits for 4 of 4 gpus, run 1 has 4")
    assert claims(machine) == {"1": True, "3": False}
    assert machine.run("kill", first.id, third.id).code == 0
    wait_until(lambda: registry_files(machine) == ["lock"])  # when their supervisors have left


def test_the_time_limit_of_a_run_includes_its_time_in_the_queue(machine: Workspace) -> None:
    first = train(machine, 4)
    second = train(machine, 1, more="restart: 2\ntimeouts: {run: 500ms, start: 1ms}")
    assert second.wait_for(Phase.FAILED).causes == ()
    assert second.cause.reason == "TimeLimit"
    end(first)


def test_a_killed_supervisor_of_a_queued_run_leaves_the_queue(machine: Workspace) -> None:
    first = train(machine, 4)
    second, third = train(machine, 4), train(machine, 4)
    wait_waiting(third, "waits for 4 of 4 gpus, run 1 has 4; behind run 2")
    second.kill_supervisor()
    wait_waiting(third, "waits for 4 of 4 gpus, run 1 has 4")
    assert "supervisor gone; drumline supervise 2" in machine.run("status", "2").out
    assert "waits for" not in machine.run("status", "2").out
    end(first)
    wait_up(third)
    # It keeps its position: before runs with a higher number, after those that run.
    fourth = train(machine, 1)
    assert machine.run("supervise", second.id).code == 0
    wait_waiting(second, "waits for 4 of 4 gpus, run 3 has 4")
    end(third)
    wait_up(second)
    wait_waiting(fourth, "waits for 1 of 4 gpus, run 2 has 4")
    end(second)
    wait_up(fourth)
    end(fourth)


def test_a_claim_survives_its_supervisor_while_a_replica_runs_and_ends_with_the_last(machine: Workspace) -> None:
    first = train(machine, 2, more="roles: {worker: 2}")
    first.wait_started()
    machine.wait_numbers("up-1", 2)
    second = train(machine, 1)
    wait_waiting(second, "waits for 1 of 4 gpus, run 1 has 4")
    first.kill_supervisor()
    kill_and_wait(first.pid("worker.0"))
    wait_until(lambda: first.is_over("worker.0"))
    assert claims(machine) == {"1": True, "2": False}
    machine.write("end-1", "")
    wait_up(second)
    # The supervisor can end the first run without a claim.
    assert machine.run("supervise", first.id).code == 0
    first.wait_for(Phase.FAILED)
    end(second)


def test_a_new_supervisor_keeps_the_claims_of_its_keepers(machine: Workspace) -> None:
    first = train(machine, 3, more="restart: {crash: 1}")
    wait_up(first)
    second = train(machine, 4)
    first.kill_supervisor()
    assert machine.run("supervise", first.id).code == 0
    wait_until(first.supervisor)
    kill_and_wait(first.pid("worker.0"))  # by a signal: a crash, so that the gang restarts
    wait_until(lambda: first.state.attempt == 1 and first.state.phase is Phase.RUNNING)
    assert second.log("worker.0") == b""
    assert second.state.phase is Phase.PENDING
    end(first)
    wait_up(second)
    end(second)


def test_a_supervisor_and_its_keepers_that_are_killed_leave_no_claim(machine: Workspace) -> None:
    first = train(machine, 4)
    wait_up(first)
    second = train(machine, 4)
    wait_waiting(second, "waits for 4 of 4 gpus, run 1 has 4")
    first.kill_supervisor()
    kill_and_wait(first.keeper("worker.0"))
    wait_up(second)
    assert machine.run("kill", first.id).code == 0
    assert not is_alive(machine.numbers("up-1")[0])
    end(second)


def test_a_claim_lasts_from_attempt_to_attempt(machine: Workspace) -> None:
    first = machine.train("""
        roles: {worker: 2}
        run: >
          echo "gpu $CUDA_VISIBLE_DEVICES"; until [ -e $HERE/go-$DRUMLINE_ATTEMPT ]; do sleep 0.05; done;
          exit $((1 - DRUMLINE_ATTEMPT))
        resources: {gpus: 1}
        restart: 1
    """)
    first.wait_started()
    wait_until(lambda: first.log("worker.0") and first.log("worker.1"))
    second = train(machine, 3)
    wait_waiting(second, "waits for 3 of 4 gpus, run 1 has 2")
    machine.write("go-0", "")
    wait_until(lambda: first.state.attempt == 1 and first.state.phase is Phase.RUNNING)
    assert second.state.phase is Phase.PENDING
    machine.write("go-1", "")
    first.wait_for(Phase.FINISHED)
    assert [first.log(f"worker.{number}", attempt) for attempt in (0, 1) for number in (0, 1)] == [
        b"gpu 0\n",
        b"gpu 1\n",
        b"gpu 0\n",
        b"gpu 1\n",
    ]
    wait_up(second)
    end(second)


def test_a_request_larger_than_the_machine_is_refused_with_the_numbers_without_oversubscribe(
    machine: Workspace,
) -> None:
    machine.write_spec(f"{RUN}\nroles: {{worker: 3}}\nresources: {{gpus: 2}}")
    numbers = "the run asks for 6 gpus (3 workers with 2 each), but this machine has 4"
    answer = machine.run("train", "-d")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"error: {numbers}\nhint: ask for less, or use `--oversubscribe`\n"
    for command in ("check", "render"):
        answer = machine.run(command)
        assert (answer.code, f"warning: {numbers}; `drumline train` would refuse this here\n" in answer.err) == (
            0,
            True,
        )
    first = train(machine, 3)
    wait_up(first)
    machine.write_spec(f"{RUN}\nroles: {{worker: 3}}\nresources: {{gpus: 2}}")
    answer = machine.run("train", "-d", "--oversubscribe")
    assert (answer.code, answer.out) == (0, "2\n")
    assert f"warning: {numbers}\n" in answer.err
    insisting = Run(machine, "2")
    wait_up(insisting)
    assert insisting.state.warnings == ("worker.0, worker.1 and worker.2 share 4 GPUs with other runs",)
    last = train(machine, 1)
    wait_waiting(last, "waits for 1 of 4 gpus, runs 1 and 2 have 4")
    end(insisting)
    wait_up(last)
    end(first)
    end(last)


def test_each_resource_that_exceeds_the_machine_is_refused_in_one_sentence(machine: Workspace) -> None:
    machine.write_spec(f"{RUN}\nresources: {{cpus: 9999, gpus: 5}}")
    sentence = r"the run asks for {} \(1 worker with \d+\), but this machine has [\d.]+"
    both = "; ".join(sentence.format(amount) for amount in ("9999 cpus", "5 gpus"))
    assert re.match(f"error: {both}\nhint: ", machine.run("train", "-d").err)


def test_unclaimed_gpus_are_shared_out_evenly(machine: Workspace) -> None:
    show = "run: echo ${CUDA_VISIBLE_DEVICES-unset} $TF_FORCE_GPU_ALLOW_GROWTH"

    def seen(roles: str, *, gpus: str | None = None) -> dict[str, str]:
        env = {} if gpus is None else {"DRUMLINE_GPUS": gpus}
        run = machine.train(f"{show}\nroles: {{{roles}}}", env=env)
        run.wait_for(Phase.FINISHED)
        return {str(name): run.log(str(name)).decode().strip() for name in run.state.replicas}

    assert seen("worker: 2, evaluator: 1") == {"worker.0": "0,1", "worker.1": "2,3", "evaluator.0": ""}
    assert seen("worker: 2", gpus="7") == {"worker.0": "7 true", "worker.1": "7 true"}
    assert seen("worker: 1", gpus="") == {"worker.0": "unset"}
    holder = train(machine, 3)
    wait_up(holder)
    assert seen("worker: 1") == {"worker.0": "3"}
    end(holder)
    holder = train(machine, 4)
    wait_up(holder)
    machine.write_spec(f"{show}\nroles: {{worker: 1}}")
    warning = "every GPU is claimed, so worker.0 sees none; with `resources: {gpus: 1}` a run waits for one"
    assert f"Warning: {warning}\n" in machine.run("train").out
    assert f"warning: {warning}\n" in machine.run("check").err
    assert Run(machine, "7").state.warnings == (warning,)
    end(holder)


def test_two_projects_of_a_user_wait_for_each_other(machine: Workspace) -> None:
    first = train(machine, 4)
    wait_up(first)
    other = machine.project / "other"
    other.mkdir()
    (other / "drumline.yml").write_text(f"project: other\nframework: plain\n{RUN}\nresources: {{gpus: 1}}\n")
    second = Run(machine, machine.run("train", "-d", "other/drumline.yml").out.strip())
    wait_waiting(second, "waits for 1 of 4 gpus, run 1 has 4")
    end(first)
    end(second)


def test_two_users_do_not_wait_for_each_other(machine: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other")
    other.env["DRUMLINE_GPUS"] = "0,1,2,3"
    try:
        runs = [train(each, 4) for each in (machine, other)]
        for run in runs:
            wait_up(run)
        for run in runs:
            end(run)
        other.leave()
    finally:
        other.clear()


def test_each_user_has_a_separate_claim_registry(machine: Workspace, stranger: Workspace) -> None:
    stranger.env["DRUMLINE_GPUS"] = "0,1,2,3"
    runs = [train(each, 4) for each in (machine, stranger)]
    for run in runs:
        wait_up(run)
    for run in runs:
        end(run)


def test_a_damaged_claim_registry_stops_no_run(machine: Workspace) -> None:
    folder = machine.home / "ledger" / boot_id()
    folder.mkdir(parents=True)
    for name in ("1.json", "1.holds", "7.json", "7.waits", "x"):
        (folder / name).write_bytes(b'{"v": 1, "run": "7", "holds": tr')
    first = train(machine, 4)
    wait_up(first)
    assert claims(machine) == {"1": True}
    (folder / "1.json").write_text("torn")
    second = train(machine, 4)
    wait_up(second)
    end(first)
    end(second)
    assert registry_files(machine) == ["lock"]


def test_a_deleted_claim_registry_is_created_again(machine: Workspace) -> None:
    first = train(machine, 4)
    wait_up(first)
    shutil.rmtree(machine.home / "ledger")
    second = train(machine, 4)
    wait_up(second)
    end(first)
    end(second)
    assert registry_files(machine) == ["lock"]


# Locks each of its GPUs by a folder, which only one process can create.
TAKING = """
made=
trap 'rmdir $made 2>/dev/null; exit 143' TERM
for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
    made="$made $HERE/gpu-$gpu"
    mkdir $HERE/gpu-$gpu || exit 9
done
sleep 0.0$1
rmdir $made
"""


def test_runs_that_start_and_are_killed_at_random_never_share_a_gpu_and_all_get_one(machine: Workspace) -> None:
    machine.write("take.sh", TAKING)
    chance = random.Random(7)
    runs = []
    for number in range(10):
        workers = chance.choice((1, 2))
        gpus = chance.randint(1, 4 // workers)
        command = f"run: sh $HERE/take.sh {chance.randrange(10)}"
        runs.append(machine.train(f"{command}\nroles: {{worker: {workers}}}\nresources: {{gpus: {gpus}}}"))
        if number % 3 == 2:
            machine.run("kill", chance.choice(runs).id)
    for run in runs:
        wait_until(partial(is_over, run))
        assert run.state.phase in (Phase.FINISHED, Phase.KILLED), run.log("worker.0")
    wait_until(lambda: not machine.processes())
    assert registry_files(machine) == ["lock"]
    assert not list(machine.project.glob("gpu-*"))
