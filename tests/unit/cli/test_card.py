"""The failure card as text: complete in a pipe, wrapped to a terminal's width, without control characters."""

from __future__ import annotations

from typing import Any

import pytest

from drumline.cli.card import spell_card
from drumline.plan.types import ReplicaId
from drumline.run.event import Cause, Exit
from drumline.run.progress import Progress
from drumline.view.card import Card, LaterFailures
from drumline.view.replica_progress import ReplicaProgress

NOON = 1704110400.0


def worker(index: int) -> ReplicaId:
    return ReplicaId("worker", index)


def card(**more: Any) -> Card:
    cause = Cause(worker(1), 2, Exit(code=1), "crash", "Exited", "ValueError: bad row")
    return Card(cause, "exit code 1", NOON).replace(**more)


def test_unknown_facts_are_left_out() -> None:
    assert spell_card("4", card(at=None), None) == [
        "┃ Run 4 failed. First replica to fail: 4.worker.1, exit code 1",
        "┃ attempt 2",
    ]


def test_a_replica_that_failed_before_its_recorded_start_failed_after_0_seconds() -> None:
    assert spell_card("4", card(started_at=NOON + 0.01), None)[1].endswith("Z, 0s after its start, attempt 2")
    assert "after" not in "".join(spell_card("4", card(started_at=NOON + 3600), None))  # a clock that was set back


def test_a_failure_without_a_replica_is_one_sentence() -> None:
    cause = Cause(None, 0, Exit(message="the run's time limit of 60 s is over"), "time", "TimeLimit")
    spelled = spell_card("4", card(cause=cause, words=cause.exit.message), None)
    assert spelled[0] == "┃ Run 4 failed: the run's time limit of 60 s is over"


def test_a_replica_that_exited_with_0_is_the_first_to_exit_not_to_fail() -> None:
    cause = Cause(worker(1), 0, Exit(code=0), "crash", "LeftEarly")
    assert spell_card("4", card(cause=cause), None)[0].startswith("┃ Run 4 failed. First replica to exit: 4.worker.1, ")


def test_a_missing_module_is_shown_with_a_hint() -> None:
    cause = Cause(worker(1), 0, Exit(code=1), "crash", "Exited", "ModuleNotFoundError: No module named 'keras.layers'")
    *_, before, hint = spell_card("4", card(cause=cause), None)
    assert before == "┃"
    assert hint == (
        "┃ hint: the Python that ran this has no `keras.layers`: install it there, activate the environment that has"
        " it, or give the run a Python of its own with `environment` in the spec"
    )
    known = card(cause=cause).replace(python=("/venv/bin/python", "the active virtual environment"))
    assert (
        "the Python that ran this, /venv/bin/python (the active virtual environment), has no `keras.layers`"
        in (spell_card("4", known, None)[-1])
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "ValueError: Attempt to convert a value (PerReplica:{ 0: <tf.Tensor",
            "`strategy()` of drumline.runtime.tensorflow",
        ),
        (
            "ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator.create",
            "`drumline init --template ps`",
        ),
        (
            "tensorboard.compat.tensorflow_stub.errors.TBNotInstalledError: TensorBoard is not installed, missing",
            "`pip install tensorboard`",
        ),
        ("AttributeError: module 'tensorflow' has no attribute 'estimator'", "`environment` in the spec"),
        (
            (
                "ValueError: Error initializing torch.distributed using env:// rendezvous:"
                " environment variable RANK expected, but not set"
            ),
            "`torch: {rendezvous: always}`",
        ),
    ],
)
def test_a_common_error_is_shown_with_a_hint(said: str, expected: str) -> None:
    cause = Cause(worker(1), 0, Exit(code=1), "crash", "Exited", said)
    hint = spell_card("4", card(cause=cause), None)[-1]
    assert hint.startswith("┃ hint: ")
    assert expected in hint


def test_two_replicas_that_lost_each_other_are_shown_with_their_progress_and_a_hint() -> None:
    cause = Cause(None, 0, Exit(message="worker.0 and worker.1 lost each other"), "lost", "Unreachable")
    far = ReplicaProgress(Progress(step=137), at=NOON)
    _, facts, *_, hint = spell_card("4", card(cause=cause, progress=far, progress_of=worker(0)), None)
    assert facts.endswith("attempt 0, 4.worker.0 was at step 137")
    assert "`restart: {lost: 1}`" in hint


def test_an_error_of_the_script_has_no_hint() -> None:
    cause = Cause(worker(1), 0, Exit(code=1), "crash", "Exited", "ValueError: bad row in shard 7")
    assert "hint" not in "".join(spell_card("4", card(cause=cause), None))


def test_the_states_of_the_other_replicas_are_one_line() -> None:
    followed = (
        LaterFailures((worker(0), worker(2)), "connection reset by peer"),
        LaterFailures((worker(3),), "ValueError: bad row", is_own=True),
        LaterFailures((worker(4),), "KeyError: 'x'", is_own=True),
    )
    stopped = tuple(map(worker, range(5, 12)))
    assert spell_card("4", card(later_failures=followed, stopped=stopped), None)[-1] == (
        "┃ 4.worker.0, 4.worker.2 followed: connection reset by peer; 4.worker.3 failed in the same way;"
        " 4.worker.4 failed too: KeyError: 'x';"
        " 4.worker.5, 4.worker.6, 4.worker.7, 4.worker.8 and 3 more were stopped"
    )


def test_lines_are_wrapped_to_the_terminals_width() -> None:
    lines = ('  File "train.py", line 3, in f', "    " + "word " * 40, "x" * 130)
    spelled = spell_card("4", card(lines=lines), 60)
    assert max(map(len, spelled)) <= 60
    assert "".join(spelled).count("word") == 40
    assert "".join(spelled).count("x") == 130 + "exit code".count("x")
    assert len(spell_card("4", card(lines=lines), 20)) == 6  # too narrow for anything


def test_control_characters_are_escaped() -> None:
    assert "┃ bad \\x1b[2J row" in spell_card("4", card(lines=("bad \x1b[2J row",)), None)


def test_a_line_with_more_leading_blanks_than_the_terminals_width_is_wrapped() -> None:
    spelled = spell_card("4", card(lines=(" " * 200 + "word " * 40,)), 60)
    assert max(map(len, spelled)) <= 60
    assert "".join(spelled).count("word") == 40


def test_a_message_of_a_megabyte_is_cut() -> None:
    spelled = spell_card("4", card(words="x" * (1 << 20)), 60)
    assert sum(map(len, spelled)) < 10_000
    assert spelled[-2].endswith("…")


def test_a_log_line_cannot_end_the_card() -> None:
    spelled = spell_card("4", card(lines=("a\nerror: forged\x1b[2J\u202e",)), None)
    assert spelled[-1] == "┃ a\\nerror: forged\\x1b[2J\\u202e"
