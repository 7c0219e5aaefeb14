"""Runs that hang: found, dumped, stopped, with the blocking replica named; and runs that only seem to hang."""

from __future__ import annotations

import json
import re

import pytest

from drumline.run.event import AttemptPlaced, GangHung, RendezvousFailed, StacksTaken
from drumline.run.state import Phase
from drumline.run.traces import STACKS
from scaffold.processes import kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

SLEEPER = """
import os, signal, time

def rest():
    time.sleep(1000)

if os.environ["DRUMLINE_INDEX"] == os.environ.get("STOPPED"):
    os.kill(os.getpid(), 19)
if "DEAF" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
rest()
"""

# Rank 0 listens and waits for the other ranks; all of them connect except one.
CALLER = """
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank = int(os.environ["RANK"])

def prepare():
    time.sleep(1000)

if rank == 0:
    server = socket.create_server(address)
    calls = [server.accept() for _ in range(2)]
if rank == 1:
    prepare()
while True:
    try:
        call = socket.create_connection(address)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
time.sleep(1000)
"""


def test_a_hung_run_is_dumped_stopped_and_charged_to_its_own_budget(workspace: Workspace) -> None:
    workspace.write("sleeper.py", SLEEPER)
    run = workspace.train("""
        roles: {worker: 2}
        run: exec python sleeper.py
        env: {STOPPED: "1"}
        restart: {hang: 1}
        timeouts: {progress: 1s, grace: 1s}
    """)
    state = run.wait_for(Phase.FAILED)
    assert state.restarts == {"hang": 1}
    assert (str(run.cause.replica), run.cause.failure, run.cause.reason) == ("worker.1", "hang", "Hung")
    assert "worker.1 is stopped" in run.cause.exit.message
    assert (run.replica_phase("worker.0"), run.replica_phase("worker.1")) == (Phase.KILLED, Phase.FAILED)
    kinds = [type(event) for event in run.events]
    assert kinds.count(GangHung) == kinds.count(StacksTaken) == 2
    for attempt in (0, 1):
        assert "rest (" in (run.trace_dir("worker.0", attempt) / STACKS).read_text()
        assert "sleeper.py:" in (run.trace_dir("worker.1", attempt) / STACKS).read_text()
    assert re.search(r"hangs: no progress for \d", workspace.run("events", run.id).out)
    assert "worker.1 is stopped" in workspace.run("status", run.id).out


def test_a_run_that_spins_after_its_steps_is_ended_if_its_spec_limits_the_time_without_a_step(
    workspace: Workspace,
) -> None:
    workspace.write(
        "spin.py",
        """
import time
for step in range(1, 31):
    print(f"step {step} loss 0.1", flush=True)
    time.sleep(0.1)
while True:
    pass
""",
    )
    run = workspace.train("run: exec python spin.py\ntimeouts: {steps: 2s, grace: 1s}")
    run.wait_for(Phase.FAILED)
    assert (run.cause.failure, run.cause.reason) == ("hang", "Hung")
    assert re.match(r"no step for \d.*, since step 30", run.cause.exit.message)


def test_a_run_that_computes_or_writes_without_output_is_not_hung(workspace: Workspace) -> None:
    workspace.write(
        "busy.py",
        """
        import os, time
        end = time.monotonic() + 3.5
        if os.environ["DRUMLINE_INDEX"] == "0":
            while time.monotonic() < end:
                pass
        else:
            time.sleep(3.5)
    """,
    )
    run = workspace.train("""
        roles: {worker: 2}
        run: python busy.py
        timeouts: {progress: 1s}
    """)
    run.wait_for(Phase.FINISHED)
    assert not [event for event in run.events if isinstance(event, GangHung)]


@pytest.mark.parametrize("network", ["shared", "private"])
def test_a_replica_that_keeps_a_gang_from_forming_is_named_with_the_address(
    workspace: Workspace, network: str, private_networks: None
) -> None:
    workspace.write("caller.py", CALLER)
    run = workspace.train(f"""
        framework: torch
        warm: false
        roles: {{worker: 3}}
        run: python caller.py
        engine: {{local: {{network: {network}}}}}
        timeouts: {{rendezvous: 1s, progress: never, grace: 1s}}
    """)
    run.wait_for(Phase.FAILED)
    assert (str(run.cause.replica), run.cause.failure) == ("worker.1", "rendezvous")
    assert run.cause.reason == "RendezvousTimeout"
    (failed,) = [event for event in run.events if isinstance(event, RendezvousFailed)]
    first = next(event.addresses[0] for event in run.events if isinstance(event, AttemptPlaced))
    assert f"worker.1 has not connected to {first}" in failed.message
    assert "prepare" in (run.trace_dir("worker.1") / STACKS).read_text()


def test_stacks_of_a_running_run_are_shown_and_it_continues(workspace: Workspace) -> None:
    workspace.write("sleeper.py", SLEEPER)
    run = workspace.train("roles: {worker: 2}\nrun: exec python sleeper.py")
    run.wait_started()
    unknown = workspace.run("stacks", f"{run.id}.worker.7")
    assert unknown.code != 0

    def shown() -> str | None:
        answer = workspace.run("stacks", f"{run.id}.worker.1")
        return answer.out if "rest (" in answer.out else None

    assert wait_until(shown).count(f"{run.id}.worker.") == 1
    wait_until(lambda: len(json.loads(workspace.run("stacks", run.id, "-o", "json").out)) == 2)
    assert run.state.phase is Phase.RUNNING
    assert not run.exits()
    assert workspace.run("kill", run.id).code == 0
    assert "rest (" in workspace.run("stacks", run.id).out  # as they were
    (run.trace_dir("worker.0") / STACKS).unlink()
    gone = workspace.run("stacks", f"{run.id}.worker.0")
    assert (gone.code, "there are no stack traces" in gone.err) == (4, True)


def test_a_supervisor_that_returns_to_a_hung_run_ends_it(workspace: Workspace) -> None:
    workspace.write("sleeper.py", SLEEPER)
    run = workspace.train("""
        run: python sleeper.py
        env: {DEAF: "1"}  # so that it runs until the end of the grace
        timeouts: {progress: 1s, grace: 3s}
    """)
    supervisor = wait_until(run.supervisor)
    wait_until(lambda: any(isinstance(event, GangHung) for event in run.events))
    kill_and_wait(supervisor)
    run.wait_alone()
    assert workspace.run("supervise", run.id).code == 0
    state = run.wait_for(Phase.FAILED)
    assert not state.stacks_due
    assert str(run.cause.replica) == "worker.0"
    assert run.cause.reason == "Hung"
