"""Unusual output of replicas: very long lines, bytes that are no text, and control sequences."""

from __future__ import annotations

import re
from pathlib import Path

from drumline.run.state import Phase
from scaffold.workspace import Workspace

MEGABYTE = 1 << 20
PREFIX = re.compile(rb"^\d+(?:\.\w+\.\d+)? +\| (?:\[~?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\] )?", re.MULTILINE)


def said(output: bytes, replica: str = "worker.0") -> bytes:
    """Return the lines of a replica, without the states in between."""
    lines = [line for line in output.split(b"\n") if f".{replica} ".encode() in line[:20]]
    bare = [PREFIX.sub(b"", line) for line in lines]
    return b"\n".join(line for line in bare if not line.startswith((b"--> ", b"Exit Code", b"Reason", b"Signal")))


def test_a_line_of_a_hundred_megabytes_costs_little_memory(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("long.py", "import os\nfor _ in range(100): os.write(1, b'z' * (1 << 20))")
    workspace.write_spec("run: {argv: [python, long.py]}")
    for words in (["train"], ["logs", "1"], ["logs", "--tail", "1", "1"]):
        code, memory = workspace.measure(*words, out=tmp_path / "out")
        assert code == 0
        assert memory < 200 * MEGABYTE
        with (tmp_path / "out").open("rb") as shown:
            pieces = [line.count(b"z") for line in shown]
        assert max(pieces) <= 8 * MEGABYTE
        if "--tail" not in words:
            assert sum(pieces) == 100 * MEGABYTE
    (tmp_path / "out").unlink()


def test_a_run_with_many_long_logs_costs_little_memory(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("long.py", "import os\nfor _ in range(20): os.write(1, (b'y' * 1023 + b'\\n') * 1024)")
    run = workspace.train("roles: {worker: 5}\nrun: {argv: [python, long.py]}")
    run.wait_for(Phase.FINISHED)
    code, memory = workspace.measure("logs", run.id, out=tmp_path / "out")
    assert code == 0
    assert memory < 200 * MEGABYTE
    with (tmp_path / "out").open("rb") as shown:
        assert sum(line.count(b"y" * 1023) for line in shown) == 5 * 20 * 1024
    (tmp_path / "out").unlink()


def test_binary_output_is_stored_unchanged(workspace: Workspace, tmp_path: Path) -> None:
    noise = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") * 50
    (workspace.project / "noise").write_bytes(noise + b"\n\xff\xfe invalid \xc3\n\0\0\0\nlast without newline")
    run = workspace.train("run: cat noise")
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == (workspace.project / "noise").read_bytes()
    code, _ = workspace.measure("logs", "--no-timestamps", run.id, out=tmp_path / "out")
    assert code == 0
    assert said((tmp_path / "out").read_bytes()) == (workspace.project / "noise").read_bytes()


def test_a_progress_bar_in_a_pipe_is_shown_in_its_last_state(workspace: Workspace) -> None:
    workspace.write("bar.py", "for i in range(101): print(f'\\r{i:3}% done', end='')\nprint()\nprint('windows\\r')")
    run = workspace.train("run: {argv: [python, bar.py]}")
    run.wait_for(Phase.FINISHED)
    assert said(workspace.run("logs", run.id).out.encode()) == b"100% done\nwindows"
    assert said(workspace.run("logs", "--tail", "2", run.id).out.encode()) == b"100% done\nwindows"
    assert run.log("worker.0").count(b"\r") == 102


def test_colours_reach_a_pipe_as_they_are(workspace: Workspace) -> None:
    run = workspace.train(r"run: printf '\033[31mred\033[0m\n'")
    run.wait_for(Phase.FINISHED)
    assert said(workspace.run("logs", run.id).out.encode()) == b"\x1b[31mred\x1b[0m"


def test_lines_of_several_replicas_are_shown_in_order_of_time(workspace: Workspace) -> None:
    # Two replicas that alternate: each waits for the other's file, and for a recorded time in between.
    workspace.write(
        "turns.py",
        """
        import os, pathlib, time
        me, here = int(os.environ["DRUMLINE_INDEX"]), pathlib.Path(os.environ["HERE"])
        marks = pathlib.Path(os.environ["OUTPUT_DIR"]).parent / f"attempts/0/worker.{me}/marks"
        for turn in range(6):
            if turn % 2 == me:
                marked = marks.stat().st_size if marks.exists() else 0
                print("turn", turn, flush=True)
                while not marks.exists() or marks.stat().st_size == marked:
                    time.sleep(0.005)
                (here / f"turn{turn}").touch()
            while not (here / f"turn{turn}").exists():
                time.sleep(0.005)
        """,
    )
    run = workspace.train("roles: {worker: 2}\nrun: {argv: [python, turns.py]}")
    run.wait_for(Phase.FINISHED)
    out = workspace.run("logs", run.id).out
    assert re.findall(r"turn (\d)", out) == list("012345")
    times = re.findall(r"\[(\S+)\]", out)
    assert times == sorted(times)


def test_the_last_line_of_a_replica_is_shown_before_its_end(workspace: Workspace) -> None:
    run = workspace.train("roles: {worker: 3}\nrun: echo bye; exit 0")
    run.wait_for(Phase.FINISHED)
    out = workspace.run("logs", run.id).out
    for index in range(3):
        assert 0 < out.index(f"worker.{index} | ") < out.index("bye") < out.rindex(f"worker.{index} |")
    of_second = [line.rpartition("] ")[2] for line in out.splitlines() if "worker.1" in line]
    assert of_second == ["--> STARTING", "--> RUNNING", "bye", "--> FINISHED", "Exit Code: 0"]
