"""All processes that a replica starts end with it: those that ignore TERM, are detached, or remain."""

from __future__ import annotations

import os
import time

from drumline.run.state import Phase
from scaffold.processes import is_alive
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

STUBBORN = """
run: trap 'echo $$ >> $HERE/asked' TERM; echo $$ >> $HERE/up; while :; do sleep 0.05; done
timeouts: {{grace: {grace}}}
"""


def test_a_replica_that_ignores_term_is_killed_after_the_grace(workspace: Workspace) -> None:
    run = workspace.train(STUBBORN.format(grace=2))
    workspace.wait_numbers("up", 1)
    began = time.monotonic()
    assert workspace.run("kill", run.id).out == f"killed run {run.id}; none of its processes is left\n"
    assert time.monotonic() - began >= 2
    assert workspace.exists("asked")
    assert (run.exit("worker.0").signal, run.replica_phase("worker.0")) == (9, Phase.KILLED)


def test_kill_with_force_ends_replicas_without_a_grace(workspace: Workspace) -> None:
    run = workspace.train(STUBBORN.format(grace="1h"))
    workspace.wait_numbers("up", 1)
    assert workspace.run("kill", "--force", run.id).code == 0
    assert not workspace.exists("asked")
    assert run.exit("worker.0").signal == 9


def test_kill_with_force_ends_the_grace_of_an_earlier_kill(workspace: Workspace) -> None:
    run = workspace.train(STUBBORN.format(grace="1h"))
    workspace.wait_numbers("up", 1)
    gentle = workspace.command("kill", run.id)
    workspace.wait_numbers("asked", 1)
    assert workspace.run("kill", "--force", run.id).code == 0
    assert gentle.communicate(timeout=PATIENCE_SECONDS)[0] == f"killed run {run.id}; none of its processes is left\n"


def test_a_replica_can_save_during_the_grace(workspace: Workspace) -> None:
    run = workspace.train("run: trap 'echo saved; exit 0' TERM; echo $$ >> $HERE/up; while :; do sleep 0.05; done")
    workspace.wait_numbers("up", 1)
    assert workspace.run("kill", run.id).code == 0
    assert b"saved\n" in run.log("worker.0")


def test_a_replica_that_is_stopped_by_sigstop_can_be_ended(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ >> $HERE/up; kill -STOP $$\ntimeouts: {grace: 1h}")
    workspace.wait_numbers("up", 1)
    assert workspace.run("kill", run.id).code == 0


def test_a_grandchild_with_an_open_log_does_not_delay_the_end_of_the_run(workspace: Workspace) -> None:
    run = workspace.train("run: (echo begun; exec sleep 1000) & echo $! > $HERE/up")
    run.wait_for(Phase.FINISHED)
    assert not is_alive(workspace.numbers("up")[0])
    assert run.exit("worker.0").code == 0


def test_a_child_in_a_session_of_its_own_ends_with_its_replica(workspace: Workspace) -> None:
    run = workspace.train("run: setsid sh -c 'echo $$ > $HERE/up; exec sleep 1000' & until [ -s $HERE/up ]; do :; done")
    run.wait_for(Phase.FINISHED)
    assert not is_alive(workspace.numbers("up")[0])


def test_a_daemon_with_an_empty_environment_ends_with_its_replica(workspace: Workspace) -> None:
    workspace.write("daemon.py", DAEMON)
    run = workspace.train("run: python daemon.py; until [ -s $HERE/up ]; do sleep 0.05; done")
    run.wait_for(Phase.FINISHED)
    assert not is_alive(workspace.numbers("up")[0])


def test_a_daemon_with_an_empty_environment_is_killed_with_the_run(workspace: Workspace) -> None:
    workspace.write("daemon.py", DAEMON)
    run = workspace.train("run: python daemon.py; exec sleep 1000")
    (daemon,) = workspace.wait_numbers("up", 1)
    assert workspace.run("kill", run.id).code == 0
    assert not is_alive(daemon)


DAEMON = """
import os, signal
here = os.environ["HERE"]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        with open(here + "/up", "w") as file:
            file.write(f"{os.getpid()}\\n")
        os.chdir("/")
        os.execve("/bin/sleep", ["sleep", "1000"], {})
"""


def test_the_child_of_a_replica_that_forks_and_exits_is_ended(workspace: Workspace) -> None:
    run = workspace.train("run: sh -c 'trap \"\" TERM; echo $$ > $HERE/up; exec sleep 1000' & exit 3")
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.0").code == 3
    assert not any(map(is_alive, workspace.numbers("up")))


def test_leftover_processes_of_a_replica_get_term_before_they_are_killed(workspace: Workspace) -> None:
    workspace.write("child.sh", "trap 'echo tidied; exit 0' TERM; echo $$ > up; while :; do sleep 0.05; done")
    run = workspace.train("run: sh child.sh & until [ -e up ]; do sleep 0.05; done")
    run.wait_for(Phase.FINISHED)
    assert b"tidied\n" in run.log("worker.0")


def test_a_replica_that_forks_continuously_is_ended(workspace: Workspace) -> None:
    workspace.write("bomb.sh", "trap '' TERM; echo $$ >> up; while :; do sleep 0.2 & sleep 0.05; done")
    run = workspace.train("run: for i in 1 2 3 4; do setsid sh bomb.sh & done; wait\ntimeouts: {grace: 1}")
    workspace.wait_numbers("up", 4)
    assert workspace.run("kill", run.id).code == 0
    assert not any(map(is_alive, workspace.numbers("up")))


def test_a_supervisor_holds_no_descriptor_of_the_process_that_launched_it(workspace: Workspace) -> None:
    workspace.write_spec("run: echo $$ > $HERE/up; exec sleep 1000")
    reader, writer = os.pipe()
    command = workspace.command("train", "-d", pass_fds=[writer])
    os.close(writer)
    number, _ = command.communicate(timeout=PATIENCE_SECONDS)
    workspace.wait_numbers("up", 1)
    assert os.read(reader, 1) == b""  # no process has the other end open any more
    os.close(reader)
    run = Run(workspace, number.strip())
    for pid in (wait_until(run.supervisor), run.keeper("worker.0")):
        assert workspace.working_folder(pid) == "/"
    assert workspace.run("kill", run.id).code == 0
