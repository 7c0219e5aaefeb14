"""Whether, and after how long, the whole line starts again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import Restart
from drumline.run.event import Exit
from drumline.run.restart import delay_before, is_permanent, may_restart


def test_a_class_of_failure_is_charged_to_its_own_budget() -> None:
    budgets = Restart(crash=2, lost=1)
    assert [may_restart(budgets, {"crash": spent, "lost": 9}, "crash") for spent in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert may_restart(budgets, {"crash": 9}, "lost")
    assert not may_restart(budgets, {}, "preempted")


def test_what_has_no_budget_is_never_started_again() -> None:
    budgets = Restart(crash=9, lost=9, preempted=9, hang=9, rendezvous=9, out_of_memory=9)
    assert not may_restart(budgets, {}, "engine")
    assert not may_restart(budgets, {}, "time")


def test_the_first_restart_has_no_delay_and_each_after_it_a_longer_one_up_to_a_limit() -> None:
    budgets = Restart(backoff_initial_seconds=5.0, backoff_factor=3.0, backoff_maximum_seconds=60.0)
    assert [delay_before(budgets, restarts) for restarts in range(6)] == [0.0, 5.0, 15.0, 45.0, 60.0, 60.0]


@settings(deadline=None)
@given(
    initial=st.floats(0, 1e9),
    more=st.floats(0, 1e9),
    factor=st.floats(1, 100),
    restarts=st.integers(0, 6000),
)
def test_no_delay_is_shorter_than_the_one_before_or_longer_than_the_limit(
    initial: float, more: float, factor: float, restarts: int
) -> None:
    budgets = Restart(backoff_initial_seconds=initial, backoff_factor=factor, backoff_maximum_seconds=initial + more)
    first, second = delay_before(budgets, restarts), delay_before(budgets, restarts + 1)
    assert 0 <= first <= second <= initial + more


def test_codes_are_numbers_and_ranges_and_nobody_who_ended_well_has_one() -> None:
    budgets = Restart(permanent_codes=("2", "64-78"))
    ends = [Exit(code=code) for code in (0, 1, 2, 63, 64, 78, 79)]
    assert [is_permanent(budgets, end) for end in ends] == [False, False, True, False, True, True, False]
    assert not is_permanent(budgets, Exit(message="nobody saw it"))
    assert is_permanent(Restart(permanent_codes=("137",)), Exit(signal=9))
