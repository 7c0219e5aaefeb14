"""A command that no shell can read is a problem of the spec, at its line."""

from __future__ import annotations

import pytest

from drumline.errors import SpecError
from drumline.load.load import check_spec


def problems(run: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        check_spec(f"project: digits\nframework: plain\nrun: {run}\n".encode(), "drumline.yml")
    return [str(each) for each in raised.value.problems]


@pytest.mark.parametrize(
    "run",
    [
        "if [ -e data ]; then python train.py",
        "for i in 1 2; do echo $i",
        "'case $DRUMLINE_ROLE in ps) sleep 1 ;;'",
    ],
)
def test_a_command_that_ends_too_early_is_a_problem_at_its_line(run: str) -> None:
    (problem,) = problems(run)
    assert problem.startswith("drumline.yml:3:")
    assert "`sh` cannot read this: " in problem
    assert "end of file" in problem


def test_a_problem_that_the_rules_report_is_not_reported_twice() -> None:
    (problem,) = problems("(cd data; python train.py")
    assert "`sh` cannot read" not in problem


def test_each_command_of_a_list_is_checked_separately() -> None:
    (problem,) = problems("[echo begin, 'if true; then', echo yes; fi]")
    assert "end of file" in problem


def test_a_command_that_only_another_shell_may_accept_gets_a_warning() -> None:
    _, (warning,) = check_spec(b"project: digits\nframework: plain\nrun: 'echo a; )'\n", "drumline.yml")
    assert "`sh` cannot read this: " in str(warning)


@pytest.mark.parametrize(
    "run", ["if true; then echo 1; fi; echo", "python train.py --if then", "echo $((1 + 2)) && ls"]
)
def test_a_command_that_the_shell_accepts_gets_no_warning(run: str) -> None:
    text = f"project: digits\nframework: plain\nparameters: {{lr: 1}}\nrun: {run} {{{{ lr }}}}\n"
    assert check_spec(text.encode(), "drumline.yml")[1] == ()
