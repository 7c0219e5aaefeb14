"""The objects of a run in a cluster."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests import attempt_objects, render, shared_objects, with_owner
from drumline.engine.kubernetes.place import place
from drumline.engine.kubernetes.plan_options import Image, cluster_of, with_cluster
from drumline.engine.kubernetes.validate import find_problems
from drumline.errors import InputError
from drumline.load.engine import plan_spec
from drumline.plan.bind import bind
from drumline.plan.types import Plan
from drumline.run.incarnation import Incarnation
from drumline.spec.types import Spec
from scaffold.strategies import specs
from unit.engine.kubernetes.cluster_objects import Carried, container, env, objects_of, plan_of, rendered, templates

KINDS = ("kubernetes", "jobset", "tfjob")
LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


def plan_from(spec: Spec, engine: str) -> Plan:
    plan = plan_spec(spec, run="4", on=engine)
    return with_cluster(plan, cluster_of(plan).replace(image=Image("python"), unique="x7k2q"))


@given(specs(), st.sampled_from(KINDS), st.sampled_from((0, 7)))
def test_the_objects_of_any_spec_are_consistent(spec: Spec, engine: str, attempt: int) -> None:
    plan = plan_from(spec, engine)
    try:
        placement = place(plan, attempt=attempt)
    except InputError:
        assume(False)
    launches = bind(plan, placement, attempt=attempt)
    assume(not list(find_problems(plan, launches)))
    every = objects_of(plan, attempt)

    named = [(each["kind"], each["metadata"]["name"]) for each in every]
    assert len(set(named)) == len(named)
    assert not [name for _, name in named if not LABEL.fullmatch(name)]
    assert not [value for each in every for value in each["metadata"]["labels"].values() if not VALUE.fullmatch(value)]
    for each in every:
        for template in templates(each):
            check_pod(template, set(named), plan)
    assert list(yaml.safe_load_all(render(every, "yaml"))) == every
    assert json.loads(render(every, "json"))["items"] == every


def check_pod(template: dict[str, Any], named: set[tuple[str, str]], plan: Plan) -> None:
    spec = template["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert len(volumes) == len(spec["volumes"])
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        paths = [mount["mountPath"] for mount in each["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        variables = [entry["name"] for entry in each.get("env", ())]
        assert len(set(variables)) == len(variables)
    text = json.dumps(spec)
    referred = set(re.findall(r'"(configMap|secret)KeyRef": {"name": "([^"]+)"', text))
    kinds = {"configMap": "ConfigMap", "secret": "Secret"}
    assert {(kinds[kind], name) for kind, name in referred} <= named
    claims = set(re.findall(r'"claimName": "([^"]+)"', text)) & set(names.created_claims(plan))
    assert {("PersistentVolumeClaim", name) for name in claims} <= named


@pytest.mark.parametrize("engine", KINDS)
def test_all_objects_have_the_labels_of_their_run(engine: str) -> None:
    plan = plan_of(
        "roles: {worker: 2}\nname: night",
        engine,
        options="labels: {team: a}, output: {claim: a, access: ReadWriteMany}",
    )
    for each in objects_of(plan):
        for metadata in (each["metadata"], *(template["metadata"] for template in templates(each))):
            labels = metadata["labels"]
            assert labels["drumline.dev/run"] == "night-4"
            assert (labels["drumline.dev/number"], labels["drumline.dev/project"]) == ("4", "digits")
            assert (labels["app.kubernetes.io/managed-by"], labels["team"]) == ("drumline", "a")


def test_each_replica_is_a_job_with_a_name_that_its_peers_resolve() -> None:
    found = rendered("roles: {chief: 1, worker: 2}")
    job = found["Job/digits-4-worker-1"]
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    (template,) = templates(job)
    assert (template["spec"]["hostname"], template["spec"]["subdomain"]) == ("worker-1", "digits-4")
    service = found["Service/digits-4"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    cluster = json.loads(env(template)["TF_CONFIG"])["cluster"]
    assert cluster == {
        "chief": ["chief-0.digits-4:2222"],
        "worker": ["worker-0.digits-4:2222", "worker-1.digits-4:2222"],
    }
    (before,) = template["spec"]["initContainers"]
    waited = {entry["name"]: entry["value"] for entry in before["env"]}["DRUMLINE_PEERS"]
    assert waited == "chief-0.digits-4,worker-0.digits-4,worker-1.digits-4"


def test_a_later_attempt_has_its_own_service_and_jobs() -> None:
    plan = plan_of("roles: {worker: 2}")
    found = attempt_objects(plan, bind(plan, place(plan, attempt=3), attempt=3), len(Carried().contents))
    assert [each["metadata"]["name"] for each in found] == [
        "digits-4-r3",
        "digits-4-worker-0-r3",
        "digits-4-worker-1-r3",
    ]
    (template,) = templates(found[1])
    assert found[0]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert "worker-0.digits-4-r3:2222" in env(template)["TF_CONFIG"]


@pytest.mark.parametrize("jobs", ["single", "indexed"])
def test_a_replica_that_returns_alone_has_a_new_job_and_its_old_host_name(jobs: str) -> None:
    plan = plan_of("roles: {chief: 1, worker: 2, ps: 1}", options=f"jobs: {jobs}")
    worker = plan.replicas[2].id
    launches = bind(plan, place(plan), incarnations={worker: 2})
    found = attempt_objects(plan, [each for each in launches if each.replica.id == worker], len(Carried().contents))
    job = next(each for each in found if each["kind"] == "Job")
    assert job["metadata"]["name"] == "digits-4-worker-1-i2"
    (template,) = templates(job)
    host = f"{template['spec']['hostname']}.{template['spec']['subdomain']}"
    assert host == place(plan)[worker].host
    assert names.incarnation_of(plan, template["metadata"]) == Incarnation(worker, 0, 2)


def test_equal_replicas_share_an_indexed_job_if_the_spec_says_so() -> None:
    found = rendered("roles: {chief: 1, worker: {replicas: 3, first: {env: {A: 1}}}}", options="jobs: indexed")
    jobs = {name: each["spec"] for name, each in found.items() if each["kind"] == "Job"}
    assert {name: (spec["completions"], spec["parallelism"]) for name, spec in jobs.items()} == {
        "Job/digits-4-chief": (1, 1),
        "Job/digits-4-worker-1st": (1, 1),
        "Job/digits-4-worker": (2, 2),
    }
    assert all(spec["completionMode"] == "Indexed" and spec["backoffLimitPerIndex"] == 0 for spec in jobs.values())


@pytest.mark.parametrize(
    ("text", "deciding"),
    [
        ("roles: {chief: 1, worker: 2, ps: 1, evaluator: 1}", ["chief"]),
        ("roles: {worker: 2, evaluator: 1}", ["worker"]),
        ("roles: {worker: {replicas: 2, first: {env: {A: 1}}}}", ["worker-1st", "worker"]),
        ("roles: {worker: 2}\nsuccess: worker-0", ["worker-1st"]),
        ("roles: {chief: 1, worker: 2}\nsuccess: all-workers", ["worker"]),
    ],
)
def test_ps_and_evaluators_never_decide_the_end_of_a_jobset(text: str, deciding: list[str]) -> None:
    spec = rendered(text, "jobset")["JobSet/digits-4"]["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": deciding}
    for job in spec["replicatedJobs"]:
        actions = {rule["action"] for rule in job["template"]["spec"]["podFailurePolicy"]["rules"]}
        assert actions == ({"Ignore"} if job["name"] == "evaluator" else {"FailJob"})


@pytest.mark.parametrize(
    ("restart", "policy"),
    [
        ("0", {"maxRestarts": 0}),
        ("3", {"maxRestarts": 3}),
        ("{crash: 2}", {"maxRestarts": 2, "final": ["PodFailurePolicy"]}),
        ("{preempted: 9}", {"maxRestarts": 9, "final": ["BackoffLimitExceeded"]}),
        ("{crash: 1, lost: 5}", {"maxRestarts": 5}),
    ],
)
def test_a_jobset_has_the_restart_budget(restart: str, policy: dict[str, Any]) -> None:
    found = rendered(f"roles: {{worker: 2}}\nrestart: {restart}", "jobset")["JobSet/digits-4"]["spec"]["failurePolicy"]
    final = [reason for rule in found.get("rules", ()) for reason in rule["onJobFailureReasons"]]
    assert {"maxRestarts": found["maxRestarts"], **({"final": final} if final else {})} == policy


@pytest.mark.parametrize(
    ("restart", "policies", "limit"),
    [
        ("0", ("Never", "Never", "OnFailure"), None),
        ("2", ("OnFailure", "OnFailure", "OnFailure"), 9),
        ("{preempted: 2}", ("ExitCode", "ExitCode", "OnFailure"), 9),
    ],
)
def test_a_tfjob_has_the_restart_budget(restart: str, policies: tuple[str, ...], limit: int | None) -> None:
    text = f"roles: {{worker: 2, ps: 1, evaluator: 1}}\nrestart: {restart}\ntimeouts: {{run: 90.5}}"
    spec = rendered(text, "tfjob")["TFJob/digits-4"]["spec"]
    assert tuple(each["restartPolicy"] for each in spec["tfReplicaSpecs"].values()) == policies
    assert spec["runPolicy"].get("backoffLimit") == limit
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running"
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 91


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("roles: {worker: 2}", "AllWorkers"),
        ("roles: {worker: 2}\nsuccess: worker-0", ""),
        ("roles: {chief: 1, worker: 2}", ""),
    ],
)
def test_a_tfjob_is_over_when_the_spec_says_so(text: str, policy: str) -> None:
    assert rendered(text, "tfjob")["TFJob/digits-4"]["spec"]["successPolicy"] == policy


def test_only_the_tfjob_operator_writes_tf_config() -> None:
    spec = rendered("roles: {chief: 1, worker: 2, ps: 1}", "tfjob")["TFJob/digits-4"]["spec"]
    assert set(spec["tfReplicaSpecs"]) == {"Chief", "Worker", "PS"}
    for replicas in spec["tfReplicaSpecs"].values():
        found = container(replicas["template"])
        assert (found["name"], found["ports"][0]["name"]) == ("tensorflow", "tfjob-port")
        assert "TF_CONFIG" not in env(replicas["template"])
        assert env(replicas["template"])["GRPC_FAIL_FAST"] == "use_caller"
        assert "restartPolicy" not in replicas["template"]["spec"]
        assert "ready.sh" in found["command"][2]  # in the pod, where names are known
        assert "initContainers" not in replicas["template"]["spec"]


def test_replicas_do_not_wait_for_an_evaluator_or_for_names_that_they_do_not_use() -> None:
    (template,) = templates(rendered("roles: {worker: 2, evaluator: 1}")["Job/digits-4-worker-0"])
    assert template["spec"]["initContainers"][0]["env"][0]["value"] == "worker-0.digits-4,worker-1.digits-4"
    (template,) = templates(rendered("roles: {worker: 2}\nframework: plain")["Job/digits-4-worker-0"])
    assert "env" not in template["spec"]["initContainers"][0]
    (template,) = templates(rendered("")["Job/digits-4-worker-0"])
    assert "env" not in template["spec"]["initContainers"][0]


def test_resources_of_the_spec_are_requests_and_limits() -> None:
    resources = "resources: {cpus: 1.5, memory: 2GiB, gpus: 2}"
    (template,) = templates(rendered(resources)["Job/digits-4-worker-0"])
    claimed = {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "2"}
    assert container(template)["resources"] == {"requests": claimed, "limits": claimed}
    assert "nvidia.com/gpu" not in template["spec"]["initContainers"][0]["resources"]["limits"]
    assert env(template)["CUDA_VISIBLE_DEVICES"] == "0,1"
    (template,) = templates(rendered("")["Job/digits-4-worker-0"])
    assert "resources" not in container(template)


def test_a_volume_for_one_pod_belongs_to_the_chief_and_other_pods_have_their_own_folders() -> None:
    found = rendered("roles: {worker: 2}", options="output: {size: 10GiB, class: fast}")
    assert found["PersistentVolumeClaim/digits-4-output"]["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    sources = [next(templates(found[f"Job/digits-4-worker-{index}"]))["spec"]["volumes"][0] for index in (0, 1)]
    assert sources == [
        {"name": "output", "persistentVolumeClaim": {"claimName": "digits-4-output"}},
        {"name": "output", "emptyDir": {}},
    ]


def test_a_shared_volume_is_mounted_by_all_and_an_existing_one_is_not_created() -> None:
    found = rendered("roles: {worker: 2}", options="output: {claim: models, access: ReadWriteMany}")
    assert not [name for name in found if name.startswith("PersistentVolumeClaim")]
    for index in (0, 1):
        (template,) = templates(found[f"Job/digits-4-worker-{index}"])
        source = template["spec"]["volumes"][0]
        assert source == {"name": "output", "persistentVolumeClaim": {"claimName": "models"}}
        assert env(template)["OUTPUT_DIR"] == "/drumline/output/digits-4"  # the others have their own beside it


def test_data_is_prepared_by_a_job_and_read_from_its_volume() -> None:
    text = "data: [{name: a, path: a, volume: {size: 1GiB}, prepare: make-a}, {name: b, path: /b, volume: there}]"
    found = rendered(text)
    assert "PersistentVolumeClaim/digits-4-data-a" in found
    (template,) = templates(found["Job/digits-4-worker-0"])
    assert (env(template)["DATA_DIR_A"], env(template)["DATA_DIR_B"]) == ("/drumline/data/a/prepared", "/b")
    claims = [volume["persistentVolumeClaim"] for volume in template["spec"]["volumes"][1:3]]
    assert claims == [
        {"claimName": "digits-4-data-a", "readOnly": True},
        {"claimName": "there", "readOnly": True},
    ]
    assert "until [ -e /drumline/data/a/prepared ]" in template["spec"]["initContainers"][0]["command"][2]
    (template,) = templates(found["Job/digits-4-prepare-a"])
    assert env(template)["DATA_DIR"] == "/drumline/data/a/prepared.partial"
    assert template["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "digits-4-data-a"}


def test_the_run_owns_all_objects_except_its_claims() -> None:
    plan = plan_of("env: {T: {from: TOKEN}}", options="output: {size: 1GiB}")
    every = [with_owner(each, plan, "uid") for each in objects_of(plan)]
    free = [(each["kind"], each["metadata"]["name"]) for each in every if "ownerReferences" not in each["metadata"]]
    assert free == [("ConfigMap", "digits-4"), ("PersistentVolumeClaim", "digits-4-output")]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "digits-4", "uid": "uid"}
    assert all(each["metadata"]["ownerReferences"] == [reference] for each in every[2:])


@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
def test_a_pod_has_the_secrets_of_its_role_only_and_no_token_of_the_cluster(engine: str) -> None:
    roles = "chief: {env: {C: {from: CHIEFS}}}, worker: {replicas: 2, env: {W: {from: WORKERS}}}"
    plan = plan_of(f"framework: tensorflow\nroles: {{{roles}}}", engine)
    found = {}
    for each in objects_of(plan):
        for template in templates(each):
            assert template["spec"]["automountServiceAccountToken"] is False
            assert "secret" not in json.dumps(template["spec"].get("volumes", [])).lower()
            keys = re.findall(r'"secretKeyRef": {"name": "[^"]+", "key": "([^"]+)"', json.dumps(template))
            found[template["metadata"]["labels"][names.ROLE]] = keys
    assert found == {"chief": ["CHIEFS"], "worker": ["WORKERS"]}


def test_secrets_are_in_a_secret_object_and_rendered_as_shell_variables() -> None:
    plan = plan_of("env: {T: {from: TOKEN}, U: {from: TOKEN}, V: {from: OTHER}}")
    secret = next(each for each in shared_objects(plan) if each["kind"] == "Secret")
    assert secret["stringData"] == {"TOKEN": "${TOKEN:?}", "OTHER": "${OTHER:?}"}
    given_values = shared_objects(plan, secrets={"TOKEN": "a", "OTHER": "b"})
    assert next(each for each in given_values if each["kind"] == "Secret")["stringData"] == {"TOKEN": "a", "OTHER": "b"}
    (template,) = templates(rendered("env: {T: {from: TOKEN}}")["Job/digits-4-worker-0"])
    assert env(template)["T"] == {"secretKeyRef": {"name": "digits-4-secrets", "key": "TOKEN"}}
    assert not [each for each in objects_of(plan_of("")) if each["kind"] == "Secret"]


def test_a_network_policy_admits_only_pods_of_the_run_unless_disabled() -> None:
    policy = rendered("")["NetworkPolicy/digits-4"]["spec"]
    own = {"matchLabels": {"drumline.dev/run": "digits-4"}}
    assert policy == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}],
    }
    assert "NetworkPolicy/digits-4" not in rendered("", options="network_policy: false")


def test_no_pod_has_more_rights_than_it_needs() -> None:
    (template,) = templates(rendered("")["Job/digits-4-worker-0"])
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "runAsUser" not in spec["securityContext"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*spec["containers"], *spec["initContainers"]):
        assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    (template,) = templates(rendered("", options="user: 7")["Job/digits-4-worker-0"])
    known = {"runAsUser": 7, "runAsGroup": 7, "runAsNonRoot": True, "fsGroup": 7}
    assert known.items() <= template["spec"]["securityContext"].items()
    assert "HOME=" in container(template)["command"][2]


def test_ports_are_those_of_the_spec() -> None:
    text = "roles: {chief: {port: [9]}, worker: {replicas: 2, port: [7, 8]}}\nport: 5"
    found = rendered(text, options="jobs: indexed")
    (template,) = templates(found["Job/digits-4-chief"])
    assert container(template)["ports"] == [{"name": "training", "containerPort": 9}]
    cluster = json.loads(env(template)["TF_CONFIG"])["cluster"]
    assert [address.rpartition(":")[2] for address in cluster["worker"]] == ["7", "8"]
    (template,) = templates(found["Job/digits-4-worker"])
    assert "ports" not in container(template)  # each has its own port
    assert "ports" not in found["Service/digits-4"]["spec"]


def test_a_namespace_is_rendered_only_if_the_spec_names_it() -> None:
    assert all(each["metadata"].get("namespace") == "ml" for each in rendered("", options="namespace: ml").values())
    assert not any("namespace" in each["metadata"] for each in rendered("").values())


@pytest.mark.parametrize("engine", KINDS)
def test_the_patch_of_a_role_is_applied_after_the_common_one(engine: str) -> None:
    worker = 'worker: {replicas: 2, pod: {hostIPC: null, containers: [{name: replica, image: "other:1"}]}}'
    text = f"roles:\n  chief: 1\n  {worker}"
    plan = plan_of(text, engine=engine, options="pod: {hostIPC: true, nodeSelector: {a: b}}")
    pods = [template["spec"] for each in objects_of(plan) for template in templates(each)]
    assert {pod["nodeSelector"]["a"] for pod in pods} == {"b"}
    chief, *workers = pods
    assert ("hostIPC" in chief, {"hostIPC" in pod for pod in workers}) == (True, {False})
    assert {pod["containers"][0]["image"] for pod in workers} == {"other:1"} != {chief["containers"][0]["image"]}


@pytest.mark.parametrize(
    ("restart", "policy"),
    [("0", "Never"), ("2", "OnFailure"), ("{budget: 2, permanent: [1-127]}", "ExitCode"), ("{lost: 1}", "ExitCode")],
)
def test_the_restart_policy_is_written_in_the_terms_of_the_operator(restart: str, policy: str) -> None:
    (job,) = [each for each in objects_of(plan_of(f"restart: {restart}", engine="tfjob")) if each["kind"] == "TFJob"]
    assert job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] == policy
