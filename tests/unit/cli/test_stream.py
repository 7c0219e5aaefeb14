"""`logs` and `train` show malicious logs in linear time and with little memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.cli.stream import Screen
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from drumline.store.folder import RunFolder
from drumline.view.feed import Change, Feed, Lines
from scaffold.growth import growth
from scaffold.past_runs import NOON, WORKER, append, moments, running, write_run

HARD = [b"\r", b"\b", b"\n", b"\x1b", b"x", b"x\r", b"\r\n", b"\0", b"\xff", b"\x1b]0;"]


@pytest.fixture
def descriptor(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return a file descriptor that accepts all output."""
    opened = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr("drumline.cli.stream.stdout_descriptor", lambda: opened)
    yield opened
    os.close(opened)


def write_log(home: Path, data: bytes) -> RunFolder:
    accepted, started, _, ended = moments()
    folder = write_run(home, 4 if not (home / "runs" / "4").exists() else 5, running(accepted, started)[:2])
    append(folder, [(started, ReplicaStarted(WORKER, 0))])
    traces = folder.path / "attempts" / "0" / "worker.0"
    traces.mkdir(parents=True, exist_ok=True)
    (traces / "log").write_bytes(data)
    append(folder, [(ended, ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot))])
    return folder


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("unit", HARD)
def test_a_log_of_four_times_the_length_is_shown_in_about_four_times_the_time(
    tmp_path: Path, descriptor: int, unit: bytes, terminal: bool
) -> None:
    folders: dict[int, RunFolder] = {}

    def show(data: bytes) -> None:
        if len(data) not in folders:
            folders[len(data)] = write_log(tmp_path, data)
        feed, screen = Feed(folders[len(data)]), Screen(["4"], terminal=terminal)
        while items := feed.poll(NOON):
            screen.show(items, feed.unfinished(), "footer")

    small, large = (unit * (size // len(unit)) for size in (3 << 19, 3 << 21))
    assert growth(show, small, large) < 10


@pytest.mark.parametrize("unit", HARD)
def test_a_line_that_grows_is_drawn_without_reading_all_of_it_again(
    descriptor: int, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(["4"], terminal=True)

    def draw(line: bytes) -> None:
        for _ in range(10):
            screen.show((), {"4": line})

    small, large = (b"\r" + unit * (size // len(unit)) for size in (1 << 18, 1 << 20))
    assert growth(draw, small, large) < 10


def test_many_empty_lines_are_not_held_at_once_with_their_prefixes(descriptor: int) -> None:
    screen = Screen(["4.worker.0"], terminal=False)
    data = b"\n" * (1 << 21)  # 80 MiB with prefixes
    tracemalloc.start()
    try:
        screen.show([Lines(NOON, "4.worker.0", data)], {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20


@pytest.mark.parametrize("terminal", [False, True])
def test_a_message_with_a_lone_surrogate_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    shown = tmp_path / "shown"
    out = os.open(shown, os.O_WRONLY | os.O_CREAT)
    monkeypatch.setattr("drumline.cli.stream.stdout_descriptor", lambda: out)
    monkeypatch.setenv("NO_COLOR", "1")
    hostile = "a\ud800\x1b[2J\n4 | --> FORGED"
    change = Change(NOON, "4", Phase.FAILED, reason=hostile, message=hostile)
    Screen(["4"], timestamps=False, terminal=terminal).show([change], {}, footer=f"run 4: {hostile}")
    os.close(out)
    escaped = "a\\ud800\\x1b[2J\\n4 | --> FORGED"
    lines = ["4 | --> FAILED", f"4 | Reason: {escaped}", f"4 | Message: {escaped}"]
    assert shown.read_text().splitlines()[:3] == lines


def test_an_encoding_without_a_character_gets_its_escape(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(["4"], timestamps=False, terminal=True)
    monkeypatch.setattr(screen, "_encoding", "latin-1")
    screen.show([Lines(NOON, "4", "Û\u0153\n".encode())], {})
    assert capfd.readouterr().out.encode("utf-8", "surrogateescape").endswith(b"\\u0153\n")
