"""The output of `drumline render` is accepted by a real API server with strict validation; and it trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.conftest import Kubectl
from scaffold.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "cluster"
RENDERS = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.yaml"))
KINDS = ("kubernetes", "jobset", "tfjob")
IMAGE = "python:local"

# Each replica connects to all others by its addresses, waits until all have connected, and prints a line.
TALK = """
import json, os, socket, threading, time
config = json.loads(os.environ["TF_CONFIG"])
addresses = [address for role in ("chief", "worker") for address in config["cluster"].get(role, ())]
me = config["cluster"][config["task"]["type"]][config["task"]["index"]]
assert str(config["task"]["index"]) == os.environ["DRUMLINE_INDEX"], "two indices"
server = socket.create_server(("", int(me.rpartition(":")[2])), backlog=16)

def answer():
    for _ in addresses:
        with server.accept()[0] as caller:
            caller.sendall(me.encode())

thread = threading.Thread(target=answer, daemon=True)  # it does not delay the exit of a failed process
thread.start()
for address in addresses:
    host, _, port = address.rpartition(":")
    while True:
        try:
            peer = socket.create_connection((host, int(port)), timeout=60)
            break
        except OSError as trouble:  # it does not serve yet, or a busy DNS server has not answered
            if not isinstance(trouble, ConnectionRefusedError) and trouble.errno != socket.EAI_AGAIN:
                raise
            time.sleep(0.1)
    assert peer.makefile().read() == address
thread.join()
with open(os.path.join(os.environ["OUTPUT_DIR"], f"{config['task']['type']}-{config['task']['index']}"), "w") as file:
    file.write(open(os.path.join(os.environ["DATA_DIR"], "words")).read())
import drumline.runtime
print("all answered", os.environ["ODD"])
"""


def dry_run(kubectl: Kubectl, text: str) -> list[str]:
    """Return the names that the server would create, by its strict validation."""
    return kubectl("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", given=text).split()


def render(folder: Path, *words: str) -> str:
    """Return what the command prints for a spec, without a cluster."""
    environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    environ |= {"DRUMLINE_HOME": str(folder / "home"), "HOME": str(folder)}
    command = [sys.executable, "-m", "drumline", "render", *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", RENDERS)
def test_every_golden_render_is_accepted(kubectl: Kubectl, name: str) -> None:
    text = (GOLDEN / name).read_text().replace("namespace: training", f"namespace: {kubectl.namespace}")
    assert len(dry_run(kubectl, text)) == len(re.findall("^kind:", text, re.MULTILINE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_unusual_values_and_long_names_are_accepted(kubectl: Kubectl, tmp_path: Path, kind: str, form: str) -> None:
    values = {"A": "y", "B": "no", "C": "1e-6", "D": 'it\'s\n$(x) "q" $$', "E": "12:30", "F": "~", "G": " é\u2028"}
    spec = {
        "project": "X" + "y" * 61 + "Z",
        "run": "echo $(date) {{ title }}",
        "parameters": {"title": "a b"},
        "env": {**values, "TOKEN": {"from": "TOKEN"}},
        "roles": {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
        "engine": {kind: {"image": IMAGE, "output": {"size": "1GiB", "access": "ReadWriteMany"}}},
    }
    (tmp_path / "drumline.yml").write_text(json.dumps(spec))
    text = render(tmp_path, "--run-id", "999999999.999999999", "-o", form)
    dry_run(kubectl, text)


@pytest.mark.parametrize(("kind", "options"), [*((kind, "") for kind in KINDS), ("kubernetes", "jobs: indexed,")])
def test_rendered_objects_that_kubectl_creates_train(kubectl: Kubectl, tmp_path: Path, kind: str, options: str) -> None:
    (tmp_path / "talk.py").write_text(TALK)
    (tmp_path / "drumline.yml").write_text(f"""
project: digits
run: python3 talk.py
env: {{ODD: "it's $(date) $$ y"}}
roles: {{chief: 1, worker: 2}}
data:
  path: data
  volume: {{size: 10MiB, class: shared, access: ReadWriteMany}}
  prepare: python3 -c "import os; open(os.path.join(os.environ['DATA_DIR'], 'words'), 'w').write('made')"
engine:
  {kind}: {{image: "{IMAGE}", {options} user: 1000, output: {{size: 10MiB, class: shared, access: ReadWriteMany}}}}
""")
    kubectl("create", "-f", "-", given=render(tmp_path, "--on", kind))
    kubectl("create", "-f", "-", given=render(tmp_path, "--on", kind, "--run-id", "7"))  # a second one at the same time
    for selector in ("drumline.dev/role=chief,drumline.dev/number=0", "drumline.dev/role=chief,drumline.dev/number=7"):
        kubectl("wait", "pod", "-l", selector, "--for=create", "--timeout=600s")
        ended = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=600s")
        try:
            kubectl("wait", "pod", "-l", selector, *ended)
        except AssertionError as error:
            words = ("-l", "drumline.dev/run", "--prefix", "--all-containers", "--tail=20")
            there = kubectl("get", "pods", "-o", "wide") + kubectl("logs", *words, check=False)
            raise AssertionError(f"{error}\n{there}") from None
        kubectl.until_said(lambda said: "all answered it's $(date) $$ y" in said, "-l", selector, "--tail=-1")


LOOK = """
apiVersion: v1
kind: Pod
metadata: {{name: look}}
spec:
  restartPolicy: Never
  containers:
    - {{name: look, image: "{image}", command: [ls, /volume], volumeMounts: [{{name: v, mountPath: /volume}}]}}
  volumes: [{{name: v, persistentVolumeClaim: {{claimName: digits-1-output}}}}]
