"""KILL for any process, at any time: the run ends as it should, is adopted again, and no process is orphaned."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from drumline.engine.local.proc import read_stats
from drumline.plan.types import ReplicaId
from drumline.run.event import StopRequested, SupervisorReturned
from drumline.run.state import Phase
from scaffold.processes import is_alive, kill_and_wait, read_to
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

GANG = """
roles: {chief: 1, worker: 2, ps: 1}
run: echo $$ >> $HERE/up; exec sleep 1000
timeouts: {grace: 1}
"""
# A chief that ends when the file `done` exists; the others end with the file `end`, or are stopped with a long grace.
LINGERING = """
roles:
  chief: {run: "until [ -e $HERE/done ]; do sleep 0.05; done"}
  worker: {replicas: 2, run: "echo $$ >> $HERE/up; until [ -e $HERE/end ]; do sleep 0.05; done"}
  evaluator: {run: "until [ -e $HERE/end ]; do sleep 0.05; done"}
timeouts: {grace: 1h}
"""
# Replicas that ignore TERM and record it; they have to be killed.
STUBBORN = """
roles: {worker: 2}
run: trap 'echo $$ >> $HERE/asked' TERM; echo $$ >> $HERE/up; while :; do sleep 0.05; done
timeouts: {grace: 1h}
"""
# Long enough for all other steps of a test, also on a busy machine.
GRACE = "grace: 5"
FIRST_WORKER, SECOND_WORKER = ReplicaId("worker", 0), ReplicaId("worker", 1)


def start(workspace: Workspace, spec: str, up: int) -> Run:
    run = workspace.train(spec)
    run.wait_started()
    workspace.wait_numbers("up", up)
    return run


@pytest.mark.parametrize("victim", ["chief.0", "worker.1", "ps.0"])
def test_a_killed_replica_ends_the_run_and_is_named_as_the_cause(workspace: Workspace, victim: str) -> None:
    run = start(workspace, GANG, up=4)
    os.kill(run.pid(victim), signal.SIGKILL)
    state = run.wait_for(Phase.FAILED)
    assert str(run.cause.replica) == victim
    assert run.cause.exit.signal == signal.SIGKILL
    others = [each for name, each in state.replicas.items() if str(name) != victim]
    assert {(each.phase, each.reason) for each in others} == {(Phase.KILLED, "PeerFailed")}
    assert workspace.run("wait", run.id).code == 1


def test_a_killed_evaluator_does_not_end_the_training(workspace: Workspace) -> None:
    run = workspace.train("""
        roles:
          worker: {run: "until [ -e $HERE/done ]; do sleep 0.05; done"}
          evaluator: {run: exec sleep 1000}
    """)
    run.wait_started()
    os.kill(run.pid("evaluator.0"), signal.SIGKILL)
    wait_until(lambda: run.replica_phase("evaluator.0") is Phase.FAILED)
    workspace.write("done", "")
    (warning,) = run.wait_for(Phase.FINISHED).warnings
    assert warning == "evaluator.0 failed (killed by signal 9 (KILL)); the training continues without it"


def test_a_replica_that_is_killed_while_it_is_stopped_is_not_a_second_cause(workspace: Workspace) -> None:
    run = start(workspace, STUBBORN, up=2)
    asker = workspace.command("kill", run.id)
    workspace.wait_numbers("asked", 2)
    os.kill(run.pid("worker.0"), signal.SIGKILL)
    wait_until(lambda: run.replica_phase("worker.0").is_final)
    assert workspace.run("kill", "--force", run.id).code == 0
    out, _ = asker.communicate(timeout=PATIENCE_SECONDS)
    assert out == f"killed run {run.id}; none of its processes is left\n"
    assert {each.phase for each in run.state.replicas.values()} == {Phase.KILLED}


def test_a_replica_that_is_killed_after_the_run_has_succeeded_changes_nothing(workspace: Workspace) -> None:
    run = start(workspace, LINGERING, up=2)
    workspace.write("done", "")
    wait_until(lambda: run.state.lingering)
    os.kill(run.pid("worker.1"), signal.SIGKILL)
    wait_until(lambda: run.replica_phase("worker.1").is_final)
    workspace.write("end", "")
    state = run.wait_for(Phase.FINISHED)
    assert (state.replicas[SECOND_WORKER].phase, state.replicas[SECOND_WORKER].reason) == (Phase.FINISHED, "RunOver")


def test_a_replica_with_a_killed_keeper_is_ended_and_counts_as_lost(workspace: Workspace) -> None:
    run = start(workspace, GANG, up=4)
    replica = run.pid("worker.0")
    kill_and_wait(run.keeper("worker.0"))
    run.wait_for(Phase.FAILED)
    assert (run.cause.replica, run.cause.reason) == (FIRST_WORKER, "ExitUnknown")
    assert not is_alive(replica)


def test_the_whole_tree_of_a_killed_keeper_is_found(workspace: Workspace) -> None:
    workspace.write("tree.py", TREE)
    run = workspace.train("run: {argv: [python, tree.py]}\ntimeouts: {grace: 1}")
    tree = workspace.wait_numbers("tree", 4)
    assert all(map(is_alive, tree))
    kill_and_wait(run.keeper("worker.0"))
    run.wait_for(Phase.FAILED)
    assert [pid for pid in tree if is_alive(pid)] == []


# A replica, a child in its process group, a child in its own session, and a daemon with an empty environment.
TREE = """
import os, signal
def note():
    with open(os.environ["HERE"] + "/tree", "a") as file:
        file.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    note()
