"""Files of older systems on a real cluster: their rendered objects are accepted, and they train unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cluster.conftest import Kubectl
from cluster.test_render import IMAGE, KINDS, TALK, dry_run, render
from scaffold.dialects import GUIDE, TFJOB, TFJOB_V1, TRIO
from scaffold.workspace import Workspace

FILES = {"riseml.yml": GUIDE, "tfjob.yaml": TFJOB, "tfjob-v1.yaml": TFJOB_V1, "trio.yaml": TRIO}


@pytest.mark.parametrize("name", FILES)
def test_the_rendered_objects_of_every_file_are_accepted_by_a_server(
    kubectl: Kubectl, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(FILES[name].replace("namespace: kubeflow", f"namespace: {kubectl.namespace}"))
    for kind in KINDS:
        text = render(tmp_path, name, "--on", kind, "--run-id", "4")
        assert len(dry_run(kubectl, text)) == len(re.findall("^kind:", text, re.MULTILINE))


def test_the_template_is_rendered_three_times_for_the_claim_the_training_and_the_inspector(
    kubectl: Kubectl, tmp_path: Path, workspace: Workspace
) -> None:
    assert workspace.run("init", "--template", "kubernetes-jinja", str(tmp_path / "mnist")).code == 0
    # The template passes `script` to Python as a single argument, so there is no blank between `-c` and the code.
    script = (
        "-cimport json, os; index = json.loads(os.environ['TF_CONFIG'])['task']['index'];"
        " print(index, file=open(os.environ['OUTPUT_DIR'] + '/model', 'w'))"
    )
    claim, inspector = ("-p", "create_pvc_checkpoint=false"), ("-p", "create_volume_inspector=false")

    def make(*words: str) -> list[str]:
        given = ("-p", f"image={IMAGE}", "-p", f"script={script}", *words)
        text = render(tmp_path / "mnist", "myjob.template.jinja", *given)
        here = text.replace("image: busybox", f"image: {IMAGE}").replace(
            '["python", ', '["python3", '
        )  # the image of the tests
        return kubectl("create", "--validate=strict", "-o", "name", "-f", "-", given=here).split()

    assert make(*inspector) == ["persistentvolumeclaim/pvc-demo"]
    assert make(*claim, *inspector, "-p", "deploy=true") == [
        *("service/mnist-worker-0", "job.batch/mnist-worker-0", "service/mnist-worker-1", "job.batch/mnist-worker-1")
    ]
    kubectl("wait", "job", "-l", "name=mnist", "--for=condition=Complete", "--timeout=600s")
    assert make(*claim) == ["pod/mnist-inspector"]
    kubectl("wait", "pod", "mnist-inspector", "--for=condition=Ready", "--timeout=600s")
    assert kubectl("exec", "mnist-inspector", "--", "cat", "/pvcmnt/model") == "0\n"


def storage_download_and_training(*, has_sidecar: bool) -> str:
    """Return two claims, the Job that fills one, and a TFJob; with `has_sidecar`, each pod has a second container."""
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "model")]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "model")]
    claims = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "shared",
                "resources": {"requests": {"storage": "10Mi"}},
            },
        }
        for name in ("data", "model")
    ]
    fill = "import sys; open(sys.argv[1] + '/words', 'w').write('made')"
    filler = {"name": "fill", "image": IMAGE, "command": ["python3", "-c", fill, "/data"], "volumeMounts": mounts}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "download"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [filler], "volumes": volumes}}},
    }
    main = {
        "name": "tensorflow",
        "image": IMAGE,
        "command": ["python3", "-c", TALK],
        "env": [{"name": "ODD", "value": "$$(date) as it is"}],
        "volumeMounts": mounts,
    }
    beside = {"name": "beside", "image": IMAGE, "command": ["sleep", "3600"]}
    containers = [main, beside] if has_sidecar else [main]
    role = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": containers, "volumes": volumes}}}
    tfjob = {
        "apiVersion": "kubeflow.org/v1alpha2",
        "kind": "TFJob",
        "metadata": {"name": "digits"},
        "spec": {"backoffLimit": 1, "tfReplicaSpecs": {"Master": role, "Worker": {"replicas": 2, **role}}},
    }
    return yaml.safe_dump_all([*claims, job, tfjob], sort_keys=False)


@pytest.mark.parametrize("kind", ["kubernetes", "tfjob"])
def test_storage_download_and_training_run_unchanged(workspace: Workspace, kubectl: Kubectl, kind: str) -> None:
    workspace.write("trio.yaml", storage_download_and_training(has_sidecar=kind != "tfjob"))
    answer = workspace.run("train", "trio.yaml", "--on", kind, "-n", kubectl.namespace, seconds=240)
    assert answer.code == 0, answer.out + answer.err
    assert "all answered $(date) as it is" in answer.out
    claims = {each["metadata"]["name"]: each["spec"]["accessModes"] for each in kubectl.items("pvc")}
    assert sorted(name.rpartition("-")[2] for name in claims) == ["data", "output"]
    assert list(claims.values()) == [["ReadWriteMany"]] * 2
