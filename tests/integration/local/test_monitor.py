"""`drumline monitor` against the kernel's own numbers and against replicas that use a known amount."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drumline.engine.local.capacity import find_memory
from drumline.run.state import Phase
from drumline.run.traces import METRICS
from drumline.runtime.keeper import descendants, now, start_ticks
from drumline.store.metrics import Sample, read_samples
from integration.local.test_disk import fill
from integration.local.test_terminal import screen
from scaffold.terminal import Terminal
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import COMMAND, Run, Workspace, mounted

MEGABYTE = 1 << 20
TICK = 1 / os.sysconf("SC_CLK_TCK")
WAITING = "run: echo up; until [ -e $HERE/go ]; do sleep 0.05; done"

# Uses so many seconds of CPU time, and prints the exact amount.
BURN = """
import os, resource, sys, time

def burn(seconds):
    while time.process_time() < seconds:
        pass

def say():
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"burnt {used.ru_utime + used.ru_stime}", flush=True)
"""


def samples(run: Run, replica: str = "worker.0") -> list[Sample]:
    return read_samples(run.trace_dir(replica) / METRICS)


def look(workspace: Workspace, *words: str) -> dict[str, Any]:
    """Return the data of `monitor --once` for a run."""
    answer = workspace.run("monitor", "--once", "-o", "json", *words)
    assert answer.code == 0, answer.err
    (run,) = json.loads(answer.out)
    assert isinstance(run, dict)
    return run


def burnt(run: Run, replica: str = "worker.0") -> float:
    lines = run.log(replica).decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("burnt"))


def test_the_cpu_time_that_a_replica_used_is_shown(workspace: Workspace) -> None:
    workspace.write("burn.py", BURN + "burn(float(sys.argv[1])); say()")
    run = workspace.train("""
        roles: {chief: {run: {argv: [python, burn.py, "1.5"]}}, worker: {run: {argv: [python, burn.py, "0.2"]}}}
    """)
    run.wait_for(Phase.FINISHED)
    (shown,) = json.loads(workspace.run("monitor", "--history", "-o", "json", run.id).out)
    for replica, name in zip(shown["replicas"], ("chief.0", "worker.0"), strict=True):
        used = burnt(run, name)
        assert used - 0.05 <= replica["cpu_seconds"] <= used + 0.5  # for the interpreter's exit
    text = workspace.run("monitor", "--history", run.id).out
    assert "1.chief.0   CPU %" in text
    assert "1.worker.0  CPU %" in text


def test_cpu_time_of_ended_children_grandchildren_and_orphans_is_counted(workspace: Workspace) -> None:
    workspace.write(
        "family.py",
        BURN
        + """
import pathlib
for kind in ("child", "grandchild", "orphan"):
    pid = os.fork()
    if pid == 0:
        if kind != "child":
            below = os.fork()
            if below:
                if kind == "grandchild":
                    os.waitpid(below, 0)
                os._exit(0)
            if kind == "orphan":
                os.setsid()
        burn(time.process_time() + 0.4)
        say()
        pathlib.Path(kind).touch()
        os._exit(0)
    os.waitpid(pid, 0)
