"""Jinja templates whose parameters stand at their top: rendered as they were, and read as a spec."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dialect import assert_same_plan_when_converted, plan_of, remarks_of
from drumline.errors import InputError, SpecError
from drumline.load.load import check_spec
from drumline.plan.cluster import Volume
from drumline.spec.dialect.jinja import Template

SHIPPED = files("drumline.cli").joinpath("templates", "kubernetes_jinja", "myjob.template.jinja").read_text("utf-8")
TEN = {
    *("script", "name", "worker_replicas", "port", "model_checkpoint_dir", "checkpoint_pvc_name", "image", "deploy"),
    *("create_pvc_checkpoint", "create_volume_inspector"),
}
CLAIM, TRAIN, INSPECT = (
    ("create_volume_inspector=false",),
    ("create_pvc_checkpoint=false", "create_volume_inspector=false", "deploy=true"),
    ("create_pvc_checkpoint=false",),
)


def rendered(*given: str, text: str = SHIPPED) -> list[dict[str, Any]]:
    template = Template(text, "my.jinja", given)
    template.check()
    return [each for each in yaml.safe_load_all(template.render()) if each]


def header(**parameters: Any) -> str:
    """A template that only sets parameters."""
    return "".join(f"{{%- set {name} = {value!r} -%}}\n" for name, value in parameters.items())


def refused(text: str, *given: str) -> str:
    with pytest.raises(SpecError) as caught:
        rendered(*given, text=text)
    return str(caught.value)


def test_the_template_that_is_shipped_has_the_ten_parameters() -> None:
    assert set(Template(SHIPPED, "my.jinja").parameters) == TEN


def test_its_passes_make_the_claim_train_and_look() -> None:
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered(*CLAIM)] == [
        ("PersistentVolumeClaim", "pvc-demo")
    ]
    assert [each["kind"] for each in rendered(*TRAIN)] == ["Service", "Job", "Service", "Job"]
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered(*INSPECT)] == [("Pod", "digits-inspector")]


def test_each_worker_has_the_same_cluster_and_an_index_that_is_a_number() -> None:
    jobs = [each for each in rendered(*TRAIN, "worker_replicas=3", "port=2222") if each["kind"] == "Job"]
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs]
    variables = [{each["name"]: each["value"] for each in container["env"]} for container in containers]
    hosts = [f"digits-worker-{index}:2222" for index in range(3)]
    assert [json.loads(each["TF_CONFIG"]) for each in variables] == [
        {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}} for index in range(3)
    ]


def test_one_setting_says_where_the_claim_is_and_what_the_program_is_told() -> None:
    first, second = (
        each["spec"]["template"]["spec"]
        for each in rendered(*TRAIN, "model_checkpoint_dir=/models", "checkpoint_pvc_name=kept")
        if each["kind"] == "Job"
    )
    assert first["volumes"] == [{"name": "output", "persistentVolumeClaim": {"claimName": "kept"}}]
    assert second["volumes"] == [{"name": "output", "emptyDir": {}}]
    for pod in (first, second):
        assert pod["containers"][0]["volumeMounts"] == [{"name": "output", "mountPath": "/models"}]
        assert {"name": "OUTPUT_DIR", "value": "/models"} in pod["containers"][0]["env"]


def test_whatever_stands_in_a_parameter_arrives_as_it_is() -> None:
    script = 'a b "c": {{ d }} # e'
    (job, _) = [each for each in rendered(*TRAIN, f"script={script}") if each["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["python", script]


@pytest.mark.parametrize(
    ("given", "report"),
    [
        (("deploy=true",), "my.jinja:17: create_volume_inspector: the volume is held by whoever trains"),
        (("checkpoint_pvc_name=",), "my.jinja:16: create_pvc_checkpoint: needs `checkpoint_pvc_name`, which is empty"),
        (("worker_replicas=0",), "my.jinja:11: worker_replicas: expected a whole number from 1 to 1000, got 0"),
        (("port=70000",), "my.jinja:13: port: expected a whole number from 1 to 65535, got 70000"),
        (("name=Not_A_Label",), "my.jinja:9: name: expected at most 50 small letters, digits and `-`"),
    ],
)
def test_its_rules_are_kept(given: tuple[str, ...], report: str) -> None:
    assert report in refused(SHIPPED, *given)


def test_flags_without_a_claim_are_refused_together() -> None:
    text = header(worker_replicas=2, create_pvc_checkpoint=True, create_volume_inspector=True)
    assert refused(text) == (
        "my.jinja:2: create_pvc_checkpoint: needs `checkpoint_pvc_name`, which is not set\n"
        "my.jinja:3: create_volume_inspector: needs `checkpoint_pvc_name`, which is not set"
    )


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("a: 1\n{% if deploy %}b: 2{% endif %}", "my.jinja:2: 'deploy' is undefined; set it at the top"),
        ("{% set a = 1 %}\n\nb: {{ A }}", "my.jinja:3: 'A' is undefined; set it at the top"),
        ("{% set a = {} %}\nb: {{ a.c }}", "my.jinja:2: 'dict object' has no attribute 'c'"),
        ("a\n{% if %}", "my.jinja:2: not a valid template: Expected an expression, got 'end of statement block'"),
        ("a\n{% for x in y %}", "my.jinja:2: not a valid template: Unexpected end of template."),
        ("\n{{ ''.__class__.__mro__ }}", "my.jinja:2: access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 1 / 0 }}", "my.jinja:1: division by zero"),
        ("\n{% include 'other' %}", "my.jinja:2: includes or extends another file, which a template here cannot"),
        ("{% for a in range(1000000) %}{% endfor %}", "my.jinja:1: Range too big"),
        ("{{ 'a' * 10000 }}" * 2000, "my.jinja:1: makes more than 16,000,000 characters"),
    ],
)
def test_what_goes_wrong_in_a_template_is_told_with_its_line(text: str, report: str) -> None:
    assert refused(text).startswith(report)


@pytest.mark.parametrize(
    ("given", "report"),
    [
        ("workers=3", "-p workers=3: the template has no parameter `workers`"),
        ("worker_replicas=many", "-p worker_replicas=many: expected a whole number"),
        ("deploy=yes", "-p deploy=yes: expected true or false"),
        ("deploy", "-p deploy: expected NAME=VALUE"),
    ],
)
def test_what_is_given_has_to_be_of_the_kind_that_stands_there(given: str, report: str) -> None:
    with pytest.raises(InputError, match=report):
        rendered(given)


def test_the_top_of_a_template_is_a_spec() -> None:
    plan = plan_of(SHIPPED, "kubernetes")
    assert [each.argv for each in plan.replicas] == [("python", "train.py")] * 2
    assert {each.port for each in plan.replicas} == {5000}
    assert (plan.name, plan.output, plan.cluster and plan.cluster.output) == (
        "digits",
        "/pvcmnt",
        Volume(None, 10 * 10**9),
    )
    assert remarks_of(SHIPPED) == [
        "17: create_volume_inspector: needs no pod of its own: `drumline inspect ID` looks at what a run has written"
    ]


def test_a_claim_that_is_there_is_named() -> None:
    cluster = plan_of(
        SHIPPED.replace("create_pvc_checkpoint = True", "create_pvc_checkpoint = False"), "jobset"
    ).cluster
    assert cluster is not None
    assert cluster.output == Volume("pvc-demo")


def test_the_templates_for_buckets_and_parameter_servers_are_read_as_far_as_they_go() -> None:
    text = header(
        name="resnet",
        image="i",
        worker_replicas=5,
        ps_replicas=2,
        has_coordinator=True,
        has_eval=False,
        has_tensorboard=True,
        script="/resnet.py",
        cmdline_args=["--steps", 30],
        train_log_dir="gs://bucket/logs",
        batch_size=256,
        port=5000,
        num_gpus_per_worker=0,
    )
    plan = plan_of(text)
    assert [str(each.id) for each in plan.replicas] == [
        *("chief.0", *(f"worker.{index}" for index in range(5)), "ps.0", "ps.1")
    ]
    assert plan.replicas[0].argv == ("python", "/resnet.py", "--steps", "30")
    assert plan.replicas[0].env == {"TRAIN_LOG_DIR": "gs://bucket/logs", "BATCH_SIZE": "256"}
    assert (plan.success, plan.tensorboard) == ("chief", True)
    assert remarks_of(text) == ["13: num_gpus_per_worker: is not carried over"]


def test_a_parameter_that_is_made_of_others_is_worked_out() -> None:
    made = "{%- set cmdline_args = ['--log=' + log_dir, '--workers=' ~ worker_replicas] -%}\n"
    text = header(name="a", image="i", worker_replicas=2, script="t.py", log_dir="gs://b") + made
    assert plan_of(text).replicas[0].argv == ("python", "t.py", "--log=gs://b", "--workers=2")
    given = check_spec(text.encode(), "my.jinja", given=["log_dir=here"])[0]
    assert given.run is not None
    assert given.run.argv == ("python", "t.py", "--log=here", "--workers=2")


def test_a_template_of_something_else_is_no_spec() -> None:
    with pytest.raises(SpecError, match="sets no `worker_replicas` and no `script`"):
        check_spec(b"{% set a = 1 %}\nb: {{ a }}\n", "my.jinja")


labels = st.from_regex(r"\A[a-z][a-z0-9]{0,8}\Z")
texts = st.sampled_from(("a", "a b", "it's", "/x/y", "é", "1e-6", "no", "$(id)", '"'))


@given(
    st.fixed_dictionaries(
        {"name": labels, "image": labels, "worker_replicas": st.integers(1, 5), "script": texts},
        optional={
            "port": st.integers(1, 60000),
            "model_checkpoint_dir": st.sampled_from(("/pvcmnt", "/a b")),
            "checkpoint_pvc_name": labels,
            "create_pvc_checkpoint": st.booleans(),
            "create_volume_inspector": st.booleans(),
            "deploy": st.booleans(),
            "ps_replicas": st.integers(0, 2),
            "has_coordinator": st.booleans(),
            "cmdline_args": st.lists(texts, max_size=2),
            "batch_size": st.integers(1, 512),
            "data_dir": texts,
        },
    )
)
def test_what_is_converted_has_the_same_plan(parameters: dict[str, Any]) -> None:
    text = header(**parameters)
    try:
        check_spec(text.encode(), "file.yml")
    except SpecError:
        return
    assert_same_plan_when_converted(text)


@pytest.mark.parametrize(
    ("statement", "report"),
    [
        ("{% for a in range(10 ** 12) %}x{% endfor %}", "Range too big"),
        ("{{ 9 ** (9 ** 9) }}", "makes a number of more than 65,536 bits"),
        ("{% set name = 9 ** (9 ** 9) %}", "makes a number of more than 65,536 bits"),
        ("{{ 'x' * 3000000000 }}", "takes more than 512 MB of memory"),
        ("{{ 'x' | center(99999999999) }}", "takes more than 512 MB of memory"),
        ("{{ " + "(" * 400 + "1" + ")" * 400 + " }}", "is nested too deeply"),
        ("{% for a in [1] %}" * 30 + "{% endfor %}" * 30, "is nested too deeply"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "is nested too deeply, or calls itself without end"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ cycler.__init__.__globals__.os }}", "access to attribute '__init__' of 'type' object is unsafe"),
        ("{% include '/etc/passwd' %}", "includes or extends another file, which a template here cannot"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
    ids=lambda value: value[:20],
)
def test_a_template_that_would_take_for_ever_or_all_memory_is_refused(statement: str, report: str) -> None:
    assert report in refused(f"{SHIPPED}\n{statement}\n", "create_pvc_checkpoint=true", "deploy=false")


def test_a_template_that_is_read_as_a_spec_is_bounded_as_well() -> None:
    text = header(name="a", image="i", worker_replicas=2, script="t.py")
    assert plan_of(f"{text}{{% set data_dir = 'x' * 10 ** 12 %}}\n").replicas[0].env == {}
