"""A plan written down reads back equal, and what is no plan is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drumline.plan.codec import plan_from_json, plan_to_json
from plans import plan_of

EVERYTHING = """
    project: digits
    name: night
    run: [cd src, "python train.py --lr {{ lr }}"]
    framework: tensorflow
    tensorflow: {tf_config: always, evaluator_in_cluster: true}
    parameters: {lr: 0.001}
    env: {TOKEN: {from: MY_TOKEN}, A: "{from: x}"}
    resources: {cpus: 1, memory: 1GiB, gpus: 1}
    roles: {chief: {port: [9]}, worker: {replicas: 2, port: 9, first: {env: {B: 1}}}, evaluator: 1}
    output: out
    checkpoint: ckpt
    data: [{name: a, path: a, prepare: make-data}, {name: b, path: b, volume: claim}]
    restart: {budget: 1, backoff: {initial: 2}}
    timeouts: {run: 1h, progress: never}
    engine:
      kubernetes: {image: {base: a, install: [b]}, output: {size: 1GiB}, tolerations: [x], pod: {a: [1, {b: null}]}}
"""


def written(**changes: Any) -> str:
    return json.dumps({**json.loads(plan_to_json(plan_of(EVERYTHING))), **changes})


def test_a_plan_with_everything_in_it_reads_back_equal() -> None:
    plan = plan_of(EVERYTHING)
    assert plan_from_json(plan_to_json(plan)) == plan


def test_what_is_left_at_its_default_is_not_written() -> None:
    assert json.loads(plan_to_json(plan_of("framework: plain"))) == {
        "v": 1,
        "run": "4",
        "project": "digits",
        "name": "digits",
        "framework": "plain",
        "engine": "local",
        "replicas": [
            {
                "id": "worker.0",
                "name": "digits-4-worker-0",
                "argv": ["python", "train.py"],
                "env": {},
                "resources": {},
            }
        ],
        "success": "all-workers",
    }


def test_a_secret_is_written_as_the_name_of_its_variable() -> None:
    assert json.loads(written())["replicas"][0]["env"]["TOKEN"] == {"from": "MY_TOKEN"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        "{}",
        '{"v": 2}',
        '{"v": 1}',
        "[" * 100_000,
        written(v=2),
        written(v=None),
        written(run=4),
        written(run=None),
        written(replicas="worker.0"),
        written(replicas={}),
        written(replicas=["worker.0"]),
        written(replicas=[{"id": "worker.0"}]),
        written(tf_config_always=1),
        written(parameters=[]),
        written(parameters={"a": 1}),
        written(restart={"crash": True}),
        written(restart={"crash": 1.5}),
        written(restart={"crush": 1}),
        written(timeouts={"run_seconds": "1h"}),
        written(future="x"),
        written(preparations=[{"name": "prepare"}]),
    ],
)
def test_what_is_no_plan_of_this_version_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a plan|Expecting"):
        plan_from_json(text)


@pytest.mark.parametrize("value", [None, 1, ["a"], {"from": 1}, {}, {"to": "A"}])
def test_a_variable_is_text_or_a_secret_and_nothing_else(value: object) -> None:
    data = json.loads(written())
    data["replicas"][0]["env"]["A"] = value
    with pytest.raises(ValueError, match="not a plan"):
        plan_from_json(json.dumps(data))
