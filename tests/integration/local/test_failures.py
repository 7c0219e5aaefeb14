"""Why a run failed, on one card: at the end of `train`, on top of `status`, first in its JSON."""

from __future__ import annotations

import json
import os
import re
import signal

from drumline.run.event import CauseNamed
from scaffold.processes import read_to
from scaffold.terminal import Terminal
from scaffold.workspace import Workspace

# The second worker raises; the first one exits because its connection to the second is closed, and ignores TERM; the
# third one has no connection and is stopped.
CASCADE = """
import os, signal, socket, time

def check(row):
    raise ValueError(f"bad row: {row}")

me, path = os.environ["DRUMLINE_INDEX"], os.environ["HERE"] + "/socket"
if me == "1":
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen()
    os.rename(path + ".new", path)
    peer, _ = server.accept()
    for step in range(1, 8):
        print(f"step {step}/100: loss {1 / step:.3f}", flush=True)
    check(7)
elif me == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not os.path.exists(path):
        time.sleep(0.01)
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    if not peer.recv(1):
        raise ConnectionResetError(104, "Connection reset by peer")
else:
    signal.pause()
"""
CARD = r"""┃ Run 1 failed. First replica to fail: 1.worker.1, exit code 1
┃ 20\S+Z, \S+ after its start, attempt 0, step 7/100, loss 0.143
┃
┃   File "\S+/cascade.py", line 16, in <module>
┃     check\(7\)
┃   File "\S+/cascade.py", line 5, in check
┃     raise ValueError\(f"bad row: {row}"\)
┃ ValueError: bad row: 7
┃
┃ 1.worker.0 followed: connection reset by peer; 1.worker.2 was stopped
"""


def test_train_status_and_json_show_the_same_card_first(workspace: Workspace) -> None:
    workspace.write("cascade.py", CASCADE)
    workspace.write_spec("roles: {worker: 3}\nrun: python3 cascade.py")
    trained = workspace.run("train")
    assert trained.code == 1
    assert re.search(CARD + r"\Z", trained.out), trained.out
    assert "Message: 1.worker.1: exit code 1, ValueError: bad row: 7\n" in trained.out
    status = workspace.run("status", "1").out
    assert re.match(CARD + "\n", status), status
    assert "State:      FAILED: 1.worker.1: exit code 1, ValueError: bad row: 7\n" in status
    data = json.loads(workspace.run("status", "1", "-o", "json").out)
    assert next(iter(data)) == "cause"
    cause = data["cause"]
    assert (cause["replica"], cause["reason"], cause["class"]) == ("1.worker.1", "Exited", "crash")
    assert (cause["exit_code"], cause["signal"], cause["attempt"]) == (1, None, 0)
    assert (cause["error"], cause["progress"]["step"]) == ("ValueError: bad row: 7", 7)
    assert cause["traceback"][-1] == "ValueError: bad row: 7"
    assert cause["followed"] == [{"replicas": ["1.worker.0"], "message": "connection reset by peer"}]
    assert cause["stopped"] == ["1.worker.2"]
    # The status of a part of the run has no card; on a terminal the card has colour and fits the width.
    assert "┃" not in workspace.run("status", "1.worker.0").out
    terminal = Terminal(workspace, "status", "1", columns=50)
    terminal.wait()
    shown = terminal.shown.decode().replace("\r", "")
    assert shown.startswith("\x1b[31m┃\x1b[0m\x1b[1m Run 1 failed. First replica to fail: 1.worker.1,")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("\n")
    assert max(len(line) for line in plain if line.startswith("┃")) <= 50


def test_a_card_has_the_last_lines_of_a_replica_without_a_traceback_and_earlier_causes_are_lines(
    workspace: Workspace,
) -> None:
    workspace.write(
        "fall.py",
        """
        import os, signal
        if os.environ["DRUMLINE_ATTEMPT"] == "0":
            raise KeyError("digits")
        for number in range(20):
            print("line", number, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    workspace.write_spec("run: python3 fall.py\nrestart: 1")
    status = (workspace.run("train"), workspace.run("status", "1"))[1].out
    lines = status.split("\n")
    assert lines[0] == "┃ Run 1 failed. First replica to fail: 1.worker.0, killed by signal 9 (KILL)"
    assert lines[1].endswith("after its start, attempt 1")
    assert lines[3:11] == [f"┃ line {number}" for number in range(12, 20)]
    assert "Earlier:    attempt 0: 1.worker.0: exit code 1, KeyError: 'digits'\n" in status


def test_a_run_that_did_not_fail_has_no_card(workspace: Workspace) -> None:
    workspace.write_spec("run: 'true'")
    assert "┃" not in workspace.run("train").out
    assert json.loads(workspace.run("status", "1", "-o", "json").out)["cause"] is None


# The first worker raises; its child stops the keeper by SIGSTOP, so that its exit is reported late. The second worker
# then exits with another message, since it receives no data from the first one.
LATE = """
import os, signal, subprocess, sys, time
here = os.environ["HERE"]
if len(sys.argv) > 1:
    def stop_keeper(*_):
        os.kill(os.getppid(), signal.SIGSTOP)
        open(f"{here}/stopped", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, stop_keeper)
    print("ready", flush=True)
    signal.pause()
elif os.environ["DRUMLINE_INDEX"] == "0":
    left = subprocess.Popen([sys.executable, __file__, "left"], stdout=subprocess.PIPE)
    left.stdout.readline()
    raise ValueError("bad row")
while not os.path.exists(f"{here}/stopped"):
    time.sleep(0.01)
raise EOFError("nothing comes from worker.0")
"""


def test_a_cause_that_later_evidence_corrects_is_recorded_and_shown_as_a_correction(workspace: Workspace) -> None:
    workspace.write("late.py", LATE)
    workspace.write_spec("roles: {worker: 2}\nframework: plain\nrun: python3 late.py")
    with workspace.command("train") as train:
        shown = read_to(train, "┃ EOFError: nothing comes from worker.0\n")
        os.kill(workspace.runs()[0].keeper("worker.0"), signal.SIGCONT)
        card = train.communicate()[0]
    assert train.returncode == 1
    assert "┃ Run 1 failed. First replica to fail: 1.worker.1, exit code 1\n" in shown
    assert "┃ Correction: Run 1 failed. First replica to fail: 1.worker.0, exit code 1\n" in card
    before = "named before the other replicas had ended: 1.worker.1, exit code 1, EOFError: nothing comes from worker.0"
    assert f"┃ {before}\n" in card
    assert card.index("┃ ValueError: bad row\n") < card.index("┃ 1.worker.1 failed too: EOFError: nothing comes")
    (run,) = workspace.runs()
    named = [event for event in run.events if isinstance(event, CauseNamed)]
    assert [(str(event.cause.replica), event.is_correction) for event in named] == [
        ("worker.1", False),
        ("worker.0", True),
    ]
    told = workspace.run("events", "1").out
    assert "1 fails: worker.1: exit code 1, EOFError: nothing comes from worker.0\n" in told
    assert "1 fails for another cause than named before: worker.0: exit code 1, ValueError: bad row\n" in told
    assert f"┃ {before}\n" in workspace.run("status", "1").out
    cause = json.loads(workspace.run("status", "1", "-o", "json").out)["cause"]
    assert (cause["replica"], cause["corrects"]["replica"]) == ("1.worker.0", "1.worker.1")
