"""What is said of TensorBoard when it cannot be had, and where it is looked for."""

from __future__ import annotations

import pytest

from drumline.run.tensorboard import UNAVAILABLE_CODE, pythons
from drumline.runtime import tensorboard
from scaffold.gangs import gang
from scaffold.plans import plan_of
from scaffold.scenarios import ScenarioReplay


def warnings(*words: str) -> tuple[str, ...]:
    telling = ScenarioReplay(gang("worker crash=1 tensorboard"))
    for each in ("running", "summaries", *words):
        telling.tell(each)
    return telling.state.warnings


def test_that_it_failed_is_said_once_with_where_to_look() -> None:
    assert warnings("tensorboard exits 3", "worker.0 exits 1", "running", "tensorboard exits 3") == (
        "TensorBoard failed (exit code 3); the training continues without it: `drumline logs 4.tensorboard` shows why",
    )


def test_that_it_is_not_there_is_said_with_what_to_do() -> None:
    (warning,) = warnings(f"tensorboard exits {UNAVAILABLE_CODE}")
    assert "`pip install tensorboard`" in warning
    assert "`tensorboard: false`" in warning
    assert tensorboard.NOT_AVAILABLE == UNAVAILABLE_CODE


@pytest.mark.parametrize("words", [("tensorboard exits 0",), ("worker.0 exits 0", "tensorboard signal 9")])
def test_an_end_that_is_none_of_its_faults_is_not_worth_a_word(words: tuple[str, ...]) -> None:
    assert warnings(*words) == ()


def test_its_address_is_known_while_it_answers() -> None:
    telling = ScenarioReplay(gang("worker*2 crash=1 tensorboard"))
    told = [
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
    for words, address in told:
        telling.tell(words)
        assert telling.state.tensorboard_address == address, words


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("python train.py", ("python",)),
        ("/opt/env/bin/python3.11 train.py", ("/opt/env/bin/python3.11", "python")),
        ("python3 train.py && echo done", ("python",)),
        ("torchrun train.py", ("python",)),
    ],
)
def test_without_an_environment_of_its_own_it_is_looked_for_where_the_chief_runs(
    run: str, expected: tuple[str, ...]
) -> None:
    assert pythons(plan_of(f"run: {run}")) == expected
