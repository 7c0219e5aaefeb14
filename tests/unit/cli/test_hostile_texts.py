"""The output of each command for a run in which an attacker has written every text."""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete, ZshComplete

from drumline.cli import group, terminal
from drumline.cli import run as run_command
from drumline.engine.doctor_checks import MISSING, DoctorCheck
from drumline.run.event import (
    AttemptDelayed,
    EngineWarned,
    Event,
    Evidence,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
)
from drumline.view.runs import Listing, recent_runs
from scaffold.past_runs import WORKER, append, moments, running, write_run
from scaffold.status_output import Captured

SEQUENCES = "\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1bc\x9b2J\x9d0;t\x9c\b\x07\x7f\u202e\u2028\ud800 \udce9"
HOSTILE = f"a{SEQUENCES}\r\nerror: forged\n\nhint: forged\n┃ forged\n4.worker.0 | --> FORGED"


def said(*more: Event) -> list[Event]:
    _, _, _, ended = moments()
    failed = Exit(1, message=HOSTILE, reason=HOSTILE)
    return [
        AttemptDelayed(0, HOSTILE),
        ReplicaWaits(WORKER, 0, reason=HOSTILE, message=HOSTILE),
        EngineWarned(0, HOSTILE),
        *more,
        ReplicaExited(WORKER, 0, 0, failed, ended.since_boot, Evidence(HOSTILE)),
    ]


@pytest.fixture
def hostile(home: Path) -> Path:
    """Run 4 has failed; its journal, log, error and stacks are hostile."""
    accepted, started, third, _ = moments()
    folder = write_run(home, 4, running(accepted, started)[:2], directory=f"/project{SEQUENCES}"[:40])
    append(folder, [(third, each) for each in said(ReplicaStarted(WORKER, 0, note=HOSTILE))])
    traces = folder.path / "attempts" / "0" / "worker.0"
    traces.mkdir(parents=True, exist_ok=True)
    (traces / "stacks").write_bytes(HOSTILE.encode(errors="surrogatepass"))
    (traces / "log").write_bytes(HOSTILE.encode(errors="surrogatepass"))
    error = {"v": 1, "type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE, "at": accepted.at}
    (traces / "error").write_text(json.dumps(error))
    return home


def is_safe(shown: str, *, kept: str = "\n") -> bool:
    return all(char.isprintable() or char in kept for char in shown)


def has_forged_line(shown: str) -> bool:
    forged = ("error: forged", "hint: forged", "┃ forged", "4.worker.0 | --> FORGED")
    return any(line.startswith(forged) for line in shown.splitlines())


@pytest.mark.parametrize("words", ["events 4", "status 4", "status -a", "stacks 4", "monitor 4 --history"])
def test_texts_of_a_run_cannot_control_a_terminal_or_forge_a_line(hostile: Path, capsys: Captured, words: str) -> None:
    assert run_command(words.split()) == 0
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert not has_forged_line(out + err)


@pytest.mark.parametrize("words", ["events 4", "status 4", "status -a", "stacks 4", "monitor 4 --history"])
def test_json_contains_the_original_texts(hostile: Path, capsys: Captured, words: str) -> None:
    assert run_command([*words.split(), "-o", "json"]) == 0
    out, _ = capsys.readouterr()
    assert is_safe(out)
    json.loads(out)


def test_logs_in_a_pipe_are_exactly_the_bytes_of_the_log(hostile: Path, capfd: Captured) -> None:
    assert run_command(["logs", "4"]) == 0
    lines = capfd.readouterr().out.splitlines()
    changes = [line for line in lines if "Message: " in line or "Reason: " in line or "Warning: " in line]
    assert changes
    assert all(is_safe(line) for line in changes)
    assert all(line.startswith(("4 ", "4.worker.0 ")) for line in lines if "FORGED" in line)


def test_logs_on_a_terminal_are_escaped(hostile: Path) -> None:
    shown = at_terminal(["logs", "4"])
    own = ("\x1b[0m", *(f"\x1b[{colour}m" for colour in (36, 32)))
    for sequence in own:
        shown = shown.replace(sequence, "")
    assert is_safe(shown, kept="\r\n")
    assert "\\ud800" in shown  # of the journal
    assert not has_forged_line(shown)


@pytest.mark.parametrize("words", [["events", HOSTILE], ["status", HOSTILE], [HOSTILE], ["train", f"--{HOSTILE}"]])
def test_arguments_are_echoed_escaped(home: Path, capsys: Captured, words: Sequence[str]) -> None:
    assert run_command(words) in (2, 4)
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert not has_forged_line(out + err)


def test_results_of_doctor_are_escaped(home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [DoctorCheck(HOSTILE, MISSING, HOSTILE, HOSTILE)]
    monkeypatch.setattr("drumline.engine.local.doctor.diagnose", lambda *_: found)
    assert run_command(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert not has_forged_line(out + err)
    assert run_command(["doctor", "-o", "json"]) == 1
    assert ascii(json.loads(capsys.readouterr().out)[0]["subject"]) == ascii(HOSTILE)


@pytest.mark.parametrize("error", [ValueError(HOSTILE), OSError(5, HOSTILE, HOSTILE), KeyError(HOSTILE)])
def test_an_unexpected_error_is_escaped(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("drumline.engine.local.doctor.diagnose", fail)
    assert run_command(["doctor"]) in (1, 3)
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert "forged" in err
    assert not has_forged_line(out + err)


def test_completion_does_not_offer_forged_lines(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(home, 4, running(*moments()[:2]))

    def renamed(*words: Any, **more: Any) -> Listing:
        listing = recent_runs(*words, **more)
        (row,) = listing.runs
        return listing.replace(runs=(row.replace(summary=row.summary.replace(name=HOSTILE)),))

    monkeypatch.setattr("drumline.cli.complete.recent_runs", renamed)
    items = ShellComplete(group, {}, "drumline", "_DRUMLINE_COMPLETE").get_completions(["status"], "")
    (item,) = items
    assert is_safe(f"{item.value}{item.help}", kept="")
    shell = ZshComplete(group, {}, "drumline", "_DRUMLINE_COMPLETE")
    assert shell.format_completion(item).count("\n") == 2


def test_a_rendered_spec_is_exact_in_a_pipe_and_escaped_on_a_terminal(home: Path, capfd: Captured) -> None:
    spec = 'project: p\nframework: plain\nrun: "echo \\e]0;title\\a \\u202e"\n'
    Path("drumline.yml").write_text(spec)
    assert run_command(["render"]) == 0
    assert "\x1b]0;title\x07" in capfd.readouterr().out
    shown = at_terminal(["render"])
    assert is_safe(shown, kept="\r\n\t")
    assert "\\x1b]0;title\\x07" in shown


def at_terminal(words: Sequence[str]) -> str:
    """Return what a command shows on a terminal of its own."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "drumline", *words])
    shown = b""
    try:
        while data := os.read(master, 65536):
            shown += data
    except OSError:
        pass  # reading a terminal without processes fails
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    return shown.decode()


def test_the_escape_of_a_text_is_stable() -> None:
    """A text may be escaped when a message is made, and again when it is printed."""
    assert terminal.escape(terminal.escape(HOSTILE)) == terminal.escape(HOSTILE)