elif os.fork() == 0:
    os.setsid()
    note()
elif os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        note()
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2): os.dup2(null, number)
        os.chdir("/")
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
else:
    os.wait()
    note()
signal.pause()
"""


def test_a_keeper_killed_by_the_first_act_of_its_replica_leaves_no_process(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ > $HERE/up; kill -9 $PPID; exec sleep 1000")
    assert run.wait_for(Phase.FAILED).ending
    assert not is_alive(workspace.numbers("up")[0])


def test_a_keeper_killed_while_its_replica_is_stopped_leaves_the_run_killed(workspace: Workspace) -> None:
    run = start(workspace, STUBBORN, up=2)
    asker = workspace.command("kill", run.id)
    workspace.wait_numbers("asked", 2)
    os.kill(run.keeper("worker.1"), signal.SIGKILL)
    wait_until(lambda: run.replica_phase("worker.1").is_final)
    assert workspace.run("kill", "--force", run.id).code == 0
    out, _ = asker.communicate(timeout=PATIENCE_SECONDS)
    assert out == f"killed run {run.id}; none of its processes is left\n"


def test_leftover_processes_of_a_replica_are_ended_even_if_the_keeper_is_killed_while_it_ends_them(
    workspace: Workspace,
) -> None:
    # The replica has exited, and its keeper waits a second for the child to exit, which kills it when it is terminated.
    workspace.write(
        "child.sh", "trap 'echo $$ >> asked; kill -9 $KEEPER' TERM; echo $$ >> up; while :; do sleep 0.1; done"
    )
    run = workspace.train("run: KEEPER=$PPID setsid sh child.sh & until [ -e up ]; do sleep 0.05; done; exit 4")
    (child,) = workspace.wait_numbers("asked", 1)
    run.wait_for(Phase.FAILED)
    assert not is_alive(child)
    assert run.exit("worker.0").code == 4


def test_a_keeper_killed_after_success_leaves_the_run_finished(workspace: Workspace) -> None:
    run = start(workspace, LINGERING, up=2)
    workspace.write("done", "")
    wait_until(lambda: run.state.lingering)
    os.kill(run.keeper("worker.0"), signal.SIGKILL)
    wait_until(lambda: run.replica_phase("worker.0").is_final)
    workspace.write("end", "")
    run.wait_for(Phase.FINISHED)


def test_without_a_supervisor_replicas_train_and_log_and_their_exits_are_kept(workspace: Workspace) -> None:
    run = workspace.train("""
        roles:
          worker:
            replicas: 2
            run: until [ -e $HERE/go ]; do sleep 0.05; done; echo after $DRUMLINE_INDEX; exit $DRUMLINE_INDEX
    """)
    run.wait_started()
    run.kill_supervisor()
    workspace.write("go", "")
    wait_until(lambda: run.is_over("worker.0") and run.is_over("worker.1"))
    assert run.log("worker.0") == b"after 0\n"
    assert run.state.phase is Phase.RUNNING
    waiting = workspace.run("wait", run.id)
    assert waiting.code == 3
    assert f"`drumline supervise {run.id}` takes the run up again" in waiting.err

    assert workspace.run("supervise", run.id) == (0, f"started a new supervisor for run {run.id}\n", "")
    run.wait_for(Phase.FAILED)
    assert (run.exit("worker.0").code, run.exit("worker.1").code) == (0, 1)


@pytest.mark.cold("a warm replica is not started by the supervisor")
def test_a_supervisor_killed_before_all_replicas_started_is_replaced_and_the_gang_is_completed(
    workspace: Workspace,
) -> None:
    # The first replica kills the supervisor while it still starts the others.
    workspace.write_spec("""
        roles:
          worker:
            replicas: 24
            run: until [ -e $HERE/go ]; do sleep 0.05; done
            first: {run: sh assassin.sh}
    """)
    # The fork server is between the supervisor and the keeper.
    workspace.write(
        "assassin.sh",
        "read -r _ _ _ forks _ < /proc/$PPID/stat; read -r _ _ _ parent _ < /proc/$forks/stat\n"
        "kill -9 $parent; echo $parent > killed",
    )
    answer = workspace.run("train", "-d")
    workspace.wait_numbers("killed", 1)
    (run,) = workspace.runs()
    if answer.code != 0:  # it was killed before it could report its start
        assert answer.code == 3
        assert f"`drumline supervise {run.id}` tries again" in answer.err
    workspace.write("go", "")
    assert workspace.run("supervise", run.id).code == 0  # unless the supervisor is back already
    state = run.wait_for(Phase.FINISHED)
    assert {each.exit.code for each in state.replicas.values() if each.exit} == {0}
    pids = [run.pid(f"worker.{index}") for index in range(24)]
    assert len(set(pids)) == 24


def test_a_supervisor_killed_while_replicas_stop_is_replaced_and_they_still_end(
    workspace: Workspace,
) -> None:
    run = start(workspace, STUBBORN.replace("grace: 1h", GRACE), up=2)
    os.kill(wait_until(run.supervisor), signal.SIGTERM)
    workspace.wait_numbers("asked", 2)
    run.kill_supervisor()
    assert all(is_alive(pid) for pid in workspace.numbers("up"))
    assert workspace.run("supervise", run.id).code == 0
    assert run.wait_for(Phase.KILLED)


def test_a_supervisor_killed_after_success_is_replaced_and_the_run_is_a_success(workspace: Workspace) -> None:
    run = start(workspace, LINGERING.replace("grace: 1h", GRACE), up=2)
    workspace.write("done", "")
    wait_until(lambda: run.state.lingering)
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    state = run.wait_for(Phase.FINISHED)
    assert state.replicas[FIRST_WORKER].reason == "RunOver"


@pytest.mark.parametrize("words", [[], ["--force"]])
def test_kill_works_without_a_supervisor(workspace: Workspace, words: list[str]) -> None:
    run = start(workspace, GANG, up=4)
    run.kill_supervisor()
    assert workspace.run("kill", *words, run.id) == (0, f"killed run {run.id}; none of its processes is left\n", "")
    assert [pid for pid in workspace.numbers("up") if is_alive(pid)] == []
    assert run.state.phase is Phase.KILLED


def test_kill_of_a_run_with_workers_that_finished_without_a_supervisor_leaves_it_finished(
    workspace: Workspace,
) -> None:
    run = workspace.train("""
        roles:
          worker: {replicas: 2, run: "until [ -e $HERE/done ]; do sleep 0.05; done"}
          ps: {run: exec sleep 1000}
    """)
    run.wait_started()
    run.kill_supervisor()
    workspace.write("done", "")
    wait_until(lambda: run.is_over("worker.0") and run.is_over("worker.1"))
    assert workspace.run("kill", run.id) == (0, f"run {run.id} ended before it was killed: FINISHED\n", "")
    assert (run.state.phase, run.replica_phase("ps.0")) == (Phase.FINISHED, Phase.FINISHED)


def test_kill_of_a_run_with_a_worker_that_failed_without_a_supervisor_restarts_nothing(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ >> $HERE/up; until [ -e $HERE/done ]; do sleep 0.05; done; exit 3\nrestart: 3")
    run.wait_started()
    run.kill_supervisor()
    workspace.write("done", "")
    wait_until(lambda: run.is_over("worker.0"))
    assert workspace.run("kill", run.id) == (0, f"killed run {run.id}; none of its processes is left\n", "")
    assert run.cause.exit.code == 3
    assert (run.state.attempt, len(workspace.numbers("up"))) == (0, 1)


@pytest.mark.cold("a warm replica is not started by the supervisor")
def test_kill_works_if_the_supervisor_a_keeper_and_the_fork_server_were_killed_during_the_start(
    workspace: Workspace,
) -> None:
    # The first replica kills the supervisor and its keeper before other replicas have started.
    # The fork server is between the two.
    workspace.write(
        "assassin.sh",
        "read -r _ _ _ forks _ < /proc/$PPID/stat; read -r _ _ _ parent _ < /proc/$forks/stat\n"
        "kill -9 $parent $PPID; echo $$ > up; sleep 1000",
    )
    workspace.write_spec("roles: {worker: {replicas: 16, run: exec sleep 1000, first: {run: sh assassin.sh}}}")
    workspace.run("train", "-d")
    (assassin,) = workspace.wait_numbers("up", 1)
    (run,) = workspace.runs()
    assert workspace.run("kill", run.id).code == 0
    assert run.state.phase is Phase.KILLED
    assert not is_alive(assassin)


def test_kill_works_when_the_supervisor_and_all_keepers_are_gone(workspace: Workspace) -> None:
    workspace.write("family.sh", "setsid sh -c 'echo $$ >> $HERE/up; exec sleep 1000' & echo $$ >> $HERE/up; wait")
    run = start(workspace, "roles: {worker: 2}\nrun: sh family.sh", up=4)
    family = workspace.numbers("up")
    run.kill_supervisor()
    kill_and_wait(run.keeper("worker.0"), run.keeper("worker.1"))
    assert all(map(is_alive, family))
    assert workspace.run("kill", run.id).code == 0
    assert [pid for pid in family if is_alive(pid)] == []
    assert run.state.phase is Phase.KILLED


def test_a_replica_that_cleared_its_environment_is_found_when_every_process_above_it_is_gone(
    workspace: Workspace,
) -> None:
    run = start(workspace, "run: echo $$ >> $HERE/up; exec env -i sleep 1000", up=1)
    run.kill_supervisor()
    kill_and_wait(run.keeper("worker.0"))
    assert is_alive(workspace.numbers("up")[0])
    assert workspace.run("kill", run.id).code == 0
    assert not is_alive(workspace.numbers("up")[0])


def test_a_run_without_any_process_left_ends_as_lost(workspace: Workspace) -> None:
    run = start(workspace, GANG, up=4)
    run.kill_supervisor()
    keepers = [run.keeper(name) for name in ("chief.0", "worker.0", "worker.1", "ps.0")]
    kill_and_wait(*keepers, *workspace.numbers("up"))
    assert workspace.run("supervise", run.id).code == 0
    run.wait_for(Phase.FAILED)
    assert run.cause.reason == "ExitUnknown"


def test_a_new_supervisor_keeps_to_the_restart_budget(workspace: Workspace) -> None:
    run = workspace.train("""
        run: echo $$ >> $HERE/up; exec sleep 1000
        restart: 1
    """)
    for attempt in (0, 1):
        workspace.wait_numbers("up", attempt + 1)
        run.kill_supervisor()
        kill_and_wait(run.pid("worker.0", attempt))
        wait_until(partial(run.is_over, "worker.0", attempt))
        assert workspace.run("supervise", run.id).code == 0
    state = run.wait_for(Phase.FAILED)
    assert state.attempt == 1
    assert len(workspace.numbers("up")) == 2


@pytest.mark.cold("no fork server starts a warm replica")
def test_a_fork_server_that_is_killed_is_replaced_for_the_next_attempt(workspace: Workspace) -> None:
    run = workspace.train("""
        run: echo $$ >> $HERE/up; exec sleep 1000
        restart: 1
    """)
    workspace.wait_numbers("up", 1)
    fork_server = read_stats()[run.keeper("worker.0")].parent
    assert fork_server != run.supervisor()
    kill_and_wait(fork_server)
    assert is_alive(run.keeper("worker.0"))
    kill_and_wait(run.pid("worker.0", 0))
    workspace.wait_numbers("up", 2)
    assert read_stats()[run.keeper("worker.0", 1)].parent not in (fork_server, run.supervisor())
    assert workspace.run("kill", run.id).code == 0


def test_simultaneous_supervise_commands_start_one_supervisor(workspace: Workspace) -> None:
    run = start(workspace, GANG, up=4)
    run.kill_supervisor()
    commands = [workspace.command("supervise", run.id) for _ in range(6)]
    answers = [command.communicate(timeout=PATIENCE_SECONDS) for command in commands]
    assert {command.returncode for command in commands} == {0}
    assert sum("started a new supervisor for run" in out for out, _ in answers) >= 1
    wait_until(run.supervisor)
    assert [type(event) for event in run.events].count(SupervisorReturned) == 1
    assert len(workspace.numbers("up")) == 4
    assert workspace.run("kill", run.id).code == 0


def test_a_run_continues_unchanged_when_its_supervisor_is_killed_repeatedly(workspace: Workspace) -> None:
    run = start(workspace, LINGERING, up=2)
    for _ in range(4):
        run.kill_supervisor()
        assert workspace.run("supervise", run.id).code == 0
    for name in ("done", "end"):
        workspace.write(name, "")
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("up")) == 2


def test_all_ids_are_looked_up_before_any_run_is_killed(workspace: Workspace) -> None:
    run = workspace.train("run: exec sleep 1000")
    answer = workspace.run("kill", run.id, "99")
    assert answer.code == 4
    assert f"there is run {run.id}" in answer.err
    assert workspace.run("kill", run.id, f"{run.id}.worker.0").code == 2
    assert run.state.phase in (Phase.STARTING, Phase.RUNNING)
    assert workspace.run("kill", run.id, run.id).out == f"killed run {run.id}; none of its processes is left\n"
    assert workspace.run("kill", run.id) == (0, f"run {run.id} is already over: KILLED\n", "")
    assert workspace.run("wait", run.id).code == 1


def test_several_runs_are_killed_together_not_one_after_the_other(workspace: Workspace) -> None:
    spec = "run: trap '' TERM; echo $$ >> $HERE/up; until [ -e $HERE/end ]; do sleep 0.05; done\ntimeouts: {grace: 1h}"
    runs = [workspace.train(spec) for _ in range(3)]
    workspace.wait_numbers("up", 3)
    killer = workspace.command("kill", *(run.id for run in runs))
    # All runs are asked to end before any of them has ended, or can end.
    wait_until(lambda: all(any(isinstance(event, StopRequested) for event in run.events) for run in runs))
    assert not any(run.state.phase.is_final for run in runs)
    workspace.write("end", "")
    killer.communicate(timeout=PATIENCE_SECONDS)
    assert killer.returncode == 0


def test_a_run_continues_when_its_foreground_train_is_killed(workspace: Workspace) -> None:
    workspace.write_spec("run: echo begun; until [ -e $HERE/go ]; do sleep 0.05; done")
    command = workspace.command("train")
    read_to(command, "begun")
    command.kill()
    command.communicate()
    (run,) = workspace.runs()
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_foreground_train_reports_a_lost_supervisor_with_its_own_exit_code(
    workspace: Workspace,
) -> None:
    workspace.write_spec("run: echo begun; exec sleep 1000")
    command = workspace.command("train")
    read_to(command, "begun")
    (run,) = workspace.runs()
    run.kill_supervisor()
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 3
    assert "the supervisor of run 1 is gone; its replicas go on by themselves" in err
    assert workspace.run("kill", run.id).code == 0


def test_a_waiting_command_exits_with_a_failure_when_the_run_is_killed_by_another_command(
    workspace: Workspace,
) -> None:
    workspace.write_spec("run: echo begun; exec sleep 1000")
    command = workspace.command("train")
    read_to(command, "begun")
    waiting = workspace.command("wait", "1")
    assert workspace.run("kill", "1").code == 0
    out, _ = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 1
    assert out.rstrip().splitlines()[-2].endswith("--> KILLED")
    waiting.communicate(timeout=PATIENCE_SECONDS)
    assert waiting.returncode == 1
