"""Names of replicas are valid on every platform."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.plan.name import LIMIT, replica_name, variable_name
from drumline.plan.types import ROLES

LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")

NAMES = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\Z")
NUMBERS = st.integers(0, 999_999_999).map(str)
RUNS = NUMBERS | st.tuples(NUMBERS, NUMBERS).map(".".join)
INDICES = st.integers(0, 99_999)


@pytest.mark.parametrize(
    ("name", "run", "expected"),
    [
        ("digits", "4", "digits-4-worker-0"),
        ("digits", "7.2", "digits-7--2-worker-0"),
        ("a-b", "4", "a-b-4-worker-0"),
        ("My_Project", "4", "my-project-########-4-worker-0"),
        ("9lives", "4", "r9lives-########-4-worker-0"),
        ("x" * 52, "4", f"{'x' * 52}-4-worker-0"),
        ("x" * 53, "4", f"{'x' * 43}-########-4-worker-0"),
    ],
)
def test_a_name_is_readable_and_has_a_digest_if_it_was_changed(name: str, run: str, expected: str) -> None:
    made = replica_name(name, run, "worker", 0)
    assert re.sub(r"-[0-9a-f]{8}-", "-########-", made) == expected


@given(name=NAMES | st.text(max_size=80), run=RUNS, role=st.sampled_from(ROLES), index=INDICES)
def test_any_name_is_a_dns_label(name: str, run: str, role: str, index: int) -> None:
    made = replica_name(name, run, role, index)
    assert LABEL.fullmatch(made)
    assert len(made) <= LIMIT


@given(name=NAMES, run=RUNS)
def test_no_two_replicas_of_a_run_have_the_same_name(name: str, run: str) -> None:
    made = [replica_name(name, run, role, index) for role in ROLES for index in (0, 1, 10, 11, 110, 99_999)]
    assert len(set(made)) == len(made)


@given(one=st.tuples(NAMES, RUNS), other=st.tuples(NAMES, RUNS))
def test_no_two_runs_have_replicas_with_the_same_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    alike = replica_name(*one, "worker", 0) == replica_name(*other, "worker", 0)
    assert alike == (one == other)


def test_names_that_differ_only_in_dots_dashes_or_case_stay_different() -> None:
    assert replica_name("a", "7.2", "worker", 0) != replica_name("a-7", "2", "worker", 0)
    assert replica_name("a_b", "4", "worker", 0) != replica_name("a-b", "4", "worker", 0)
    assert replica_name("AB", "4", "worker", 0) != replica_name("ab", "4", "worker", 0)


@pytest.mark.parametrize(("name", "variable"), [("lr", "LR"), ("lr-decay", "LR_DECAY"), ("batchSize", "BATCHSIZE")])
def test_the_variable_of_a_parameter_has_capitals_and_underscores(name: str, variable: str) -> None:
    assert variable_name(name) == variable
