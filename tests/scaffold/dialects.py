"""Files of older systems, from their guides, and checks for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from drumline.engine.kubernetes.plan_options import Cluster
from drumline.engine.kubernetes.plan_options import cluster_of as cluster_options_of
from drumline.errors import SpecError
from drumline.load.engine import plan_spec
from drumline.load.load import check_spec
from drumline.plan.types import Plan
from drumline.spec.dialect import draft_of
from drumline.spec.dialect.write import write

FILES = Path(__file__).parents[1] / "dialects"
GUIDE = (FILES / "riseml.yml").read_text()
TFJOB = (FILES / "tfjob.yaml").read_text()
TFJOB_V1 = (FILES / "tfjob-v1.yaml").read_text()
# Claims, a Job that fills one of them, and a TFJob.
TRIO = f"{(FILES / 'storage.yaml').read_text()}---\n{TFJOB}"
WORKER = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "a", "command": ["train"]}]}}}
ENGINES = ("local", "kubernetes", "jobset", "tfjob")


def plan_of(text: str, engine: str = "local") -> Plan:
    """Return the plan of a file."""
    return plan_spec(check_spec(text.encode(), "file.yml")[0], on=engine)


def warnings_of(text: str) -> list[str]:
    """Return the warnings about a file without problems, without its name."""
    _, warnings = check_spec(text.encode(), "file.yml")
    return [str(warning).removeprefix("file.yml:") for warning in warnings]


def converted(text: str) -> str:
    """Return the drumline.yml to which a file is converted."""
    draft = draft_of((text.encode(), "file.yml"))
    assert draft is not None
    return write(draft)


def assert_same_plan_when_converted(text: str) -> None:
    """Check that a file and its conversion, which has no dialect, have the same plan on every engine."""
    native = converted(text)
    assert draft_of((native.encode(), "drumline.yml")) is None
    for engine in ENGINES:
        assert plan_of(native, engine) == plan_of(text, engine)


def refused(text: str) -> list[str]:
    """Return every problem of a file, without its name."""
    with pytest.raises(SpecError) as caught:
        check_spec(text.encode(), "file.yml")
    return [str(problem).removeprefix("file.yml:") for problem in caught.value.problems]


def a_job(roles: Mapping[str, Any] | None = None, *, version: str = "v1", name: str = "digits", **spec: Any) -> str:
    """Return a TFJob of one worker, unless other roles are given."""
    whole = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {**spec, "tfReplicaSpecs": roles or {"Worker": WORKER}},
    }
    return yaml.safe_dump(whole, sort_keys=False)


def a_role(policy: str | None = None, replicas: int = 1, **container: Any) -> dict[str, Any]:
    own = {"name": "tensorflow", "image": "a", "command": ["train"], **container}
    said = {"replicas": replicas, "template": {"spec": {"containers": [own]}}}
    return {**said, "restartPolicy": policy} if policy else said


def cluster_of(text: str) -> Cluster:
    return cluster_options_of(plan_of(text, "kubernetes"))
