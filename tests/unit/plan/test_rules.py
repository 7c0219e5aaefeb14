"""The rules about several keys. Their messages are in `tests/scaffold/bad_specs.txt`."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given

from drumline.errors import SpecError
from drumline.load.engine import all_spec_problems, known_spec_type, plan_spec
from drumline.load.load import check_spec
from drumline.spec.read import read_spec
from drumline.spec.types import Restart, Role, Roles, Run, Spec, Value
from scaffold.strategies import specs, texts, to_yaml, wild_specs

SMALL = Spec(project="digits", run=Run(shell="python train.py"))


@given(specs())
def test_a_spec_without_a_problem_can_be_planned(spec: Spec) -> None:
    read_back, _ = check_spec(to_yaml(spec).encode(), "drumline.yml")
    assert read_back == spec
    plan = plan_spec(spec)
    asked = [role for role in (spec.roles.chief, spec.roles.worker, spec.roles.ps, spec.roles.evaluator) if role]
    assert len(plan.replicas) == (sum(role.replicas for role in asked) or 1)
    assert all(replica.argv and replica.argv[0] for replica in plan.replicas)


@given(wild_specs())
def test_a_well_formed_spec_is_refused_only_because_of_fatal_problems(spec: Spec) -> None:
    fatal = [each for each in all_spec_problems(spec) if each.fatal]
    with pytest.raises(SpecError) if fatal else nullcontext() as caught:
        check_spec(to_yaml(spec).encode(), "drumline.yml")
    assert not caught or len(caught.value.problems) == len(fatal)


@given(wild_specs())
def test_the_path_of_each_problem_has_a_line(spec: Spec) -> None:
    reading = read_spec(to_yaml(spec).encode(), "drumline.yml", known_spec_type())
    for each in all_spec_problems(spec):
        problem = reading.problem(each.path, each.message)
        assert problem.line is not None
        assert problem.message.isprintable()


@given(specs(), texts)
def test_no_value_of_a_parameter_causes_a_problem(spec: Spec, value: str) -> None:
    other = spec.with_parameters(dict.fromkeys(spec.parameters, value))
    assert [each for each in all_spec_problems(other) if each.fatal] == []
    plan_spec(other)


def test_the_smallest_spec_has_no_problems_or_warnings() -> None:
    assert list(all_spec_problems(SMALL)) == []


@pytest.mark.parametrize(
    ("env", "fatal"),
    [
        ({"TF_CONFIG": Value(value="x")}, True),
        ({"TF_CONFIG": Value(value="x", override=True)}, False),
        ({"A": Value(from_="B")}, False),
    ],
)
def test_a_variable_of_the_rendezvous_needs_an_override_at_any_level(env: dict[str, Value], fatal: bool) -> None:
    everywhere = [
        Spec(project="x", run=SMALL.run, env=env),
        Spec(project="x", run=SMALL.run, roles=Roles(worker=Role(env=env))),
    ]
    assert [any(each.fatal for each in all_spec_problems(spec)) for spec in everywhere] == [fatal, fatal]


def messages(spec: Spec) -> list[str]:
    return [each.message for each in all_spec_problems(spec)]


@pytest.mark.parametrize(
    ("argv", "is_found"),
    [
        (("bash", "-c", "echo it's"), True),
        (("/bin/sh", "-ec", "echo it's"), True),
        (("bash", "train.sh", "echo it's"), False),
        (("python", "-c", "echo it's"), False),
    ],
)
def test_an_unclosed_quote_in_argv_is_reported_only_for_the_command_of_a_shell(
    argv: tuple[str, ...], is_found: bool
) -> None:
    found = messages(Spec(project="digits", run=Run(argv=argv)))
    assert ["is never closed" in each for each in found] == [True] * is_found


@pytest.mark.parametrize(("code", "is_allowed"), [("1", True), ("0", False), ("255", True), ("256", False)])
def test_a_permanent_exit_code_is_from_1_to_255(code: str, is_allowed: bool) -> None:
    spec = Spec(project="digits", run=SMALL.run, restart=Restart(budget=1, permanent=(code,)))
    assert any("exit codes of failures are 1 to 255" in each for each in messages(spec)) is not is_allowed


@pytest.mark.parametrize(("before", "is_suggested"), [(99, True), (100, False)])
def test_a_parameter_is_suggested_if_it_is_among_the_first_hundred(before: int, is_suggested: bool) -> None:
    names = (*(f"a{number}" for number in range(before)), "learning-rate")
    parameters: dict[str, str | None] = dict.fromkeys(names, "1")
    spec = Spec(project="digits", run=Run(shell="train {{ learning-rat }}"), parameters=parameters)
    (found,) = (each for each in messages(spec) if "is not among the parameters" in each)
    assert ("did you mean `learning-rate`?" in found) is is_suggested
