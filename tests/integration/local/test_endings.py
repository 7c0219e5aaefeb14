"""How a run ends: the first cause is named, all replicas end, parameter servers last."""

from __future__ import annotations

import re
from functools import partial

from drumline.run.event import Exit
from drumline.run.state import Phase
from integration.local.test_clocks import rewrite
from scaffold.processes import is_alive
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace


def test_the_first_failure_is_named_and_not_those_that_follow(workspace: Workspace) -> None:
    # Worker 0 fails first; the others fail because of it, with other exit codes, while they are stopped.
    run = workspace.train("""
        roles:
          worker:
            replicas: 3
            run: trap 'exit 5' TERM; echo $$ >> $HERE/up; while :; do sleep 0.05; done
            first: {run: "echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exit 3"}
    """)
    workspace.wait_numbers("up", 3)
    workspace.write("go", "")
    state = run.wait_for(Phase.FAILED)
    assert (str(run.cause.replica), run.cause.exit.code) == ("worker.0", 3)
    reasons = {str(name): (each.phase, each.reason) for name, each in state.replicas.items()}
    assert reasons["worker.0"] == (Phase.FAILED, "Exited")
    assert reasons["worker.1"][1] == reasons["worker.2"][1] == "Consequence"
    said = workspace.run("logs", run.id).out
    assert re.search(rf"{run.id} .*Message: .*worker\.0.*exit code 3", said)


def test_parameter_servers_serve_until_the_last_worker_has_ended(workspace: Workspace) -> None:
    run = workspace.train("""
        roles:
          chief: {run: "until [ -e $HERE/go ]; do sleep 0.05; done"}
          worker:
            replicas: 2
            run: "trap '' TERM; echo $$ >> $HERE/deaf; until [ -e $HERE/go$DRUMLINE_INDEX ]; do sleep 0.05; done"
          ps: {replicas: 2, run: "echo $$ >> $HERE/up; exec sleep 1000"}
        timeouts: {grace: 1h}
    """)
    servers = workspace.wait_numbers("up", 2)
    workspace.wait_numbers("deaf", 2)
    for name, replica in (("go", "chief.0"), ("go0", "worker.0")):
        workspace.write(name, "")
        wait_until(partial(run.is_over, replica))
        wait_until(lambda replica=replica: run.replica_phase(replica) is Phase.FINISHED)  # type: ignore[misc]
        assert all(map(is_alive, servers))
    workspace.write("go1", "")
    run.wait_for(Phase.FINISHED)
    assert sorted(str(event.replica) for event in run.exits()[3:]) == ["ps.0", "ps.1"]


def test_parameter_servers_are_stopped_when_the_workers_finish(workspace: Workspace) -> None:
    run = workspace.train("""
        roles: {worker: {replicas: 2, run: "true"}, ps: {run: exec sleep 1000}, evaluator: {run: exec sleep 1000}}
        timeouts: {grace: 1}
    """)
    state = run.wait_for(Phase.FINISHED)
    assert {each.phase for each in state.replicas.values()} == {Phase.FINISHED}
    assert workspace.run("wait", run.id).code == 0


def test_a_critical_failure_ends_all_replicas_with_their_child_processes(workspace: Workspace) -> None:
    run = workspace.train("""
        roles:
          chief: {run: "until [ -e $HERE/go ]; do sleep 0.05; done; exit 1"}
          worker: {replicas: 3, run: "sleep 1000 & echo $! >> $HERE/up; setsid sleep 1000 & echo $! >> $HERE/up; wait"}
          ps: {run: "echo $$ >> $HERE/up; exec sleep 1000"}
        timeouts: {grace: 1}
    """)
    line = workspace.wait_numbers("up", 7)
    workspace.write("go", "")
    run.wait_for(Phase.FAILED)
    assert [pid for pid in line if is_alive(pid)] == []
    assert str(run.cause.replica) == "chief.0"


def open_in(workspace: Workspace, pid: int, *, most: int) -> int:
    """Wait until a process has at most so many open files, and return their number: some are open for a moment only."""
    return wait_until(lambda: found if (found := len(workspace.descriptors(pid))) <= most else None)


def test_attempts_leave_no_open_descriptor_in_the_supervisor(workspace: Workspace) -> None:
    workspace.write("flaky.sh", "echo $$ >> up; until [ -e go$DRUMLINE_ATTEMPT ]; do sleep 0.05; done; exit 1")
    run = workspace.train("""
        roles: {worker: {replicas: 3, run: sh flaky.sh}}
        restart: {crash: 3, backoff: {initial: 0.05, maximum: 0.05}}
    """)
    supervisor = wait_until(run.supervisor)
    fewest = 1000
    for attempt in range(4):
        workspace.wait_numbers("up", 3 * (attempt + 1))
        run.wait_started()
        wait_until(lambda: run.state.phase is Phase.RUNNING)
        fewest = open_in(workspace, supervisor, most=fewest)
        workspace.write(f"go{attempt}", "")
    run.wait_for(Phase.FAILED)


def test_a_run_that_exceeds_its_time_limit_is_ended(workspace: Workspace) -> None:
    run = workspace.train("run: exec sleep 1000\ntimeouts: {run: 1, grace: 1}")
    run.wait_for(Phase.FAILED)
    assert run.cause.reason == "TimeLimit"


def test_the_time_limit_of_a_run_continues_without_a_supervisor(workspace: Workspace) -> None:
    run = workspace.train("run: exec sleep 1000\ntimeouts: {run: 2h, grace: 1}")
    run.kill_supervisor()
    for phase in (Phase.RUNNING, Phase.FAILED):  # one hour later, and two hours later
        rewrite(run, lambda _, record: {**record, "up": record["up"] - 3600})
        assert workspace.run("supervise", run.id).code == 0
        run.wait_for(phase)
        if phase is Phase.RUNNING:
            run.kill_supervisor()
    assert run.cause.reason == "TimeLimit"


def test_replicas_of_tensorflow_are_ended_at_once_when_a_peer_fails_unless_the_spec_sets_a_grace(
    workspace: Workspace,
) -> None:
    spec = """
        framework: tensorflow
        warm: false
        roles:
          worker:
            replicas: 2
            run: trap 'exit 5' TERM; touch $HERE/deaf; while :; do sleep 0.05; done
            first: {run: "until [ -e $HERE/deaf ]; do sleep 0.05; done; exit 3"}
    """
    run = workspace.train(spec)
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.1") == Exit(signal=9)
    (workspace.project / "deaf").unlink(missing_ok=True)
    run = workspace.train(f"        timeouts: {{grace: 1h}}\n{spec}")
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.1") == Exit(code=5)
