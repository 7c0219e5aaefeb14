"""Memory limits, enforced by the kernel: a replica that exceeds its limit fails, and no cgroup outlives its replica."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from drumline.engine.local.cgroup import (
    CgroupParent,
    NoCgroupError,
    make_group,
    members,
    own_cgroup_parent,
    remove_group,
    write,
)
from drumline.engine.local.kernel_log import LOG
from drumline.engine.local.memory_limits import MemoryLimits
from drumline.plan.types import ReplicaId
from drumline.run.event import EngineWarned, Event, Exit
from drumline.run.state import Phase
from drumline.run.traces import GROUP
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

HOG = 'python3 -c "x = bytearray(200 << 20)"'
ALL_OF_IT = "out of memory: it used 64.0 MiB, all of its limit"
CHOSEN = "killed by signal 9 (KILL) by the kernel's out-of-memory killer"
# Replicas that print their pid, wait for a signal, and then exceed their limit.
PATIENT = f"""
resources: {{memory: 64MiB}}
run: echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exec {HOG}
"""
SLEEPING = """
resources: {memory: 64MiB}
run: echo $$ >> $HERE/up; exec sleep 1000
timeouts: {grace: 1}
"""


@cache
def find_limits() -> CgroupParent | None:
    """Return the cgroup below which limits really work on this machine; None if there is none."""
    try:
        found = own_cgroup_parent()
        remove_group(make_group(found, f"drumline-test-{os.getpid()}", 1 << 30))
    except NoCgroupError:
        return None
    return found


def ground() -> CgroupParent:
    """Return the cgroup below which limits work; only for workspaces that have one."""
    found = find_limits()
    assert found
    return found


@pytest.fixture
def narrow(workspace: Workspace) -> Iterator[Workspace]:
    """Yield a workspace with working limits and check that no cgroup is left; without limits, test the warning only."""
    if find_limits() is None:
        run = workspace.train(f"run: {HOG}\nresources: {{memory: 64MiB}}")
        run.wait_for(Phase.FINISHED)
        assert [warning.startswith("memory limits are not enforced: ") for warning in warnings(run)] == [True]
        workspace.leave()
        pytest.skip("no memory cgroup can be made on this machine: only the warning about that was tested")
    try:
        yield workspace
        assert [group for run in workspace.runs() for group in groups(run)] == []
    finally:
        for group in [group for run in workspace.runs() for group in groups(run)]:
            kill_and_wait(*members(group))
            remove_group(group)


def warnings(run: Run) -> list[str]:
    """Return the warnings of the engine."""
    return [event.message for event in run.events if isinstance(event, EngineWarned)]


def groups(run: Run) -> list[Path]:
    """Return the existing cgroups of a run."""
    folder = run.path.stat()
    name = f"drumline-*-{folder.st_dev:x}-{folder.st_ino:x}"
    # Cgroups of other tests are removed meanwhile, which a glob does not tolerate.
    return sorted(Path(path) for path, _, _ in os.walk(ground().path) if Path(path).match(name))


def start(workspace: Workspace, spec: str, up: int = 1) -> Run:
    run = workspace.train(spec)
    run.wait_started()
    workspace.wait_numbers("up", up)
    return run


def go(workspace: Workspace) -> None:
    """Let waiting replicas exceed their limit."""
    (workspace.project / "go").touch()


def reason(run: Run, replica: str) -> str:
    return run.state.replicas[ReplicaId.parse(replica)].reason


def test_a_replica_that_hits_its_limit_has_failed_with_the_numbers_and_the_others_are_stopped(
    narrow: Workspace,
) -> None:
    run = narrow.train(f"""
        resources: {{memory: 64MiB}}
        roles:
          worker: {{replicas: 2, run: exec sleep 1000, first: {{run: {HOG!r}}}}}
    """)
    run.wait_for(Phase.FAILED)
    assert (run.replica_phase("worker.0"), reason(run, "worker.0")) == (Phase.FAILED, "OutOfMemory")
    assert (run.replica_phase("worker.1"), reason(run, "worker.1")) == (Phase.KILLED, "PeerFailed")
    assert (run.cause.reason, run.cause.failure) == ("OutOfMemory", "out_of_memory")
    assert f"State:      FAILED: 1.worker.0: {CHOSEN}; {ALL_OF_IT}\n" in narrow.run("status", "1").out
    card = f"┃ Run 1 failed. First replica to fail: 1.worker.0, {CHOSEN}; {ALL_OF_IT}\n"
    assert narrow.run("status", "1").out.startswith(card)
    assert f"1.worker.0 exited: {CHOSEN}; {ALL_OF_IT}\n" in narrow.run("events", "1").out


def test_within_its_limit_no_replica_is_ended(narrow: Workspace) -> None:
    run = narrow.train(f"run: {HOG}\nresources: {{memory: 1GiB}}")
    run.wait_for(Phase.FINISHED)
    assert run.exit("worker.0").message == ""
    assert warnings(run) == []


def test_a_replica_out_of_memory_is_charged_to_its_own_budget(narrow: Workspace) -> None:
    run = narrow.train(f"run: {HOG}\nresources: {{memory: 64MiB}}\nrestart: {{budget: 5, out_of_memory: 1}}")
    run.wait_for(Phase.FAILED)
    assert [[exit_.exit.out_of_memory for exit_ in run.exits(attempt)] for attempt in (0, 1, 2)] == [[True], [True], []]


def test_a_child_that_hits_the_limit_fails_its_replica(narrow: Workspace) -> None:
    run = narrow.train(f"run: {HOG} || exit 7\nresources: {{memory: 64MiB}}")
    run.wait_for(Phase.FAILED)
    assert reason(run, "worker.0") == "OutOfMemory"
    whole_group = ground().version == 2
    end = run.exit("worker.0")
    assert (end.code, end.signal, end.message) == ((None, 9, ALL_OF_IT) if whole_group else (7, None, ALL_OF_IT))


def test_a_replica_that_exits_with_0_after_a_child_ran_out_of_memory_has_finished(narrow: Workspace) -> None:
    if ground().version == 2:
        return  # with version 2 the kernel ends the whole cgroup, as the test above shows
    run = narrow.train(f"run: {HOG}; exit 0\nresources: {{memory: 64MiB}}")
    run.wait_for(Phase.FINISHED)
    end = run.exit("worker.0")
    assert (end.code, end.signal, end.message) == (0, None, ALL_OF_IT)


def test_a_child_in_a_session_of_its_own_is_limited_and_the_keeper_is_not(narrow: Workspace) -> None:
    run = start(narrow, f"{SLEEPING.replace('exec sleep', 'setsid sleep 1000 & echo $! >> $HERE/up; exec sleep')}", 2)
    (group,) = groups(run)
    assert members(group) == set(narrow.numbers("up"))
    assert narrow.run("kill", run.id).code == 0
    assert not group.exists()


def test_a_replica_out_of_memory_without_a_supervisor_is_recorded_as_such(narrow: Workspace) -> None:
    run = start(narrow, PATIENT)
    run.kill_supervisor()
    go(narrow)
    wait_until(lambda: run.is_over("worker.0"))
    assert len(groups(run)) == 1  # the supervisor of the run removes it
    assert narrow.run("supervise", run.id).code == 0
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, run.exit("worker.0").message) == ("OutOfMemory", ALL_OF_IT)


def test_a_replica_out_of_memory_without_a_keeper_is_known_from_its_cgroup(narrow: Workspace) -> None:
    run = start(narrow, PATIENT)
    run.kill_supervisor()
    kill_and_wait(run.keeper("worker.0"))
    go(narrow)
    wait_until(lambda: not is_alive(run.pid("worker.0")))
    assert narrow.run("supervise", run.id).code == 0
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, run.exit("worker.0").message) == ("OutOfMemory", f"its keeper is gone; {ALL_OF_IT}")


def test_a_killed_keeper_leaves_no_cgroup(narrow: Workspace) -> None:
    run = start(narrow, SLEEPING)
    kill_and_wait(run.keeper("worker.0"))
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, run.exit("worker.0").message) == ("ExitUnknown", "its keeper is gone")


def test_a_process_that_no_other_search_finds_is_found_in_the_cgroup(narrow: Workspace) -> None:
    # Without an environment mark, session, log or parent by which its run could be found.
    narrow.write("hide.sh", "cd /; exec env -i setsid sh -c 'echo $$ > $0; exec sleep 1000' $1 > /dev/null 2>&1")
    run = start(narrow, SLEEPING.replace("exec", "(sh hide.sh $HERE/hidden &); exec"))
    (hidden,) = narrow.wait_numbers("hidden", 1)
    run.kill_supervisor()
    kill_and_wait(run.keeper("worker.0"))
    assert is_alive(hidden)
    assert narrow.run("kill", run.id).code == 0
    assert not is_alive(hidden)


@pytest.mark.parametrize("command", ["supervise", "kill"])
def test_if_every_process_was_killed_the_next_command_removes_the_cgroup(narrow: Workspace, command: str) -> None:
    run = start(narrow, SLEEPING)
    run.kill_supervisor()
    kill_and_wait(run.keeper("worker.0"), run.pid("worker.0"))
    assert len(groups(run)) == 1
    assert narrow.run(command, run.id).code == 0
    run.wait_for(Phase.KILLED if command == "kill" else Phase.FAILED)


def test_a_supervisor_in_another_cgroup_finds_the_cgroup_of_the_run(narrow: Workspace) -> None:
    run = start(narrow, SLEEPING)
    run.kill_supervisor()
    elsewhere = make_group(ground(), f"elsewhere-{os.getpid()}", 1 << 30)
    try:
        narrow.command_prefix = ("sh", "-c", f'echo 0 > {elsewhere}/cgroup.procs && exec "$@"', "sh")
        assert narrow.run("supervise", run.id).code == 0
        assert run.supervisor() in members(elsewhere)
        assert narrow.run("kill", run.id).code == 0
        run.wait_for(Phase.KILLED)
    finally:
        wait_until(lambda: remove_group(elsewhere))


def test_a_replica_that_an_outer_cgroup_ended_is_reported_as_ended_below_its_limit(narrow: Workspace) -> None:
    if ground().version == 2:
        return  # an outer cgroup would have to be delegated to this user, too
    around = make_group(ground(), f"around-{os.getpid()}", 128 << 20)
    try:
        narrow.command_prefix = ("sh", "-c", f'echo 0 > {around}/cgroup.procs && exec "$@"', "sh")
        run = narrow.train(f"run: {HOG}\nresources: {{memory: 2GiB}}", "--oversubscribe")
        run.wait_for(Phase.FAILED)
        assert run.cause.reason == "OutOfMemory"
        assert re.fullmatch(
            r"out of memory: it used \d+\.\d MiB of its limit of 2\.0 GiB, and no more was available",
            run.exit("worker.0").message,
        )
        assert groups(run) == []
    finally:
        wait_until(lambda: remove_group(around))


def test_runs_with_the_same_number_in_two_homes_have_different_cgroups(narrow: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other")
    runs = [start(workspace, SLEEPING) for workspace in (narrow, other)]
    try:
        assert [run.id for run in runs] == ["1", "1"]
        (one,), (two,) = map(groups, runs)
        assert (members(one), members(two)) == (set(narrow.numbers("up")), set(other.numbers("up")))
        assert narrow.run("kill", "1").code == 0
        assert two.is_dir()
        assert other.run("kill", "1").code == 0
        assert not two.exists()
    finally:
        other.clear()


def test_cgroups_that_a_replica_made_inside_its_own_are_removed_with_it(narrow: Workspace) -> None:
    run = start(narrow, SLEEPING)
    (group,) = groups(run)
    below = group / "below"
    below.mkdir()
    if ground().version == 1:
        write(below / "cgroup.procs", str(run.pid("worker.0")))
        assert members(group) == set(narrow.numbers("up"))
    assert narrow.run("kill", run.id).code == 0
    assert not group.exists()


def test_the_cgroup_of_an_incarnation_that_never_started_is_made_again(narrow: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "attempts" / "0" / "worker.0"
    folder.mkdir(parents=True)
    told: list[Event] = []
    made = MemoryLimits(tmp_path, told.append).make(folder, 0, 64 << 20)  # and then the supervisor was killed
    below = Path(made) / "below"
    below.mkdir()
    later = MemoryLimits(tmp_path, told.append)
    assert later.make(folder, 0, 64 << 20) == made
    assert not below.exists()
    later.clear(folder)
    assert not Path(made).exists()
    assert (told, list(folder.iterdir())) == ([], [])


def test_a_cgroup_with_another_name_is_not_removed(narrow: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "attempts" / "0" / "worker.0"
    folder.mkdir(parents=True)
    others = make_group(ground(), f"others-{os.getpid()}", 1 << 30)
    try:
        (folder / GROUP).write_text(str(others))  # as in a copied home
        limits = MemoryLimits(tmp_path, lambda event: None)
        limits.clear(folder)
        assert (limits.group(folder), others.is_dir()) == (None, True)
    finally:
        remove_group(others)


def test_no_cgroup_is_recorded_for_a_replica_without_a_limit(narrow: Workspace) -> None:
    run = start(narrow, "run: echo $$ >> $HERE/up; exec sleep 1000")
    assert groups(run) == []
    assert not (run.trace_dir("worker.0") / GROUP).exists()
    assert narrow.run("kill", run.id).code == 0


def test_a_run_that_may_make_no_cgroup_has_one_warning_per_attempt_and_trains(stranger: Workspace) -> None:
    run = stranger.train(f"""
        resources: {{memory: 64MiB}}
        roles: {{worker: 2}}
        run: {HOG}; test "$DRUMLINE_ATTEMPT" = 1 || exit 3
        restart: 1
    """)
    run.wait_for(Phase.FINISHED)
    told = [event for event in run.events if isinstance(event, EngineWarned)]
    assert [event.attempt for event in told] == [0, 1]
    assert told[0].message.startswith("memory limits are not enforced: ")
    assert f"Warning:    {told[0].message}\n" in stranger.run("status", run.id).out
    assert f"1 warning: {told[0].message}\n" in stranger.run("events", run.id).out
    assert not list(run.path.glob(f"attempts/*/*/{GROUP}"))


def test_a_replica_killed_by_a_cgroup_around_the_whole_run_is_found_in_the_kernel_log(workspace: Workspace) -> None:
    found = find_limits()
    if found is None:
        pytest.skip("this machine lets us make no memory cgroup")
    # All processes of the run are in it; the kernel chooses the one with most memory.
    group = make_group(found, f"drumline-test-around-{os.getpid()}", 160 << 20)
    try:
        workspace.command_prefix = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        run = workspace.train(f"run: {HOG}\nwarm: false")
        run.wait_for(Phase.FAILED)
        if killed_for_memory_is_secret():
            assert run.cause.exit == Exit(signal=9)
        else:
            message = "out of memory: it has no limit of its own, but a larger cgroup has one"
            assert run.cause.exit == Exit(signal=9, message=message, out_of_memory=True)
            assert (run.cause.reason, run.cause.failure) == ("OutOfMemory", "out_of_memory")
    finally:
        workspace.clear()
        wait_until(lambda: not members(group))
        remove_group(group)


def killed_for_memory_is_secret() -> bool:
    """Return whether the kernel's log is not readable here, or has pids of another namespace."""
    try:
        os.close(os.open(LOG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return True
    return os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"  # noqa: PTH115
