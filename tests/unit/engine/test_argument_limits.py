"""Arguments and variables that Linux cannot pass to a process are found."""

from __future__ import annotations

import pytest

from drumline.engine.argument_limits import too_long_arguments
from drumline.plan.bind import bind
from drumline.plan.types import Launch
from scaffold.plans import placement_of, plan_of

LONGEST = 131_071


def launches_with(text: str = "roles: {worker: 2}", **env: str) -> list[Launch]:
    plan = plan_of(text)
    return [each.replace(env={**each.env, **env}) for each in bind(plan, placement_of(plan))]


@pytest.mark.parametrize(("value", "fits"), [("x" * (LONGEST - 2), True), ("x" * (LONGEST - 1), False)])
def test_a_variable_fits_with_its_name_and_the_sign_between_them(value: str, fits: bool) -> None:
    problems = list(too_long_arguments(launches_with(A=value)))
    assert [each.partition(", more than the 131,071 that Linux passes")[0] for each in problems] == (
        [] if fits else ["A of worker.0 has 131,072 bytes"]
    )


def test_length_is_counted_in_bytes() -> None:
    assert len(list(too_long_arguments(launches_with(A="ü" * 65_536)))) == 1


def test_an_argument_of_the_command_may_be_too_long_too() -> None:
    (launch, _) = launches_with()
    for length, count in ((LONGEST, 0), (LONGEST + 1, 1)):
        replica = launch.replica.replace(argv=("python", "x" * length))
        problems = list(too_long_arguments([launch.replace(replica=replica)]))
        assert [each.startswith("a word in the command of worker.0 has 131,072 bytes") for each in problems] == [
            True
        ] * count


def test_a_shared_cluster_is_counted_with_the_whole_variable_that_has_it() -> None:
    plan = plan_of("roles: {worker: 3000}")
    placement = {name: place.replace(host="h" * 60) for name, place in placement_of(plan).items()}
    (problem,) = too_long_arguments(bind(plan, placement))
    assert problem.startswith("TF_CONFIG of worker.0 has ")
