"""Warnings about a TensorBoard that does not run, and the interpreters in which it is searched."""

from __future__ import annotations

import pytest

from drumline.run.tensorboard import UNAVAILABLE_CODE, pythons
from drumline.runtime import tensorboard
from scaffold.gangs import gang
from scaffold.plans import plan_of
from scaffold.scenarios import ScenarioReplay


def warnings(*words: str) -> tuple[str, ...]:
    replay = ScenarioReplay(gang("worker crash=1 tensorboard"))
    for each in ("running", "summaries", *words):
        replay.apply(each)
    return replay.state.warnings


def test_a_failure_gives_one_warning_with_the_command_that_shows_its_log() -> None:
    assert warnings("tensorboard exits 3", "worker.0 exits 1", "running", "tensorboard exits 3") == (
        "TensorBoard failed (exit code 3); the training continues without it: `drumline logs 4.tensorboard` shows why",
    )


def test_a_tensorboard_that_is_not_installed_gives_a_warning_with_a_hint() -> None:
    (warning,) = warnings(f"tensorboard exits {UNAVAILABLE_CODE}")
    assert "`pip install tensorboard`" in warning
    assert "`tensorboard: false`" in warning
    assert tensorboard.NOT_AVAILABLE == UNAVAILABLE_CODE


@pytest.mark.parametrize("words", [("tensorboard exits 0",), ("worker.0 exits 0", "tensorboard signal 9")])
def test_an_exit_with_0_or_after_the_training_gives_no_warning(words: tuple[str, ...]) -> None:
    assert warnings(*words) == ()


def test_its_address_is_recorded_while_it_runs() -> None:
    replay = ScenarioReplay(gang("worker*2 crash=1 tensorboard"))
    addresses = [
        ("running", ""),
        ("served http://early/", ""),
        ("summaries", ""),
        ("tensorboard starts", ""),
        ("served http://here/", "http://here/"),
        ("worker.0 exits 1", "http://here/"),
        ("worker.1 signal 15", "http://here/"),
        ("running", "http://here/"),
        ("returned", "http://here/"),
        ("tensorboard exits 1", ""),
        ("served http://here/", ""),
    ]
    for words, address in addresses:
        replay.apply(words)
        assert replay.state.tensorboard_address == address, words


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("python train.py", ("python",)),
        ("/opt/env/bin/python3.11 train.py", ("/opt/env/bin/python3.11", "python")),
        ("python3 train.py && echo done", ("python",)),
        ("torchrun train.py", ("python",)),
    ],
)
def test_without_an_own_environment_it_is_searched_in_the_interpreter_of_the_chief(
    run: str, expected: tuple[str, ...]
) -> None:
    assert pythons(plan_of(f"run: {run}")) == expected
