"""Functions that make plans and placements for tests."""

from __future__ import annotations

import re
import textwrap

from drumline.load.engine import all_spec_problems, known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.plan.types import Launch, LaunchValue, Place, Placement, Plan
from drumline.spec.read import read_spec
from drumline.spec.types import Spec


def spec_of(text: str) -> Spec:
    """Return the spec of this YAML; it must have no problem."""
    reading = read_spec(textwrap.dedent(text).encode(), "drumline.yml", known_spec_type())
    assert not reading.problems
    assert not [problem for problem in all_spec_problems(reading.spec) if problem.fatal]
    return reading.spec


def plan_of(text: str, *, run: str = "4") -> Plan:
    """Return the plan of this YAML; project and command may be left out."""
    text = textwrap.dedent(text)
    for key, value in (("project", "digits"), ("run", "python train.py")):
        if not re.search(rf"^{key}:", text, re.MULTILINE):
            text = f"{key}: {value}\n{text}"
    return plan_spec(spec_of(text), run=run)


def place_of(plan: Plan, *, port: int = 2222, host: str = "127.0.0.1", python_dir: str | None = None) -> Place:
    """Return a made-up place."""
    return Place(
        host=host,
        port=port,
        workdir="/spec",
        output_dir="/out",
        checkpoint_dir="/out/checkpoint",
        data_dirs=tuple(f"/data/{number}" for number in range(len(plan.data))),
        python_dir=python_dir,
    )


def placement_of(plan: Plan, *, hosts: bool = False) -> Placement:
    """Return a made-up placement: consecutive ports from 2222 on one host, or one host for each replica."""
    return {
        replica.id: place_of(plan, host=f"{replica.id}.example") if hosts else place_of(plan, port=2222 + number)
        for number, replica in enumerate(plan.replicas)
    }


def launches_of(text: str) -> dict[str, Launch]:
    """Return the launch of every replica, by its name."""
    plan = plan_of(text)
    return {str(launch.replica.id): launch for launch in bind(plan, placement_of(plan))}


def envs_of(text: str) -> dict[str, dict[str, LaunchValue]]:
    """Return the variables of every replica, by its name."""
    return {name: dict(launch.env) for name, launch in launches_of(text).items()}
