"""The same plan for another run."""

from __future__ import annotations

from drumline.plan.renumber import renumbered
from plans import plan_of


def test_a_plan_with_another_number_is_what_would_have_been_made_for_it() -> None:
    spec = "name: My_Digits\nframework: plain\nroles: {chief: 1, worker: 2, ps: 1}"
    assert renumbered(plan_of(spec, run="4"), "17") == plan_of(spec, run="17")