"""


@pytest.mark.parametrize(
    ("volume", "kept"),
    [
        ("class: shared, access: ReadWriteMany", {"checkpoint", "worker-0", "worker-1"}),
        ("class: local-path, access: ReadWriteOnce", {"checkpoint", "worker-0"}),
    ],
)
@pytest.mark.parametrize("kind", ["kubernetes", "jobset"])
def test_output_of_two_nodes_is_kept_if_the_volume_can_be_shared(
    kubectl: Kubectl, tmp_path: Path, kind: str, volume: str, kept: set[str]
) -> None:
    (tmp_path / "drumline.yml").write_text(f"""
project: digits
framework: plain
run: touch "$OUTPUT_DIR/worker-$DRUMLINE_INDEX" && ls "$OUTPUT_DIR"
roles: {{worker: 2}}
engine:
  {kind}:
    image: {IMAGE}
    output: {{size: 10MiB, {volume}}}
    pod:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {{matchLabels: {{drumline.dev/run: digits-1}}}}
""")
    kubectl("create", "-f", "-", given=render(tmp_path, "--run-id", "1"))
    wait_until(lambda: len(kubectl.items("pods", "drumline.dev/role=worker")) == 2)  # they may be created one by one
    kubectl("wait", "job", "--all", "--for=condition=complete", "--timeout=600s")
    pods = kubectl.items("pods", "drumline.dev/role=worker")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    kubectl("delete", "jobset,job,cm,service", "-l", "drumline.dev/run=digits-1")
    kubectl("create", "-f", "-", given=LOOK.format(image=IMAGE))
    kubectl("wait", "pod/look", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=600s")
    kubectl.until_said(lambda said: set(said.split()) == kept, "look")


# Fails as often as specified, counts on the volume, and prints the number of the attempt.
FALL = """
import os, pathlib
print("attempt", os.environ["DRUMLINE_ATTEMPT"], flush=True)
falls = pathlib.Path(os.environ["OUTPUT_DIR"], "falls")
fallen = len(falls.read_text()) if falls.exists() else 0
if os.environ["DRUMLINE_ROLE"] == "worker" and fallen < int(os.environ["FALLS"]):
    falls.write_text("x" * (fallen + 1))
    raise SystemExit(3)
"""
DONE = {
    "jobset": "--for=jsonpath={{.status.terminalState}}={}",
    "tfjob": "--for=jsonpath={{.status.conditions[-1].type}}={}",
}
ENDS = {"jobset": {True: "Completed", False: "Failed"}, "tfjob": {True: "Succeeded", False: "Failed"}}


@pytest.mark.parametrize(
    ("restart", "falls", "finishes"), [("0", 0, True), ("0", 1, False), ("2", 2, True), ("{preempted: 5}", 1, False)]
)
@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
def test_a_rendered_gang_restarts_within_its_budget_and_ps_and_evaluator_do_not_decide_its_end(
    kubectl: Kubectl, tmp_path: Path, kind: str, restart: str, falls: int, *, finishes: bool
) -> None:
    (tmp_path / "fall.py").write_text(FALL)
    (tmp_path / "drumline.yml").write_text(f"""
project: digits
framework: plain
run: python3 fall.py
env: {{FALLS: {falls}}}
roles: {{worker: 1, ps: {{run: sleep 1000}}, evaluator: {{run: exit 1}}}}
restart: {restart}
engine:
  {kind}: {{image: "{IMAGE}", output: {{size: 10MiB, class: shared, access: ReadWriteMany}}}}
""")
    kubectl("create", "-f", "-", given=render(tmp_path, "--run-id", "1"))
    kubectl("wait", f"{kind}/digits-1", DONE[kind].format(ENDS[kind][finishes]), "--timeout=600s")
    if finishes and kind == "jobset":
        last = ("-l", "drumline.dev/role=worker", "--tail=-1")
        kubectl.until_said(lambda said: f"attempt {falls}\n" in said, *last)
    kubectl("wait", "pod", "-l", "drumline.dev/role=ps", "--for=delete", "--timeout=600s")


@pytest.mark.parametrize("user", [None, 1000])
def test_pods_are_accepted_under_restricted_pod_security(kubectl: Kubectl, tmp_path: Path, user: int | None) -> None:
    level = "restricted" if user else "baseline"  # the user of an image cannot be known from outside
    kubectl("label", "namespace", kubectl.namespace, f"pod-security.kubernetes.io/enforce={level}")
    said = f", user: {user}" if user else ""
    (tmp_path / "drumline.yml").write_text(
        f'project: digits\nframework: plain\nrun: id\nengine: {{kubernetes: {{image: "{IMAGE}"{said}}}}}\n'
    )
    kubectl("create", "-f", "-", given=render(tmp_path, "--run-id", "1"))
    kubectl("wait", "job/digits-1-worker-0", "--for=condition=complete", "--timeout=600s")
    kubectl.until_said(lambda said: f"uid={user or 0}" in said, "job/digits-1-worker-0")


@pytest.mark.large
@pytest.mark.parametrize(("kind", "options"), [*((kind, "") for kind in KINDS), ("kubernetes", "jobs: indexed,")])
def test_a_thousand_replicas_are_accepted(kubectl: Kubectl, tmp_path: Path, kind: str, options: str) -> None:
    (tmp_path / "drumline.yml").write_text(f"""
project: digits
run: python3 train.py
roles: {{chief: 1, worker: 979, ps: 20}}
engine: {{{kind}: {{image: "{IMAGE}", {options} output: {{size: 1GiB, access: ReadWriteMany}}}}}}
""")
    text = render(tmp_path, "--on", kind)
    taken = dry_run(kubectl, text)
    assert sum(name.startswith("job.batch/") for name in taken) == {"": 1000}.get(options, 3) * (kind == "kubernetes")
    assert len(text) < 10_000_000
