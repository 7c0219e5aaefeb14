"""`drumline train` at a terminal: Ctrl-C, closed windows, pipes that break, progress bars."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from drumline.run.state import Phase
from scaffold.terminal import Terminal
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

WAITING = "run: echo here I am; until [ -e $HERE/go ]; do sleep 0.05; done"


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()


def only_run(workspace: Workspace) -> Run:
    (run,) = workspace.runs()
    return run


def test_ctrl_c_detaches_from_the_run_and_names_the_command_that_attaches_again(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write_spec(WAITING)
    terminals.append(terminal := Terminal(workspace, "train"))
    terminal.wait_for("here I am")
    terminal.press_ctrl_c()
    terminal.wait_for("run 1 continues")
    assert terminal.wait() == 130
    assert b"`drumline logs -f 1`" in terminal.shown
    assert b"`drumline kill 1`" in terminal.shown
    assert b"Traceback" not in terminal.shown
    run = only_run(workspace)
    assert run.state.phase is Phase.RUNNING
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_second_ctrl_c_while_the_replicas_are_shown_ends_the_run(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write_spec(WAITING)
    terminals.append(terminal := Terminal(workspace, "train"))
    terminal.wait_for("here I am")
    terminal.press_ctrl_c()
    terminal.wait_for("another Ctrl-C")
    terminal.press_ctrl_c()
    assert terminal.wait() == 130
    assert b"stopping run 1" in terminal.shown
    assert only_run(workspace).state.phase is Phase.KILLED


def test_ctrl_c_ends_the_run_with_kill_on_interrupt(workspace: Workspace, terminals: list[Terminal]) -> None:
    workspace.write_spec(WAITING)
    terminals.append(terminal := Terminal(workspace, "train", "--kill-on-interrupt"))
    terminal.wait_for("here I am")
    terminal.press_ctrl_c()
    assert terminal.wait() == 130
    assert b"goes on" not in terminal.shown
    assert only_run(workspace).state.phase is Phase.KILLED


@pytest.mark.parametrize(
    "moment", ["last-run", "runs/1", "runs/1/plan.json", "runs/1/events.jsonl", "runs/1/attempts/0/worker.0/keeper"]
)
def test_ctrl_c_while_a_run_starts_detaches_and_names_the_run(workspace: Workspace, moment: str) -> None:
    workspace.write_spec(WAITING)
    command = workspace.command("train")
    wait_until((workspace.home / moment).exists)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 130
    assert "run 1 continues" in err
    assert only_run(workspace).supervisor()
    assert workspace.run("kill", "1").code == 0


def test_ctrl_c_before_a_run_is_created_starts_none(workspace: Workspace) -> None:
    os.mkfifo(workspace.project / "drumline.yml")
    command = workspace.command("train")
    writer = os.open(workspace.project / "drumline.yml", os.O_WRONLY)  # returns when the command reads
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    os.close(writer)
    assert (command.returncode, err.strip()) == (130, "")
    assert workspace.runs() == []


def test_a_closed_terminal_window_does_not_end_the_run(workspace: Workspace, terminals: list[Terminal]) -> None:
    workspace.write_spec(WAITING)
    terminals.append(terminal := Terminal(workspace, "train"))
    terminal.wait_for("here I am")
    terminal.close()  # the kernel hangs up on every process in its session
    terminal.process.wait(timeout=PATIENCE_SECONDS)
    run = only_run(workspace)
    assert run.supervisor()
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_terminal_that_hangs_up_while_the_run_starts_does_not_end_it(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write_spec(WAITING)
    terminals.append(terminal := Terminal(workspace, "train"))
    terminal.wait_for("drumline: run 1")
    os.killpg(terminal.process.pid, signal.SIGHUP)
    terminal.wait()
    workspace.write("go", "")
    only_run(workspace).wait_for(Phase.FINISHED)


def test_a_closed_output_pipe_ends_train_and_not_the_run(workspace: Workspace) -> None:
    workspace.write_spec("run: i=0; until [ -e $HERE/go ]; do echo $i; i=$((i + 1)); done")
    command = workspace.command("train")
    assert command.stdout
    command.stdout.readline()
    command.stdout.close()
    assert command.wait(timeout=PATIENCE_SECONDS) == 141
    assert command.stderr
    assert command.stderr.read() == "drumline: run 1 (bad-day): 1 worker on local\n"
    command.stderr.close()
    run = only_run(workspace)
    run.wait_for(Phase.RUNNING)  # the pipe may have been closed before the first replica started
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_progress_bar_is_redrawn_in_one_line_and_stays_in_its_last_state(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write(
        "bar.py",
        """
        import pathlib, time
        for percent in range(0, 101, 20):
            print(f"\\r{percent:3}% of the epoch", end="", flush=True)
            while not pathlib.Path(f"go{percent}").exists():
                time.sleep(0.01)
        print()
        """,
    )
    workspace.write_spec("run: {argv: [python, bar.py]}")
    terminals.append(terminal := Terminal(workspace, "train"))
    for percent in range(0, 101, 20):
        terminal.wait_for(f"{percent}% of the epoch")
        workspace.write(f"go{percent}", "")
    assert terminal.wait() == 0
    lines = screen(terminal.shown)
    assert [line for line in lines if "% of the epoch" in line] == [
        line for line in lines if "100% of the epoch" in line
    ]
    assert sum("100% of the epoch" in line for line in lines) == 1


STEPS = """
import pathlib, time
for step in range(1, 4):
    print(f"Epoch [1/2], Step [{step}/4], Loss: {1 / step:.2f}", flush=True)
    while not pathlib.Path(f"go{step}").exists():
        time.sleep(0.01)
