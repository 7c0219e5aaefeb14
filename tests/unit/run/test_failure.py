"""Exits: their description, reason and failure class, and whether the process failed by itself."""

from __future__ import annotations

import pytest

from drumline.run.event import Exit
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, reason_of

UNOBSERVED = Exit()
ENDS = [
    # exit, description, reason, failure class, whether it failed by itself
    (Exit(0), "exit code 0", "Exited", "crash", False),
    (Exit(1), "exit code 1", "Exited", "crash", True),
    (Exit(42), "exit code 42", "Exited", "preempted", False),
    (Exit(126), "exit code 126: the command cannot be executed", "CannotExecute", "crash", True),
    (Exit(127), "exit code 127: the command was not found", "CannotExecute", "crash", True),
    (Exit(128), "exit code 128", "Exited", "crash", True),
    (Exit(130), "exit code 130: killed by signal 2 (INT)", "Exited", "crash", False),
    (Exit(134), "exit code 134: killed by signal 6 (ABRT)", "Exited", "crash", True),
    (Exit(137), "exit code 137: killed by signal 9 (KILL)", "Exited", "crash", False),
    (Exit(139), "exit code 139: killed by signal 11 (SEGV)", "Exited", "crash", True),
    (Exit(143), "exit code 143: killed by signal 15 (TERM)", "Exited", "preempted", False),
    (Exit(255), "exit code 255", "Exited", "crash", True),
    (Exit(signal=1), "killed by signal 1 (HUP)", "Signalled", "crash", False),
    (Exit(signal=6), "killed by signal 6 (ABRT)", "Signalled", "crash", True),
    (Exit(signal=9), "killed by signal 9 (KILL)", "Signalled", "crash", False),
    (Exit(signal=11), "killed by signal 11 (SEGV)", "Signalled", "crash", True),
    (Exit(signal=15), "killed by signal 15 (TERM)", "Signalled", "preempted", False),
    (Exit(signal=99), "killed by signal 99", "Signalled", "crash", True),
    (Exit(1, reason="Evicted"), "exit code 1", "Evicted", "preempted", False),
    (UNOBSERVED, "its end was not observed", "ExitUnknown", "lost", False),
    (Exit(message="its keeper is gone"), "its keeper is gone", "ExitUnknown", "lost", False),
    (
        Exit(signal=9, message="out of memory: it used 1.0 GiB, all of it", out_of_memory=True),
        "killed by signal 9 (KILL) by the kernel's out-of-memory killer; out of memory: it used 1.0 GiB, all of it",
        "OutOfMemory",
        "out_of_memory",
        True,
    ),
    (Exit(1, message="a child", out_of_memory=True), "exit code 1; a child", "OutOfMemory", "out_of_memory", True),
    (Exit(message="its host is gone", out_of_memory=True), "its host is gone", "OutOfMemory", "out_of_memory", True),
    (Exit(0, message="it lost a child", out_of_memory=True), "exit code 0; it lost a child", "Exited", "crash", False),
    (
        Exit(signal=9, message="the kernel's out-of-memory killer chose it"),
        "killed by signal 9 (KILL); the kernel's out-of-memory killer chose it",
        "Signalled",
        "crash",
        False,
    ),
]


@pytest.mark.parametrize(("exit_", "words", "reason", "failure", "by_itself"), ENDS, ids=[end[1] for end in ENDS])
def test_an_exit_has_a_description_a_reason_and_a_class(
    exit_: Exit, words: str, reason: str, failure: str, by_itself: bool
) -> None:
    assert describe_exit(exit_) == words
    assert reason_of(exit_) == reason
    assert failure_class(exit_, "tensorflow") == failure
    assert failed_by_itself(exit_, "tensorflow") == by_itself
    assert exit_.ok == (exit_.code == 0)


@pytest.mark.parametrize("framework", ["plain", "torch", "jax"])
def test_only_tensorflow_exits_with_42_after_it_has_saved(framework: str) -> None:
    assert (failure_class(Exit(42), framework), failed_by_itself(Exit(42), framework)) == ("crash", True)
    assert (failure_class(Exit(143), framework), failed_by_itself(Exit(143), framework)) == ("preempted", False)
