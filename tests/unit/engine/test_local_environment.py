"""The environment of a replica is that of the launching process, overridden by its launch."""

from __future__ import annotations

import pytest

from drumline.engine.local.environment import complete_environment
from drumline.errors import EngineError
from drumline.plan.bind import bind
from drumline.plan.types import Launch
from scaffold.plans import place_of, plan_of


def launch_of(text: str) -> Launch:
    plan = plan_of(text)
    (launch,) = bind(plan, {plan.replicas[0].id: place_of(plan, python_dir="/venv/bin")})
    return launch


def test_a_launch_overrides_the_environment_of_the_launching_process() -> None:
    env = complete_environment(launch_of("env: {A: spec}"), {"A": "mine", "B": "mine"})
    assert (env["A"], env["B"], env["DRUMLINE_ROLE"]) == ("spec", "mine", "worker")


@pytest.mark.parametrize(("path", "expected"), [({}, "/venv/bin"), ({"PATH": "/bin"}, "/venv/bin:/bin")])
def test_the_python_that_launches_comes_first_in_path(path: dict[str, str], expected: str) -> None:
    assert complete_environment(launch_of(""), path)["PATH"] == expected


def test_a_secret_has_the_value_of_the_launching_environment() -> None:
    env = complete_environment(launch_of("env: {TOKEN: {from: MINE}, MINE: other}"), {"MINE": "s3cret"})
    assert (env["TOKEN"], env["MINE"]) == ("s3cret", "other")


@pytest.mark.parametrize("environ", [{}, {"MINE": ""}])
def test_a_secret_that_is_not_set_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(EngineError) as refused:
        complete_environment(launch_of("env: {TOKEN: {from: MINE}}"), environ)
    assert refused.value.message == "worker.0 needs the secret TOKEN from the variable MINE, which is not set"
    assert refused.value.hint == "set it where you launch: `export MINE=…`"