"""


def is_summed_up(terminal: Terminal, words: str) -> bool:
    return screen(terminal.shown)[-2:-1] != [] and screen(terminal.shown)[-2].startswith(words)


def test_the_last_line_of_the_terminal_shows_the_progress_of_the_training(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write("steps.py", STEPS)
    workspace.write_spec("run: {argv: [python, steps.py]}")
    terminals.append(terminal := Terminal(workspace, "train"))
    for step, loss in enumerate(("1", "0.5", "0.33"), 1):
        terminal.wait_for(f"run 1: epoch 1/2, step {step}/4, loss {loss}")
        terminal.wait_until(partial(is_summed_up, terminal, f"run 1: epoch 1/2, step {step}/4"))
        workspace.write(f"go{step}", "")
    assert terminal.wait() == 0
    left = screen(terminal.shown)
    assert not [line for line in left if line.startswith("run 1:")]  # none of it remains
    assert [line[-10:] for line in left if "Loss" in line] == ["Loss: 1.00", "Loss: 0.50", "Loss: 0.33"]


@pytest.mark.parametrize(
    ("columns", "term", "shown"), [(30, "xterm", "run 1: epoch 1/2, step 1/4, …"), (100, "dumb", "")]
)
def test_a_narrow_terminal_shows_less_progress_and_a_dumb_terminal_none(
    workspace: Workspace, terminals: list[Terminal], columns: int, term: str, shown: str
) -> None:
    workspace.write("steps.py", STEPS)
    workspace.write_spec("run: {argv: [python, steps.py]}")
    workspace.env["TERM"] = term
    terminals.append(terminal := Terminal(workspace, "train", columns=columns))
    terminal.wait_for(shown or "Loss: 1.00")
    for step in (1, 2, 3):
        workspace.write(f"go{step}", "")
    assert terminal.wait() == 0
    assert (b"run 1: epoch" in terminal.shown) == bool(shown)
    assert (b"\x1b" in terminal.shown) == bool(shown)


def test_output_of_a_replica_neither_moves_the_cursor_nor_changes_the_colour_of_later_lines(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    (workspace.project / "noise").write_bytes(
        b"\x1b[2J\x1b[10;10Hwiped\n\x1b]0;title\x07named\n\x1b[31mred\n\0\x07\x08rung\n\xc2\x9b2Jold\n\x1bcreset\nplain\n"
    )
    workspace.write_spec("run: cat noise")
    terminals.append(terminal := Terminal(workspace, "train"))
    assert terminal.wait() == 0
    for sequence in (b"\x1b[2J", b"\x1b[10;10H", b"\x1b]0;", b"\x07", b"\x08", b"\x9b", b"\x1bc"):
        assert sequence not in terminal.shown
    assert b"\x1b[31mred\x1b[0m" in terminal.shown
    said = [line.rpartition("] ")[2] for line in screen(terminal.shown)]
    harmless = ["wiped", "named", "red", "rung", "old", "reset", "plain"]
    assert [text for text in said if text in harmless] == harmless


def screen(shown: bytes) -> list[str]:
    """Return the lines that remain on a terminal that supports only what `train` uses: up, clear below, colours."""
    lines = [""]
    for part in re.split(r"(\x1b\[\d*A|\x1b\[J|\n)", shown.decode(errors="replace").replace("\r\n", "\n")):
        if match := re.fullmatch(r"\x1b\[(\d*)A", part):
            del lines[-1 - int(match[1] or 1) :]
            lines.append("")
        elif part == "\n":
            lines.append("")
        elif part != "\x1b[J":
            lines[-1] += re.sub(r"\x1b\[[0-9;]*m", "", part)
    return lines


def test_a_waiting_command_at_a_terminal_shows_what_it_waits_for_and_the_next_command(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write_spec("run: trap '' TERM; touch $HERE/up; while :; do sleep 0.05; done\ntimeouts: {grace: 2h}")
    training = Terminal(workspace, "train")
    terminals.append(training)
    training.wait_for("run 1: running; Ctrl-C detaches from it (")
    wait_until(lambda: workspace.exists("up"))
    killing = Terminal(workspace, "kill", "1")
    terminals.append(killing)
    killing.wait_for("its replicas have 2h to save and exit; `drumline kill --force 1` kills them at once")
    training.wait_for("run 1: ending, 1 replica left; `drumline kill --force 1` kills them at once (")
    workspace.run("kill", "--force", "1")
    assert killing.wait() == 0
    assert b"killed run 1; none of its processes is left" in killing.shown
    assert training.wait() == 1


def test_the_failure_card_is_shown_during_the_grace_and_the_exits_of_the_other_replicas_after_it(
    workspace: Workspace, terminals: list[Terminal]
) -> None:
    workspace.write_spec("""
        roles:
          worker:
            replicas: 2
            run: trap '' TERM; touch $HERE/deaf; while :; do sleep 0.05; done
            first: {run: "until [ -e $HERE/deaf ]; do sleep 0.05; done; echo broken; exit 3"}
        timeouts: {grace: 2h}
    """)
    training = Terminal(workspace, "train")
    terminals.append(training)
    training.wait_for("First replica to fail: 1.worker.0")
    assert json.loads(workspace.run("status", "1", "-o", "json").out)["cause"]["replica"] == "1.worker.0"
    workspace.run("kill", "--force", "1")
    assert training.wait() == 1
