"""The environment in the plan of a spec."""

from __future__ import annotations

import pytest

from drumline.load.engine import known_spec_type
from drumline.plan.environment import environment_problems, pythons_of_tensorflow
from drumline.plan.types import Environment, ReplicaId
from drumline.spec.read import read_spec
from scaffold.plans import plan_of


def test_without_an_environment_nothing_is_built() -> None:
    plan = plan_of("roles: {worker: 2}")
    assert plan.environment is None
    assert plan.helpers == ()


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("environment: {}", Environment()),
        ("environment: [numpy, six]", Environment(("numpy", "six"))),
        ("environment: {python: 3.10}", Environment((), ("3.10",))),
        ("environment: {python: /opt/bin/python, requirements: [six]}", Environment(("six",), ("/opt/bin/python",))),
    ],
)
def test_an_environment_has_a_python_and_requirements(text: str, environment: Environment) -> None:
    assert plan_of(text).environment == environment


def test_a_version_of_tensorflow_makes_an_environment_with_supported_pythons() -> None:
    plan = plan_of("tensorflow: {version: 2.15.1}\nenvironment: [numpy]")
    assert plan.environment == Environment(
        (
            "tensorflow-cpu==2.15.1; sys_platform == 'linux' and platform_machine == 'x86_64'",
            "tensorflow==2.15.1; sys_platform != 'linux' or platform_machine != 'x86_64'",
            "numpy",
        ),
        ("3.11", "3.10", "3.9"),
    )


@pytest.mark.parametrize(
    "claim",
    [
        "resources: {gpus: 1}",
        "roles: {worker: {replicas: 2, resources: {gpus: 1}}}",
        "roles: {chief: {first: {resources: {gpus: 1}}}}",
    ],
)
def test_replicas_with_gpus_get_the_build_with_cuda(claim: str) -> None:
    def first(version: str) -> str:
        environment = plan_of(f"{claim}\ntensorflow: {{version: {version}}}").environment
        assert environment
        return environment.requirements[0]

    assert first("2.15.1") == "tensorflow[and-cuda]==2.15.1"
    assert first("2.14.0") == "tensorflow[and-cuda]==2.14.0"
    assert first("2.13") == "tensorflow==2.13.*"


def test_the_environment_is_built_before_data_is_prepared() -> None:
    plan = plan_of("environment: [six]\ndata: {path: a, prepare: make}")
    assert plan.helpers == (ReplicaId("build", 0), ReplicaId("prepare", 0))
    assert plan.all_ids[:2] == plan.helpers


@pytest.mark.parametrize(
    ("version", "pythons"),
    [
        ("2.5.3", ("3.9",)),
        ("2.11.0", ("3.10", "3.9")),
        ("2.15.1", ("3.11", "3.10", "3.9")),
        ("2.16", ("3.12", "3.11", "3.10", "3.9")),
        ("2.99.0", ()),
    ],
)
def test_each_version_of_tensorflow_has_supported_pythons(version: str, pythons: tuple[str, ...]) -> None:
    assert pythons_of_tensorflow(version) == pythons


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("environment: {python: 3.9}", None),
        ("environment: {python: 3.8}", "`drumline.runtime` needs Python 3.9 or newer, not 3.8"),
        ("environment: {python: 3.8.18}", "`drumline.runtime` needs Python 3.9 or newer, not 3.8.18"),
        ("environment: {python: 2.7}", "expected a version such as 3.11, or the path of an interpreter, got `2.7`"),
        ("environment: {python: /opt/bin/python2}", None),
        ("tensorflow: {version: 2.5.0}", None),
        ("tensorflow: {version: 2.4.4}", "TensorFlow 2.4.4 runs on no Python from 3.9 on"),
        ("tensorflow: {version: 2.15.1}\nframework: jax", "installs TensorFlow, but the framework is `jax`"),
        ("tensorflow: {version: 2.15.1}\nenvironment: {python: 3.11}", None),
        (
            "tensorflow: {version: 2.15.1}\nenvironment: {python: 3.12}",
            "TensorFlow 2.15.1 runs on Python 3.9 to 3.11, not on 3.12",
        ),
        ("tensorflow: {version: 2.99.0}\nenvironment: {python: 3.12}", None),
    ],
)
def test_an_environment_that_cannot_be_built_is_a_problem(text: str, problem: str | None) -> None:
    spec = read_spec(f"run: python train.py\n{text}\n".encode(), "drumline.yml", known_spec_type()).spec
    assert [words for _, words in environment_problems(spec)] == ([] if problem is None else [problem])


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "the one that launches, in an environment of its own"),
        (1, "the one that launches, in an environment of its own, with r0"),
        (5, "the one that launches, in an environment of its own, with r0, r1, r2, r3, r4"),
        (6, "the one that launches, in an environment of its own, with r0, r1, r2, r3, r4 and 1 more"),
    ],
)
def test_the_first_five_requirements_of_an_environment_are_named(count: int, shown: str) -> None:
    assert str(Environment(tuple(f"r{number}" for number in range(count)))) == shown


def test_the_suitable_pythons_are_listed_as_alternatives() -> None:
    assert str(Environment((), ("3.11", "3.10"))) == "3.11 or 3.10, in an environment of its own"