pathlib.Path("up").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
say()
""",
    )
    run = workspace.train("run: {argv: [python, family.py]}")
    wait_until(lambda: all(workspace.exists(name) for name in ("child", "grandchild", "orphan", "up")))
    look(workspace, run.id)
    seconds = sum(sample.cpu_seconds for sample in samples(run))
    assert seconds >= 3 * (0.4 - 2 * TICK)  # all of them have ended; the kernel counts user and system time in ticks
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    total = sum(sample.cpu_seconds for sample in samples(run))
    assert burnt(run) - 0.1 <= total <= burnt(run) + 0.5


def test_memory_that_a_process_tree_shares_is_counted_once(workspace: Workspace) -> None:
    workspace.write(
        "shared.py",
        """
        import os, pathlib, time
        data = bytearray(os.urandom(1 << 20) * 200)
        for _ in range(3):
            if os.fork() == 0:
                break
        with open("pids", "a") as pids:
            pids.write(f"{os.getpid()}\\n")
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
        """,
    )
    run = workspace.train("run: {argv: [python, shared.py]}\nresources: {memory: 1GiB}")
    pids = workspace.wait_numbers("pids", 4)
    (replica,) = look(workspace, run.id)["replicas"]
    assert 200 * MEGABYTE <= replica["memory_bytes"] <= 300 * MEGABYTE  # and not 800 MiB
    assert replica["memory_total_bytes"] == 1 << 30
    kernels = sum(kernels_bytes(pid) for pid in pids)
    assert abs(replica["memory_bytes"] - kernels) <= 0.1 * kernels
    shown = workspace.run("monitor", "--once", run.id).out
    assert " 0.2 / 1.0 " in shown
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def kernels_bytes(pid: int) -> int:
    """Return the proportional set size of a process, from the kernel."""
    return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) * 1024


def test_every_replica_is_measured_separately_and_the_total_is_their_sum(workspace: Workspace) -> None:
    run = workspace.train(f"roles: {{worker: 3, ps: 1}}\n{WAITING}")
    run.wait_started()
    shown = look(workspace, run.id)
    assert [row["id"] for row in shown["replicas"]] == [
        f"1.{name}" for name in ("worker.0", "worker.1", "worker.2", "ps.0")
    ]
    assert {row["memory_total_bytes"] for row in shown["replicas"]} == {find_memory()}
    assert all(row["memory_bytes"] > 0 for row in shown["replicas"])
    assert shown["total"]["memory_bytes"] == sum(row["memory_bytes"] for row in shown["replicas"])
    if not Path("/dev/nvidiactl").exists():
        assert {row["gpu_percent"] for row in shown["replicas"]} == {None}
        assert "N/A / N/A" in workspace.run("monitor", "--once", f"{run.id}.chief").out
    assert workspace.run("kill", "--force", run.id).code == 0


def test_the_samples_of_an_incarnation_add_up_to_its_time_across_supervisors(workspace: Workspace) -> None:
    run = workspace.train(WAITING)
    run.wait_started()
    look(workspace, run.id)
    run.kill_supervisor()
    answer = workspace.run("monitor", "--once", run.id)
    assert answer.code == 0
    assert "1.worker.0" in answer.out
    assert " / " in answer.out.splitlines()[1]  # the samples so far
    assert "supervisor gone; `drumline supervise 1` starts another" in answer.err
    before = samples(run)
    assert workspace.run("supervise", run.id).code == 0
    look(workspace, run.id)
    assert len(samples(run)) > len(before)
    age = now() - (start_ticks(run.pid("worker.0")) or 0) / os.sysconf("SC_CLK_TCK")
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    lived = sum(sample.seconds for sample in samples(run))
    assert age - 0.1 <= lived  # includes the time without a supervisor
    ends = [sample.at for sample in samples(run)]
    assert ends == sorted(ends)


def test_monitor_shows_new_samples_until_the_run_is_over(workspace: Workspace) -> None:
    run = workspace.train(WAITING)
    run.wait_started()
    with opened(workspace, "monitor", run.id) as terminal:
        terminal.wait_for("CPU %")
        wait_until(lambda: len(samples(run)) >= 3)
        terminal.wait_for(f" / {find_memory() / (1 << 30):.1f}")
        workspace.write("go", "")
        assert terminal.wait() == 0
        lines = [line for line in screen(terminal.shown) if line]
        assert [line.split()[0] for line in lines] == ["ID", "1.worker.0", "run"]  # redrawn at the same place
        assert "FINISHED" in lines[1]
        assert b"Traceback" not in terminal.shown
    run.wait_for(Phase.FINISHED)


def test_ctrl_c_ends_monitor_and_not_the_run(workspace: Workspace) -> None:
    run = workspace.train(WAITING)
    run.wait_started()
    with opened(workspace, "monitor") as terminal:  # the runs of this machine
        terminal.wait_for("1.worker.0")
        terminal.press_ctrl_c()
        assert terminal.wait() == 130
        assert b"Traceback" not in terminal.shown
    assert run.state.phase is Phase.RUNNING
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


@contextmanager
def opened(workspace: Workspace, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(workspace, *words)
    try:
        yield terminal
    finally:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()


def test_a_narrow_terminal_without_colour_gets_a_narrow_table_without_colour(workspace: Workspace) -> None:
    run = workspace.train(WAITING)
    run.wait_started()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 50, 0, 0))
    done = subprocess.Popen(
        [*COMMAND, "monitor", "--once", run.id],
        cwd=workspace.project,
        env={**workspace.env, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    data = b""
    with suppress(OSError):  # no process writes any more
        while piece := os.read(master, 65536):
            data += piece
    os.close(master)
    assert done.wait(PATIENCE_SECONDS) == 0
    shown = data.decode()
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 50
    assert "MEM Used / Total" in shown
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_on_a_full_disk_only_samples_are_lost(workspace: Workspace) -> None:
    with mounted(workspace.home, "512k"):
        run = workspace.train(WAITING)
        run.wait_started()
        look(workspace, run.id)
        filler = fill(workspace.home)
        known = len(samples(run))
        look(workspace, run.id)
        assert run.state.phase is Phase.RUNNING
        filler.unlink()
        look(workspace, run.id)
        assert len(samples(run)) > known
        workspace.write("go", "")
        run.wait_for(Phase.FINISHED)
        assert run.said() == ""
        workspace.leave()
        workspace.clear()


def test_a_stopped_monitor_command_does_not_block_the_supervisor(workspace: Workspace) -> None:
    run = workspace.train(WAITING)
    run.wait_started()
    watcher = workspace.command("monitor", run.id)
    wait_until(lambda: len(samples(run)) >= 1)
    watcher.send_signal(signal.SIGSTOP)
    before = len(samples(run))
    wait_until(lambda: len(samples(run)) > before)
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    watcher.send_signal(signal.SIGCONT)
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == 0


def test_every_process_below_a_keeper_is_in_the_replicas_tree(workspace: Workspace) -> None:
    workspace.write(
        "spread.py",
        """
        import os, pathlib, time
        def stay():
            with open("pids", "a") as pids:
                pids.write(f"{os.getpid()}\\n")
            while not pathlib.Path("go").exists():
                time.sleep(0.05)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                held = bytearray(os.urandom(1 << 20) * 50)  # an orphan in a session of its own
                stay()
            os._exit(0)
        stay()
        """,
    )
    run = workspace.train("run: {argv: [python, spread.py]}")
    pids = workspace.wait_numbers("pids", 2)
    keeper = run.keeper("worker.0")
    wait_until(lambda: descendants([keeper]) == set(pids))  # the process that forked the orphan is about to exit
    (replica,) = look(workspace, run.id)["replicas"]
    assert replica["memory_bytes"] >= 50 * MEGABYTE
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_the_helper_that_prepares_the_data_is_measured_while_it_runs(workspace: Workspace) -> None:
    workspace.write(
        "make.py", BURN + "burn(0.4); say(); open('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.05)"
    )
    run = workspace.train("run: 'true'\ndata: {path: data, prepare: {argv: [python, make.py]}}")
    wait_until(lambda: workspace.exists("up"))
    assert [row["id"] for row in look(workspace, run.id)["replicas"]] == ["1.prepare", "1.worker.0"]
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert [row["id"] for row in look(workspace, run.id)["replicas"]] == ["1.worker.0"]
    assert "1.prepare   CPU %" in workspace.run("monitor", "--history", run.id).out
    assert sum(sample.cpu_seconds for sample in samples(run, "prepare")) >= burnt(run, "prepare") >= 0.4
