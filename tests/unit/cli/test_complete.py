"""Completions of arguments that name a run, a file or a topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from drumline.cli import COMMANDS, group
from drumline.cli.help import TOPICS
from scaffold.past_runs import TWO_WORKERS, finished, moments, running, write_run


def offered(words: str) -> list[str]:
    """Return the completions of the last word; for files, the type by which the shell completes them itself."""
    *before, incomplete = words.split(" ")
    items = ShellComplete(group, {}, "drumline", "_DRUMLINE_COMPLETE").get_completions(before, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in items]


@pytest.fixture
def runs(home: Path) -> Path:
    """Write three runs: 2 is running, 1 and 11 have ended."""
    accepted, started, *_ = moments()
    write_run(home, 1, finished())
    write_run(home, 2, running(accepted, started), spec=TWO_WORKERS)
    write_run(home, 11, finished(code=1))
    return home


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("status ", ["11", "2", "1"]),
        ("logs 1", ["11", "1"]),
        ("logs --tail 3 1", ["11", "1"]),
        ("monitor 1 ", ["11", "2", "1"]),
        ("kill ", ["2"]),
        ("wait ", ["2"]),
        ("rm ", ["11", "1"]),
        ("resume ", ["11", "1"]),
        ("status 2.", ["2.worker.0", "2.worker.1"]),
        ("logs 2.worker.1", ["2.worker.1"]),
        ("kill 2.", []),
        ("logs 7.", []),
        ("logs x.", []),
        ("drill ", ["2", "<file>"]),
        ("cp 2", ["2:", "<file>"]),
        ("cp 1", ["11:", "1:", "<file>"]),
        ("cp 1: ", ["11:", "2:", "1:", "<file>"]),
    ],
)
def test_the_runs_that_a_command_takes_are_offered_the_newest_first(words: str, ids: list[str], runs: Path) -> None:
    assert offered(words) == ids


def test_a_run_is_offered_with_its_name_and_state(runs: Path) -> None:
    items = ShellComplete(group, {}, "drumline", "_DRUMLINE_COMPLETE").get_completions(["logs"], "")
    assert [item.help for item in items] == ["digits FAILED", "digits STARTING", "digits FINISHED"]


@pytest.mark.parametrize("words", ["status ", "kill ", "logs 1", "logs 1."])
def test_without_runs_nothing_is_offered(words: str, home: Path) -> None:
    assert offered(words) == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", list(COMMANDS)),
        ("tr", ["train"]),
        ("help ", [*TOPICS, *COMMANDS]),
        ("help e", ["engines", "exit-codes", "events", "environments"]),
        ("help train ", []),
        ("train ", ["<file>"]),
        ("check ", ["<file>"]),
        ("init ", ["<file>"]),
        ("train --on ", ["local", "ssh", "kubernetes", "jobset", "tfjob"]),
        ("kill --f", ["--force"]),
        ("tfconfig ", ["check", "make"]),
        ("--ver", ["--version"]),
    ],
)
def test_commands_options_files_and_topics_are_offered(words: str, answer: list[str], home: Path) -> None:
    assert offered(words) == answer
