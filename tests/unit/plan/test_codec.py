"""A plan that is written as JSON is read back equal, and invalid data is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumline.plan.codec import from_data, plan_from_json, plan_to_json, read_options, to_data, to_options
from drumline.plan.types import ReplicaId, Secret
from drumline.record import Record, field_names, to_dict
from scaffold.plans import plan_of

HERE = Path(__file__).parent

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


@pytest.mark.parametrize("name", ["least", "most", "ssh"])
def test_a_plan_of_version_1_is_read_with_the_defaults_of_version_1(name: str) -> None:
    plan = plan_from_json((HERE / "version1" / f"{name}.json").read_text())
    assert json.loads(plan_to_json(plan)) == json.loads((HERE / "version2" / f"{name}.json").read_text())


def test_the_volume_of_data_in_version_1_is_ignored() -> None:
    data = json.loads((HERE / "version1" / "most.json").read_text())
    with_volume = {**data, "data": [{**each, "volume": "claim"} for each in data["data"]]}
    assert with_volume["data"]
    assert plan_from_json(json.dumps(with_volume)) == plan_from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("image", "builds"), [({"name": "a"}, False), ({"dockerfile": "Dockerfile"}, True), ({"base": "a"}, True)]
)
def test_a_plan_of_version_1_builds_an_image_that_has_no_name_yet(image: dict[str, Any], builds: bool) -> None:
    data = json.loads((HERE / "version1" / "most.json").read_text())
    plan = plan_from_json(json.dumps({**data, "cluster": {**data["cluster"], "image": image}}))
    assert plan.builds is builds


@pytest.mark.parametrize(
    "changes",
    [{"cluster": []}, {"hosts": 1}, {"hosts": {"all": [1]}}, {"data": [1]}, {"cluster": {"data": []}}, {"data": 1}],
)
def test_invalid_data_of_version_1_is_refused(changes: dict[str, Any]) -> None:
    data = {**json.loads((HERE / "version1" / "least.json").read_text()), **changes}
    with pytest.raises(ValueError, match="not a plan"):
        plan_from_json(json.dumps(data))


def test_a_plan_is_written_with_every_field() -> None:
    def check(data: object, value: object) -> None:
        if isinstance(value, Record) and not isinstance(value, Secret | ReplicaId):
            assert isinstance(data, dict)
            assert list(data) == list(field_names(type(value)))
            for name, each in to_dict(value).items():
                check(data[name], each)
        elif isinstance(value, tuple):
            assert isinstance(data, list)
            for item, each in zip(data, value, strict=True):
                check(item, each)

    plan = plan_of(EVERYTHING)
    data = json.loads(plan_to_json(plan))
    assert data.pop("v") == 2
    check(data, plan)


class Options(Record):
    count: int = 1
    words: tuple[str, ...] = ()


def test_the_options_of_a_plan_are_read_once_and_not_confused_with_equal_ones() -> None:
    ours, others = {"count": 3}, {"count": 3}
    first = read_options(Options, ours)
    assert first == Options(3)
    assert read_options(Options, ours) is first
    assert read_options(Options, others) is not first


def test_options_are_written_with_their_defaults() -> None:
    assert to_options(Options()) == {"count": 1, "words": []}


def test_a_whole_number_is_read_as_a_fraction_unless_it_is_beyond_all_bounds() -> None:
    assert repr(from_data(float, 3)) == "3.0"
    assert from_data(float, 2**63 - 1) == 2**63
    for data in (2**63, -(2**63), True):
        with pytest.raises(TypeError):
            from_data(float, data)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run": "a\0b"}, "a text with a NUL character"),
        ({"parameters": {"a\0b": "x"}}, "a text with a NUL character"),
        ({"replicas": [["a\0b"]]}, "a text with a NUL character"),
        ({"timeouts": {"run_seconds": 2**63}}, "a number beyond all bounds"),
        ({"timeouts": {"run_seconds": -float("inf")}}, "a number beyond all bounds"),
    ],
)
def test_a_plan_with_a_value_that_no_process_or_machine_can_have_is_refused(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        plan_from_json(written(**changes))


class Before(Record):
    count: int = 1
    words: tuple[str, ...] = ()


class After(Record):
    count: int = 2
    words: tuple[str, ...] = ()


def test_a_value_means_the_same_after_a_default_has_changed() -> None:
    assert to_data(Before()) == {"count": 1}
    assert from_data(After, to_data(Before())) == After(1)
    assert to_data(Before(), whole=True) == {"count": 1, "words": []}


def test_a_plan_of_this_version_that_lacks_a_field_is_refused() -> None:
    data = json.loads(written())
    del data["restart"]["crash"]
    with pytest.raises(ValueError, match="not a plan: a Restart without crash"):
        plan_from_json(json.dumps(data))


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
        '{"v": 3}',
        '{"v": 2}',
        '{"v": 1}',
        '{"v": []}',
        "[" * 100_000,
        written(v=3),
        written(v=1, future=1),
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
def test_an_invalid_plan_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a plan|Expecting"):
        plan_from_json(text)


@pytest.mark.parametrize("value", [None, 1, ["a"], {"from": 1}, {}, {"to": "A"}])
def test_a_variable_is_text_or_a_secret_and_nothing_else(value: object) -> None:
    data = json.loads(written())
    data["replicas"][0]["env"]["A"] = value
    with pytest.raises(ValueError, match="not a plan"):
        plan_from_json(json.dumps(data))
