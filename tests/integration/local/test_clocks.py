"""Clocks that are set back, and machines that were restarted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from drumline.run.state import Phase
from drumline.runtime.keeper import boot_id
from drumline.store.journal import VERSION
from drumline.store.logs import MARK
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


def rewrite(run: Run, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrite a journal with other clocks."""
    records = [json.loads(line) for line in run.folder.journal_file.read_text().splitlines()]
    changed = [change(number, record) for number, record in enumerate(records)]
    run.folder.journal_file.write_text("".join(f"{json.dumps(record)}\n" for record in changed))


def leave_alone(run: Run) -> list[int]:
    """End every process of a run without a trace, as a power loss does."""
    run.kill_supervisor()
    keepers = [run.keeper(str(replica.id)) for replica in run.folder.plan().replicas]
    replicas = [run.pid(str(replica.id)) for replica in run.folder.plan().replicas]
    kill_and_wait(*keepers, *replicas)
    return replicas


def move_to_another_boot(run: Run, *, since_boot: float) -> None:
    """Rewrite all records as if they were written before the machine was restarted."""
    rewrite(run, lambda _, record: {**record, "boot": OTHER_BOOT, "up": since_boot})
    for trace in run.path.glob("attempts/*/*/keeper"):
        text = trace.read_bytes().replace(boot_id().encode(), OTHER_BOOT.encode())
        trace.write_bytes(text)


def test_a_clock_that_is_set_back_does_not_change_the_order(workspace: Workspace) -> None:
    run = workspace.train("roles: {worker: 2}\nrun: echo one; echo two; exit 0")
    run.wait_for(Phase.FINISHED)
    order = [line.rpartition("] ")[2] for line in workspace.run("logs", run.id).out.splitlines()]
    rewrite(run, lambda number, record: {**record, "at": record["at"] - 3600 * number})
    for marks in run.path.glob("attempts/*/*/marks"):
        times = enumerate(MARK.iter_unpack(marks.read_bytes()))
        marks.write_bytes(b"".join(MARK.pack(at - 7200 * number, size) for number, (at, size) in times))
    again = [line.rpartition("] ")[2] for line in workspace.run("logs", run.id).out.splitlines()]
    assert sorted(again) == sorted(order)
    assert again[0] == "--> PENDING"
    assert again[-1] == "--> FINISHED"
    for replica in ("worker.0", "worker.1"):
        own = workspace.run("logs", f"{run.id}.{replica}").out.splitlines()
        said = [line.rpartition("] ")[2] for line in own if replica in line]
        assert said == ["--> STARTING", "--> RUNNING", "one", "two", "--> FINISHED", "Exit Code: 0"]


def test_a_run_of_another_boot_is_lost(workspace: Workspace) -> None:
    run = workspace.train("roles: {worker: 2}\nrun: echo $$ >> $HERE/up; exec sleep 1000")
    workspace.wait_numbers("up", 2)
    leave_alone(run)
    move_to_another_boot(run, since_boot=10.0**9)
    assert workspace.run("supervise", run.id).code == 0
    run.wait_for(Phase.FAILED)
    assert run.cause.reason == "ExitUnknown"
    assert len(workspace.numbers("up")) == 2


def test_traces_of_another_boot_end_no_process_of_this_boot(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ >> $HERE/up; exec sleep 1000")
    workspace.wait_numbers("up", 1)
    leave_alone(run)
    bystander = workspace.train("run: echo $$ >> $HERE/bystander; exec sleep 1000")
    (innocent,) = workspace.wait_numbers("bystander", 1)
    trace = run.trace_dir("worker.0") / "keeper"
    other = bystander.trace("worker.0")
    # The pids of the lost run belong to other processes by now, as is possible after a reboot.
    lines = [{"keeper": other.keeper, "boot": OTHER_BOOT}, {"pid": other.pid, "ticks": other.ticks}]
    trace.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    move_to_another_boot(run, since_boot=10.0)
    assert workspace.run("kill", run.id).code == 0
    assert run.state.phase is Phase.KILLED
    assert is_alive(innocent)
    assert workspace.run("kill", bystander.id).code == 0


def test_a_lost_run_restarts_within_its_budget_and_its_time_limit_excludes_downtime(workspace: Workspace) -> None:
    run = workspace.train("""
        run: echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done
        restart: {lost: 1}
        timeouts: {run: 1h}
    """)
    workspace.wait_numbers("up", 1)
    leave_alone(run)
    move_to_another_boot(run, since_boot=1.0)
    workspace.write("go", "")
    assert workspace.run("supervise", run.id).code == 0
    assert run.wait_for(Phase.FINISHED).attempt == 1


def test_a_journal_with_an_incomplete_last_line_is_read_without_it_and_extended(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done")
    workspace.wait_numbers("up", 1)
    wait_until(lambda: run.state.phase is Phase.RUNNING)
    run.kill_supervisor()
    journal = run.folder.journal_file
    journal.write_bytes(journal.read_bytes()[:-20])
    assert run.state.phase is Phase.STARTING
    assert workspace.run("logs", run.id).code == 0
    workspace.write("go", "")
    assert workspace.run("supervise", run.id).code == 0
    run.wait_for(Phase.FINISHED)
    assert all(json.loads(line)["v"] == VERSION for line in journal.read_text().splitlines())


def test_a_journal_with_a_damaged_line_is_read_without_it(workspace: Workspace) -> None:
    run = workspace.train("run: echo said; exit 0")
    run.wait_for(Phase.FINISHED)
    journal = run.folder.journal_file
    first, *rest = journal.read_bytes().splitlines(keepends=True)
    noise = b'\0\0\0\0\n[1, 2]\n{"v": 1}\n{"v": 99, "event": "Later"}\n' + b"[" * 5000 + b"\n\xff\xfe\n"
    journal.write_bytes(b"".join([first, noise, *rest]))
    assert run.state.phase is Phase.FINISHED
    assert "said" in workspace.run("logs", run.id).out
