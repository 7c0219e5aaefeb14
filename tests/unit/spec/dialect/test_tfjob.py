"""TFJobs: the plans that they become, the warnings for their lines, and the problems."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes import plan_options
from drumline.engine.kubernetes.plan_options import Volume
from drumline.errors import SpecError
from drumline.load.load import check_spec
from drumline.plan.types import Resources
from scaffold.dialects import (
    TFJOB,
    TFJOB_V1,
    TRIO,
    WORKER,
    a_job,
    a_role,
    assert_same_plan_when_converted,
    cluster_of,
    converted,
    plan_of,
    refused,
    warnings_of,
)

GIB = 1024**3


def test_the_job_of_the_guide_has_a_chief_five_workers_and_three_ps() -> None:
    plan = plan_of(TFJOB)
    assert [str(each.id) for each in plan.replicas] == [
        "chief.0",
        *(f"worker.{index}" for index in range(5)),
        *(f"ps.{index}" for index in range(3)),
    ]
    assert {each.argv for each in plan.replicas} == {("python", "/issues/train.py")}
    assert (plan.name, plan.success, plan.restart.crash) == ("github", "chief", 0)


def test_claims_are_mounted_at_the_same_paths() -> None:
    cluster = cluster_of(TFJOB)
    assert cluster.image.name == "inc0/issues"
    assert not cluster.code
    assert cluster.pod == {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        ],
        "containers": [
            {
                "name": "replica",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "models", "mountPath": "/model"}],
            }
        ],
    }


def test_claims_a_download_job_and_a_tfjob_become_one_spec_that_prepares_its_data() -> None:
    plan = plan_of(TRIO, "kubernetes")
    made = Volume(None, 50 * GIB, None, "ReadWriteMany")
    assert (plan_options.cluster_of(plan).data, plan_options.cluster_of(plan).output, plan.output) == (
        {"DATA_DIR": made},
        made,
        "/model",
    )
    assert (plan_options.cluster_of(plan).pod, plan_options.cluster_of(plan).pods) == ({}, {})
    assert [(each.path, each.argv) for each in plan.preparations] == [
        (
            "/data",
            ("sh", "-c", '/issues/download_data.sh https://issues.example/github-issues.zip "$DATA_DIR"'),
        )
    ]


def test_versions_that_do_not_exist_are_read_and_reported() -> None:
    text = TRIO.replace("apiVersion: v1\n", "apiVersion: v0\n").replace("batch/v1", "batch/v0")
    assert plan_of(text) == plan_of(TRIO)
    assert [each for each in warnings_of(text) if "v0" in each] == [
        "1: apiVersion: there is no `v0`; it is read as `v1`",
        "12: apiVersion: there is no `v0`; it is read as `v1`",
        "23: apiVersion: there is no `batch/v0`; it is read as `batch/v1`",
    ]


def test_each_line_of_a_large_job_is_carried_over_or_reported() -> None:
    plan = plan_of(TFJOB_V1, "kubernetes")
    worker, ps, evaluator = (plan.replicas_of(role)[0] for role in ("worker", "ps", "evaluator"))
    assert worker.argv == ("python", "/opt/model.py", "--log_dir=/logs", "--cost=$5")
    assert (worker.env, worker.port, worker.resources) == ({"LOG_DIR": "/logs"}, 3333, Resources(1, 2 * GIB, 1))
    assert (ps.resources, ps.port) == (Resources(2, 4 * GIB, None), None)
    assert evaluator.argv[:2] == ("sh", "-c")
    assert (plan.timeouts.run_seconds, plan.success) == (7200, "all-workers")
    assert (plan.restart.crash, plan.restart.early, plan.restart.permanent_codes) == (3, 3, ("1-127",))
    cluster = plan_options.cluster_of(plan)
    assert (cluster.namespace, cluster.queue, cluster.priority_class) == ("kubeflow", "gpus", "high")
    assert (cluster.labels, cluster.annotations) == ({"team": "vision"}, {"sidecar.istio.io/inject": "false"})
    assert cluster.image.name == "registry.example/mnist:gpu"
    assert cluster.pods["ps"] == {"containers": [{"name": "replica", "image": "registry.example/mnist:cpu"}]}
    assert [each["name"] for each in cluster.pods["worker"]["containers"]] == ["replica", "sync"]  # type: ignore[attr-defined]
    assert [line.partition(" ")[0] for line in warnings_of(TFJOB_V1)[:9]] == [
        *("9:", "12:", "13:", "13:", "18:", "39:", "51:", "60:", "71:"),
    ]


def test_a_volume_with_the_name_of_one_of_drumlines_is_renamed() -> None:
    worker = cluster_of(TFJOB_V1).pods["worker"]
    assert [each["name"] for each in worker["volumes"]] == ["own-output"]  # type: ignore[attr-defined]
    assert [each["volumeMounts"][0]["name"] for each in worker["containers"]] == ["own-output"] * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v1beta1", "v1beta2"])
def test_policies_are_read_in_every_version_of_the_api(version: str) -> None:
    policies = {"backoffLimit": 2, "activeDeadlineSeconds": 60, "cleanPodPolicy": "All"}
    spec = {"runPolicy": policies} if version == "v1" else policies
    plan = plan_of(a_job({"worker": a_role("OnFailure", 2)}, version=version, **spec))
    assert (plan.restart.crash, plan.timeouts.run_seconds, len(plan.replicas)) == (2, 60, 2)


@pytest.mark.parametrize(
    ("policy", "budget", "permanent"),
    [(None, 0, ()), ("Never", 0, ()), ("OnFailure", 10, ()), ("Always", 10, ()), ("ExitCode", 10, ("1-127",))],
)
def test_a_restart_policy_becomes_a_finite_budget(policy: str | None, budget: int, permanent: tuple[str, ...]) -> None:
    restart = plan_of(a_job({"Worker": a_role(policy)})).restart
    assert (restart.crash, restart.early, restart.out_of_memory) == (budget, budget, budget)
    assert restart.permanent_codes == permanent


@pytest.mark.parametrize(
    ("roles", "policy", "success"),
    [
        (("Chief", "Worker"), None, "chief"),
        (("Master", "Worker"), "AllWorkers", "chief"),
        (("Worker",), None, "worker-0"),
        (("Worker", "PS"), "", "worker-0"),
        (("Worker",), "AllWorkers", "all-workers"),
        (("CHIEF",), None, "chief"),
    ],
)
def test_the_success_policy_is_that_of_the_job(roles: tuple[str, ...], policy: str | None, success: str) -> None:
    said = {} if policy is None else {"successPolicy": policy}
    assert plan_of(a_job(dict.fromkeys(roles, WORKER), **said)).success == success


@pytest.mark.parametrize(
    ("resources", "own", "patch"),
    [
        ({"limits": {"cpu": 2, "memory": "1G"}}, Resources(2, 10**9), None),
        ({"limits": {"cpu": "250m", "memory": "64Mi"}}, Resources(0.25, 2**26), None),
        ({"requests": {"memory": 1024}}, Resources(None, 1024), {"limits": {"memory": None}}),
        (
            {"requests": {"cpu": 1}, "limits": {"cpu": 2}},
            Resources(2),
            {"requests": {"cpu": 1}},
        ),
        ({"limits": {"nvidia.com/gpu": 4}}, Resources(None, None, 4), None),
        ({"limits": {"amd.com/gpu": 4}}, Resources(), {"limits": {"amd.com/gpu": 4}}),
    ],
)
def test_a_request_that_differs_from_its_limit_is_in_the_patch(
    resources: Mapping[str, Any], own: Resources, patch: Mapping[str, Any] | None
) -> None:
    text = a_job({"Worker": a_role(resources=resources)})
    assert plan_of(text).replicas[0].resources == own
    assert cluster_of(text).pod == ({} if patch is None else {"containers": [{"name": "replica", "resources": patch}]})


def test_a_name_that_is_not_valid_for_a_project_is_changed() -> None:
    plan = plan_of(a_job(name="my.long-job"))
    assert plan.name == "my-long-job"


def test_the_output_of_kubectl_get_is_read() -> None:
    job = yaml.safe_load(a_job())
    job["metadata"] |= {"uid": "1", "creationTimestamp": "2020-01-01T00:00:00Z", "resourceVersion": "7"}
    job["status"] = {"conditions": []}
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [job]})
    assert plan_of(listed) == plan_of(a_job())
    assert warnings_of(listed) == warnings_of(yaml.safe_dump(job)) == []


def test_a_job_as_json_is_read() -> None:
    import json  # noqa: PLC0415

    assert plan_of(json.dumps(yaml.safe_load(a_job()))) == plan_of(a_job())


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (a_job({"Worker": {"replicas": 1}}), "file.yml:7: spec.tfReplicaSpecs.Worker.template: is missing"),
        (a_job({"Boss": WORKER}), "file.yml:7: spec.tfReplicaSpecs.Boss: is not a role of a TFJob"),
        (
            a_job({"Wroker": WORKER}),
            "file.yml:7: spec.tfReplicaSpecs.Wroker: is not a role of a TFJob; did you mean `worker`?",
        ),
        (
            a_job({"Chief": WORKER, "Master": WORKER}),
            "spec.tfReplicaSpecs.Master: there is a second chief: `Master` and `Chief` are the same",
        ),
        (a_job({"Chief": a_role(replicas=2)}), "spec.tfReplicaSpecs.Chief: there is exactly one chief, not 2"),
        (a_job({"PS": WORKER}), "no replica trains: add a `worker` or a `chief`"),
        (a_job({"Worker": a_role("Sometimes")}), "restartPolicy: expected one of Always, OnFailure, Never, ExitCode"),
        (a_job({"Worker": a_role(name="main")}), "containers: has no container called `tensorflow`"),
        (a_job({"Worker": a_role(image=None)}), "containers[0].image: is missing"),
        (a_job({"Worker": a_role(replicas=-1)}), "replicas: expected a whole number, got -1"),
        (a_job({"Worker": a_role(command="train")}), 'containers[0].command: expected a list, got "train"'),
        (a_job({"Worker": a_role(resources={"limits": {"cpu": "two"}})}), "limits.cpu: expected an amount such as 2"),
        (a_job(version="v2"), "apiVersion: expected one of kubeflow.org/v1, kubeflow.org/v1beta2"),
        (a_job(cleanPodPolicy="Some"), "cleanPodPolicy: expected one of All, Running, None, got `Some`"),
        (a_job(successPolicy="First"), "successPolicy: expected AllWorkers, or nothing, got `First`"),
        (f"{a_job()}---\n{a_job()}", "is a second TFJob: a spec is one training"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
            "is not a TFJob, and the file contains none; convert files that belong together",
        ),
        (a_job(name="---"), "metadata.name: expected a name, got `---`"),
    ],
)
def test_an_invalid_job_is_refused_with_the_location(text: str, report: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(text.encode(), "file.yml")
    assert report in str(caught.value)
    assert str(caught.value).startswith("file.yml:")


@pytest.mark.parametrize("text", [TFJOB, TFJOB_V1, TRIO], ids=["guide", "v1", "trio"])
def test_a_converted_file_has_the_same_plan(text: str) -> None:
    assert_same_plan_when_converted(text)


def test_a_decision_is_explained_beside_its_key() -> None:
    assert "  chief:\n    # `Master` in the TFJob; TensorFlow 2 uses this name.\n    replicas: 1\n" in converted(TFJOB)


@pytest.mark.parametrize("shell", [["sh", "-c"], ["/bin/bash", "-ec"]])
def test_an_incomplete_shell_command_is_refused(shell: list[str]) -> None:
    (problem,) = refused(a_job({"Worker": a_role(command=[*shell, "python t.py 'x"])}))
    assert "`'` is never closed, so a shell cannot read the command" in problem
    (problem,) = refused(a_job({"Worker": a_role(command=[*shell, "python t.py {{ lr"])}))
    assert problem.endswith("`{{ lr` is never closed: write `{{ lr }}`")


def test_a_repeated_variable_has_its_last_value_and_is_reported() -> None:
    role = a_role(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])
    text = a_job({"Worker": role})
    assert plan_of(text).replicas[0].env["A"] == "2"
    assert any(
        "`A` appears a second time; as in Kubernetes, the last one is used" in each for each in warnings_of(text)
    )


def test_a_repeated_key_is_refused() -> None:
    text = a_job({"Worker": a_role(replicas=1)}).replace(
        "      replicas: 1\n", "      replicas: 1\n      replicas: 4\n"
    )
    (problem,) = refused(text)
    assert problem == (
        "9: spec.tfReplicaSpecs.Worker.replicas: appears a second time; first in line 8. Kubernetes uses the last:"
        " keep one of them"
    )


def test_repeated_keys_in_all_objects_and_other_problems_are_reported_together() -> None:
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nkind: PersistentVolumeClaim\nmetadata: {name: a}\n"
    said = refused(f"{claim}---\n{a_job({'Boss': WORKER})}")
    assert [each.split()[:2] for each in said] == [["3:", "kind:"], ["12:", "spec.tfReplicaSpecs.Boss:"]]


def test_all_bad_amounts_and_other_problems_are_reported_together() -> None:
    worker = a_role(resources={"limits": {"cpu": "two", "memory": "16 gigs"}, "requests": {"cpu": "1 core"}})
    ps = a_role("Sometimes", ports=[{"name": "tfjob-port", "containerPort": "any"}], command="train")
    said = refused(a_job({"Worker": worker, "PS": ps, "Boss": WORKER}, name="---", cleanPodPolicy="Some"))
    inside = "spec.tfReplicaSpecs.{}.template.spec.containers[0]."
    assert sorted(each.split(" ")[1].removesuffix(":") for each in said) == sorted(
        [
            "metadata.name",
            "spec.tfReplicaSpecs.Boss",
            *(inside.format("Worker") + f"resources.{key}" for key in ("limits.cpu", "limits.memory", "requests.cpu")),
            *(inside.format("PS") + key for key in ("command", "ports[0].containerPort")),
            "spec.tfReplicaSpecs.PS.restartPolicy",
        ]
    )


def test_two_containers_with_one_name_are_refused() -> None:
    own = {"name": "tensorflow", "image": "a", "command": ["train"]}
    said = refused(a_job({"Worker": {"template": {"spec": {"containers": [own, own]}}}}))
    assert "containers[1].name: is the name of two containers" in said[0]


@pytest.mark.parametrize("kind", ["List", "TFJobList", None])
def test_a_list_of_any_kind_is_read(kind: str | None) -> None:
    head = {"apiVersion": "v1", **({"kind": kind} if kind else {})}
    assert plan_of(yaml.safe_dump({**head, "items": [yaml.safe_load(a_job())]})) == plan_of(a_job())


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("apiVersion: v1\nkind: List\nitems: []\n", "3: items: is empty"),
        (a_job().replace("kind: TFJob\n", ""), "1: kind: is missing"),
        (a_job().replace("apiVersion: kubeflow.org/v1\n", ""), "1: apiVersion: is missing"),
    ],
)
def test_an_incomplete_kubernetes_object_is_refused(text: str, report: str) -> None:
    assert refused(text) == [report]


words = st.sampled_from(("train", "--lr=1e-6", "it's", "a b", "$(A)", "$$x", "$(", "no", "é", "{{", "-"))
amounts = st.sampled_from((1, "2", "500m", "1.5", 0.25))
sizes = st.sampled_from(("16Gi", "512M", 10**9, "1e9", "64Ki"))
variables = st.one_of(
    st.builds(lambda name, value: {"name": name, "value": value}, st.sampled_from(("A", "B", "OUTPUT_DIR")), words),
    st.builds(
        lambda name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, st.sampled_from(("F", "a.b"))
    ),
    st.just({"name": "TF_CONFIG", "value": "{}"}),
)
containers = st.fixed_dictionaries(
    {"name": st.just("tensorflow"), "image": st.sampled_from(("a", "b:1"))},
    optional={
        "command": st.lists(words, min_size=1, max_size=2).map(lambda several: ["python", *several]),
        "args": st.lists(words, max_size=2),
        "env": st.lists(variables, max_size=3),
        "ports": st.lists(
            st.sampled_from(({"name": "tfjob-port", "containerPort": 2222}, {"containerPort": 6006})), max_size=2
        ),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                kind: st.fixed_dictionaries(
                    {},
                    optional={"cpu": amounts, "memory": sizes, "nvidia.com/gpu": st.integers(0, 8), "x.y/z": amounts},
                )
                for kind in ("limits", "requests")
            },
        ),
        "volumeMounts": st.lists(
            st.builds(lambda name: {"name": name, "mountPath": f"/{name}"}, st.sampled_from(("data", "code"))),
            max_size=2,
        ),
        "workingDir": st.just("/w"),
        "imagePullPolicy": st.just("Always"),
    },
)
volumes = st.sampled_from(
    ({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "code", "emptyDir": {}})
)
templates = st.builds(
    lambda container, sidecars, more: {"spec": {"containers": [container, *sidecars], **more}},
    containers,
    st.lists(st.just({"name": "side", "image": "s"}), max_size=1),
    st.fixed_dictionaries(
        {},
        optional={
            "volumes": st.lists(volumes, max_size=2),
            "nodeSelector": st.just({"a": "b"}),
            "restartPolicy": st.just("Never"),
            "hostNetwork": st.booleans(),
        },
    ),
)
replicas = st.fixed_dictionaries(
    {"template": templates},
    optional={
        "replicas": st.integers(0, 3),
        "restartPolicy": st.sampled_from(("Always", "OnFailure", "Never", "ExitCode")),
    },
)
jobs = st.builds(
    lambda roles, policies, version: a_job(
        roles, version=version, **({"runPolicy": policies} if version == "v1" else policies)
    ),
    st.fixed_dictionaries({"Worker": replicas}, optional={"Chief": replicas, "PS": replicas, "Evaluator": replicas}),
    st.fixed_dictionaries(
        {},
        optional={
            "cleanPodPolicy": st.sampled_from(("All", "Running", "None")),
            "backoffLimit": st.integers(0, 5),
            "activeDeadlineSeconds": st.integers(1, 10**6),
            "ttlSecondsAfterFinished": st.integers(0, 9),
        },
    ),
    st.sampled_from(("v1", "v1alpha2", "v1beta2")),
)


@given(jobs)
def test_any_converted_job_has_the_same_plan(text: str) -> None:
    try:
        check_spec(text.encode(), "file.yml")
    except SpecError:
        return
    assert_same_plan_when_converted(text)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every mapping in plain data."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [each for key, child in inside for each in paths(child, (*path, key))]
    return [path, *found] if isinstance(value, dict) else found


@pytest.mark.parametrize("text", [TFJOB_V1, TRIO], ids=["v1", "trio"])
def test_an_unknown_key_is_carried_over_or_reported_at_any_place(text: str) -> None:
    documents = list(yaml.safe_load_all(text))
    silent = []
    known = len(warnings_of(yaml.safe_dump_all(documents, sort_keys=False)))
    for number, document in enumerate(documents):
        for path in paths(document):
            changed = copy.deepcopy(documents)
            place: Any = changed[number]
            for key in path:
                place = place[key]
            place["zzz"] = "unheard-of"
            try:
                said = yaml.safe_dump_all(changed, sort_keys=False)
                if "zzz" not in converted(said) and len(warnings_of(said)) == known:
                    silent.append((number, path))
            except SpecError:
                pass
    assert not silent


def every_path(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return every path in plain data."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in inside for found in ((*path, key), *every_path(child, (*path, key)))]


DOCUMENTS = [list(yaml.safe_load_all(text)) for text in (TFJOB_V1, TRIO)]
ODD: tuple[Any, ...] = (None, [], {}, 5, -1, "x", "", True, [1], {"a": "b"}, ["a", {"b": 1}], 1.5, "{{ x", "'")


def refusal_of(text: str) -> str | None:
    """Return why a file is refused; None if it is read."""
    try:
        check_spec(text.encode(), "file.yml")
    except SpecError as error:
        return str(error)
    return None


@given(st.sampled_from(DOCUMENTS), st.data())
def test_any_value_in_a_job_is_read_or_refused(documents: list[Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(documents)
    *path, last = data.draw(st.sampled_from(every_path(documents)))
    place: Any = changed
    for key in path:
        place = place[key]
    place[last] = data.draw(st.sampled_from(ODD))
    said = refusal_of(yaml.safe_dump_all(changed, sort_keys=False))
    assert said is None or said.startswith("file.yml:")


@pytest.mark.parametrize(
    ("containers", "report"),
    [
        ([{"name": "side", "image": "s", "volumeMounts": ["output"]}], "volumeMounts[0]: expected a mapping"),
        ([{"name": "side", "image": "s", "volumeMounts": 1.5}], "volumeMounts: expected a list"),
    ],
)
def test_a_broken_mount_of_a_container_beside_the_replica_is_refused(containers: list[Any], report: str) -> None:
    worker = a_role()
    worker["template"]["spec"]["containers"] += containers
    worker["template"]["spec"]["volumes"] = [{"name": "output", "emptyDir": {}}]
    assert report in refused(a_job({"Worker": worker}))[0]


def test_a_download_job_without_a_container_is_refused() -> None:
    download, tfjob = TRIO.rpartition("---\n")[0], TRIO.rpartition("---\n")[2]
    documents = list(yaml.safe_load_all(download))
    documents[-1]["spec"]["template"]["spec"]["containers"] = []
    text = yaml.safe_dump_all(documents, sort_keys=False) + "---\n" + tfjob
    assert "spec.template.spec.containers: is empty" in refused(text)[0]
