"""Jinja templates that set their parameters at the top: they are rendered, or read as specs."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.resources import files
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes.plan_options import Volume, cluster_of
from drumline.errors import InputError, SpecError
from drumline.load.load import check_spec
from drumline.spec.dialect.jinja import Template
from scaffold.dialects import assert_same_plan_when_converted, plan_of, warnings_of

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
    """Return a template that only sets parameters."""
    return "".join(f"{{%- set {name} = {value!r} -%}}\n" for name, value in parameters.items())


def refused(text: str, *given: str) -> str:
    with pytest.raises(SpecError) as caught:
        rendered(*given, text=text)
    return str(caught.value)


def test_the_shipped_template_has_the_ten_parameters() -> None:
    assert set(Template(SHIPPED, "my.jinja").parameters) == TEN


def test_the_flags_of_the_shipped_template_render_the_claim_the_training_and_the_inspector() -> None:
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered(*CLAIM)] == [
        ("PersistentVolumeClaim", "pvc-demo")
    ]
    assert [each["kind"] for each in rendered(*TRAIN)] == ["Service", "Job", "Service", "Job"]
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered(*INSPECT)] == [("Pod", "digits-inspector")]


def test_each_worker_gets_the_same_cluster_and_its_index_as_a_number() -> None:
    jobs = [each for each in rendered(*TRAIN, "worker_replicas=3", "port=2222") if each["kind"] == "Job"]
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs]
    variables = [{each["name"]: each["value"] for each in container["env"]} for container in containers]
    hosts = [f"digits-worker-{index}:2222" for index in range(3)]
    assert [json.loads(each["TF_CONFIG"]) for each in variables] == [
        {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}} for index in range(3)
    ]


def test_model_checkpoint_dir_sets_the_mount_path_and_output_dir() -> None:
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


def test_a_parameter_is_rendered_unchanged_whatever_it_contains() -> None:
    script = 'a b "c": {{ d }} # e'
    (job, _) = [each for each in rendered(*TRAIN, f"script={script}") if each["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["python", script]


@pytest.mark.parametrize(
    ("given", "report"),
    [
        (
            ("deploy=true",),
            "my.jinja:17: create_volume_inspector: cannot be combined with `deploy`: the training pods use the volume",
        ),
        (("checkpoint_pvc_name=",), "my.jinja:16: create_pvc_checkpoint: needs `checkpoint_pvc_name`, which is empty"),
        (("worker_replicas=0",), "my.jinja:11: worker_replicas: expected a whole number from 1 to 1000, got 0"),
        (("port=70000",), "my.jinja:13: port: expected a whole number from 1 to 65535, got 70000"),
        (("name=Not_A_Label",), "my.jinja:9: name: expected at most 50 small letters, digits and `-`"),
    ],
)
def test_forbidden_values_are_refused_with_their_lines(given: tuple[str, ...], report: str) -> None:
    assert report in refused(SHIPPED, *given)


def test_all_flags_without_a_claim_are_reported() -> None:
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
        ("\n{% include 'other' %}", "my.jinja:2: includes or extends another file, which is not supported"),
        ("{% for a in range(1000000) %}{% endfor %}", "my.jinja:1: Range too big"),
        ("{{ 'a' * 10000 }}" * 2000, "my.jinja:1: makes more than 16,000,000 characters"),
    ],
)
def test_an_error_in_a_template_is_reported_with_its_line(text: str, report: str) -> None:
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
def test_a_given_value_must_have_the_type_of_the_parameter(given: str, report: str) -> None:
    with pytest.raises(InputError, match=report):
        rendered(given)


def test_the_parameters_of_a_template_are_translated_to_a_spec() -> None:
    plan = plan_of(SHIPPED, "kubernetes")
    assert [each.argv for each in plan.replicas] == [("python", "train.py")] * 2
    assert {each.port for each in plan.replicas} == {5000}
    assert (plan.name, plan.output, cluster_of(plan).output) == (
        "digits",
        "/pvcmnt",
        Volume(None, 10 * 10**9),
    )
    assert warnings_of(SHIPPED) == [
        "17: create_volume_inspector: needs no pod of its own: `drumline inspect ID` shows the files of a run"
    ]


def test_an_existing_claim_is_used_by_its_name() -> None:
    cluster = cluster_of(
        plan_of(SHIPPED.replace("create_pvc_checkpoint = True", "create_pvc_checkpoint = False"), "jobset")
    )
    assert cluster.output == Volume("pvc-demo")


def test_templates_for_buckets_and_parameter_servers_are_read_with_warnings() -> None:
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
    assert warnings_of(text) == ["13: num_gpus_per_worker: is not carried over"]


def test_a_parameter_that_is_computed_from_others_is_evaluated() -> None:
    made = "{%- set cmdline_args = ['--log=' + log_dir, '--workers=' ~ worker_replicas] -%}\n"
    text = header(name="a", image="i", worker_replicas=2, script="t.py", log_dir="gs://b") + made
    assert plan_of(text).replicas[0].argv == ("python", "t.py", "--log=gs://b", "--workers=2")
    given = check_spec(text.encode(), "my.jinja", parameters=["log_dir=here"])[0]
    assert given.run is not None
    assert given.run.argv == ("python", "t.py", "--log=here", "--workers=2")


def test_a_template_without_roles_and_script_is_refused() -> None:
    with pytest.raises(SpecError, match="sets no `worker_replicas` and no `script`"):
        check_spec(b"{% set a = 1 %}\nb: {{ a }}\n", "my.jinja")


def older(kind: str = "ReplicaSet", top: str = "", more: str = "", **parameters: Any) -> str:
    """Return a template with loops that add the arguments of each replica, like older ones of tensorflow/ecosystem."""
    known = {
        "name": "digits",
        "image": "i",
        "worker_replicas": 2,
        "ps_replicas": 1,
        "script": "train.py",
        "data_dir": "/data",
        "train_dir": "/my logs",
        "port": 5000,
    }
    return (
        header(**{**known, **parameters})
        + top
        + dedent("""\
        {%- macro hosts(job, number) -%}
        {%- for i in range(number) -%}{{ "," if i }}{{ name }}-{{ job }}-{{ i }}:{{ port }}{%- endfor -%}
        {%- endmacro -%}
        {% for job, number in [("worker", worker_replicas), ("ps", ps_replicas)] %}
        {% for i in range(number) %}
        ---
        kind: KIND
        metadata: {name: "{{ name }}-{{ job }}-{{ i }}"}
        spec:
          template:
            spec:
              containers:
                - name: tensorflow
                  image: {{ image }}
                  command: [/usr/bin/python, {{ script }}]
                  args:
                    - --data_dir={{ data_dir }}
                    - --train_dir={{ train_dir }}
                    - --task_index={{ i }}
                    - --job_name={{ job }}
                    - --worker_hosts={{ hosts("worker", worker_replicas) }}
                    - --ps_hosts={{ hosts("ps", ps_replicas) }}
                    MORE
        {% endfor %}
        {% endfor %}
        """)
        .replace("KIND", kind)
        .replace("MORE", more)
    )


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "Deployment", "Job"])
def test_arguments_that_loops_add_are_kept_for_each_replica(kind: str) -> None:
    plan = plan_of(older(kind))
    cluster = {"worker": ["a:1", "b:2"], "ps": ["c:3"]}
    for replica in plan.replicas:
        assert replica.argv[:2] == ("sh", "-c")
        env = {
            "PATH": os.environ["PATH"],
            "DRUMLINE_INDEX": str(replica.id.index),
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {}}),
        }
        shown = replica.argv[2].replace("exec python", "exec printf '%s\\n'")
        printed = subprocess.run(["sh", "-c", shown], env=env, capture_output=True, text=True, check=True)
        assert printed.stdout.splitlines() == [
            "train.py",
            "--data_dir=/data",
            "--train_dir=/my logs",
            f"--task_index={replica.id.index}",
            f"--job_name={replica.id.role}",
            "--worker_hosts=a:1,b:2",
            "--ps_hosts=c:3",
        ]
    assert warnings_of(older(kind))[:-1] == []  # the last is about parameter servers without a chief
    assert_same_plan_when_converted(older(kind))


def test_arguments_with_the_replicas_own_address_and_that_of_another_are_translated() -> None:
    more = "- --own={{ name }}-{{ job }}-{{ i }}:{{ port }}\n            - --first={{ name }}-ps-0:{{ port }}"
    command = plan_of(older(more=more, ps_replicas=2)).replicas_of("worker")[1].argv[2]
    assert '--own="$(hosts worker | cut -d, -f$((DRUMLINE_INDEX + 1)))" --first="$(hosts ps | cut -d, -f1)"' in command


def test_a_template_of_a_compose_file_is_read() -> None:
    text = header(name="digits", image="i", worker_replicas=2, script="t.py", port=5000) + dedent("""\
        version: '2'
        services:
        {% for i in range(worker_replicas) %}
          worker-{{ i }}:
            container_name: {{ name }}-worker-{{ i }}
            image: {{ image }}
            command: [python, "{{ script }}", "--i={{ i }}", "--all={{ name }}-worker-0:5000,{{ name }}-worker-1:5000"]
        {% endfor %}
        """)
    assert plan_of(text).replicas[1].argv[2].endswith('exec python t.py --i="$DRUMLINE_INDEX" --all="$(hosts worker)"')


def test_arguments_without_a_common_command_are_refused() -> None:
    more = "- --seed={{ (i + 3) * 7 }}"
    with pytest.raises(
        SpecError, match="the replicas of worker have different arguments, but a role has one command: `--seed=21` and"
    ):
        plan_of(older(more=more))


def test_a_template_without_a_command_is_refused() -> None:
    text = older().replace("command: [/usr/bin/python, {{ script }}]", "env: []")
    with pytest.raises(SpecError, match="worker has no `command`, only that of its image"):
        plan_of(text)


def test_other_keys_of_a_rendered_pod_are_carried_over_or_reported() -> None:
    more = "\n          ".join(
        [
            "",
            "env: [{name: LEVEL, value: info}, {name: KEY, value: /secret/key.json}]",
            "volumeMounts: [{name: s, mountPath: /secret}]",
            "resources: {limits: {nvidia.com/gpu: {{ gpus }}, cpu: 2}}",
            "securityContext: {}",
        ]
    )
    text = older(more=more, gpus=4, colour="red").replace(
        "      containers:\n", "      volumes: [{name: s, secret: {secretName: a}}]\n      containers:\n"
    )
    plan = plan_of(text)
    assert plan.replicas[0].env == {"LEVEL": "info"}
    assert plan.replicas[0].resources.gpus == 4
    assert [each.partition(": ")[2] for each in warnings_of(text)][:5] == [
        "script: `securityContext` of the container of worker and ps is not carried over",
        "script: `resources.limits.cpu` of worker and ps is not carried over",
        "script: the volume at /secret of worker and ps is not carried over",
        (
            "script: the variable KEY, which needs a volume or another object of the cluster, of worker and ps is not"
            " carried over"
        ),
        "colour: is not carried over",
    ]


def test_variables_that_a_template_uses_and_does_not_set_can_be_given() -> None:
    text = older().replace("{%- set name = 'digits' -%}\n", "").replace("image: {{ image }}", "image: {{ pvc_name }}")
    with pytest.raises(SpecError) as caught:
        plan_of(text)
    assert str(caught.value).endswith(
        "'name' is undefined; nor is `pvc_name`; set it at the top: `{% set name = … %}`, or use"
        " `-p name=… -p pvc_name=…`"
    )
    spec, _ = check_spec(text.encode(), "file.yml", parameters=["name=other", "pvc_name=a"])
    assert spec.project == "other"
    with pytest.raises(InputError) as refused_option:
        check_spec(text.encode(), "file.yml", parameters=["pvcname=a"])
    assert refused_option.value.hint == "did you mean `pvc_name`?"


def test_a_variable_of_the_command_line_that_looks_like_a_number_or_a_flag_is_one() -> None:
    text = "{% set a = 1 %}{{ n + 1 }} {{ 'on' if flag else 'off' }} {{ word }}"
    assert Template(text, "my.jinja", ["n=2", "flag=true", "word=007"]).render() == "3 on 007"


def test_a_variable_that_is_only_tested_for_need_not_be_given() -> None:
    assert Template("{% set a = 1 %}{{ b if b is defined else a }}", "my.jinja").render() == "1"


def test_without_an_image_parameter_the_image_of_the_rendered_pods_is_used() -> None:
    text = older().replace("{%- set image = 'i' -%}\n", "").replace("image: {{ image }}", "image: other")
    cluster = cluster_of(plan_of(text, "kubernetes"))
    assert cluster.image.name == "other"


def test_the_older_name_of_the_claim_parameter_is_supported() -> None:
    text = SHIPPED.replace("checkpoint_pvc_name", "pvc_name").replace("create_pvc_checkpoint", "create_pvc")
    assert [each["kind"] for each in rendered("create_volume_inspector=false", text=text)] == ["PersistentVolumeClaim"]
    cluster = cluster_of(plan_of(text.replace("create_pvc = True", "create_pvc = False"), "kubernetes"))
    assert cluster.output == Volume("pvc-demo")


def test_of_two_values_of_a_parameter_the_last_counts_as_in_jinja() -> None:
    text = header(name="a", image="i", worker_replicas=2, script="t.py") + header(worker_replicas=3)
    made = text + "{%- set worker_replicas = worker_replicas + 1 -%}\n"
    assert [len(plan_of(each).replicas) for each in (text, made)] == [3, 4]
    assert [Template(each + "{{ worker_replicas }}", "a").render()[-1] for each in (text, made)] == ["3", "4"]
    given = Template(made + "{{ worker_replicas }}", "a", ["worker_replicas=5"])
    assert (given.value("worker_replicas"), given.render()[-1]) == (6, "6")


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
def test_a_converted_file_has_the_same_plan(parameters: dict[str, Any]) -> None:
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
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "is nested too deeply, or calls itself endlessly"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ cycler.__init__.__globals__.os }}", "access to attribute '__init__' of 'type' object is unsafe"),
        ("{% include '/etc/passwd' %}", "includes or extends another file, which is not supported"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
    ids=lambda value: value[:20],
)
def test_a_template_that_exceeds_the_limits_or_is_unsafe_is_refused(statement: str, report: str) -> None:
    assert report in refused(f"{SHIPPED}\n{statement}\n", "create_pvc_checkpoint=true", "deploy=false")


def test_the_limits_hold_for_a_template_that_is_read_as_a_spec() -> None:
    text = header(name="a", image="i", worker_replicas=2, script="t.py")
    with pytest.raises(SpecError, match=r"file.yml:5: takes more than 512 MB of memory"):
        plan_of(f"{text}{{% set data_dir = 'x' * 10 ** 12 %}}\n")
