"""Whole runs on a real cluster, by the command line, with and without faults."""

from __future__ import annotations

import json
import textwrap
import uuid
from pathlib import Path

import pytest

from cluster.breaker import Breaker
from cluster.conftest import Kubectl
from drumline.engine.kubernetes.names import incarnation_of
from drumline.engine.kubernetes.place import PARTS, PORT, PROJECT, RUNTIME
from drumline.plan.types import ReplicaId
from drumline.run.event import AttemptPlaced, ReplicaExited, ReplicaStarted, ReplicaWaits
from drumline.run.incarnation import Incarnation
from drumline.run.state import Phase
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

KINDS = ("kubernetes", "jobset", "tfjob")
KEPT = "pods,jobs,services,configmaps,secrets,networkpolicies,jobsets,tfjobs"
# Both run until they are ended: by TERM, or by `let_go`.
WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"
LASTS = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def spec(namespace: str, rest: str, kind: str = "kubernetes", image: str = "python:local") -> str:
    return f"engine: {{{kind}: {{namespace: {namespace}, image: '{image}'}}}}\n{textwrap.dedent(rest)}"


def left(kubectl: Kubectl) -> set[str]:
    """Return all objects of the namespace."""
    return {f"{each['kind']}/{each['metadata']['name']}" for each in kubectl.items(KEPT)}


def until_said(run: Run, replica: str, text: bytes, attempt: int = 0) -> None:
    wait_until(lambda: text in run.log(replica, attempt))


def let_go(run: Run, kubectl: Kubectl, index: int, *, check: bool = True) -> None:
    """Let a waiting worker of the first attempt continue."""
    incarnation = Incarnation(ReplicaId("worker", index), 0, 0)
    pods = {
        incarnation_of(run.folder.plan(), pod["metadata"]): pod["metadata"]["name"] for pod in kubectl.items("pods")
    }
    if check or incarnation in pods:
        try:
            kubectl("exec", pods[incarnation], "--", "touch", "/tmp/go", check=check)
        except AssertionError as error:
            # The container may end, and with it `touch`, as soon as the file exists.
            if "exit code 137" not in str(error):
                raise


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_finishes_with_complete_logs_and_leaves_no_objects(
    workspace: Workspace, kubectl: Kubectl, kind: str
) -> None:
    before = left(kubectl)
    workspace.write("hello.py", "for number in range(500): print('line', number)")
    run = workspace.train(spec(kubectl.namespace, "run: python3 hello.py\nroles: {worker: 2}", kind), "--on", kind)
    state = run.wait_for(Phase.FINISHED)
    assert [each.exit and each.exit.code for each in state.replicas.values()] == [0, 0]
    for index in (0, 1):
        assert run.log(f"worker.{index}").decode().splitlines() == [f"line {number}" for number in range(500)]
    started = [event for event in run.events if isinstance(event, ReplicaStarted)]
    assert all(event.note.startswith("on ") for event in started)
    assert left(kubectl) == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_replica_that_fails_is_named_and_the_others_are_stopped(
    workspace: Workspace, kubectl: Kubectl, kind: str
) -> None:
    workspace.write_spec(
        spec(
            kubectl.namespace,
            f"""
            run: |
              if [ $DRUMLINE_INDEX = 1 ]; then {WAITS}; echo "ValueError: bad row"; exit 3; fi
              {LASTS}
            roles: {{worker: 2}}
            """,
            kind,
        )
    )
    command = workspace.command("train", "--on", kind)
    (run,) = wait_until(lambda: [each for each in workspace.runs() if each.folder.journal_file.exists()])
    run.wait_for(Phase.RUNNING)
    let_go(run, kubectl, 1)
    said = "".join(command.communicate(timeout=PATIENCE_SECONDS))
    assert command.returncode == 1
    assert "First replica to fail: 1.worker.1, exit code 3" in said
    state = run.wait_for(Phase.FAILED)
    assert [(each.phase, each.reason) for each in state.replicas.values()] == [
        (Phase.KILLED, "PeerFailed"),
        (Phase.FAILED, "Exited"),
    ]
    assert "ValueError: bad row" in said


@pytest.mark.parametrize("kind", KINDS)
def test_kill_leaves_nothing(workspace: Workspace, kubectl: Kubectl, kind: str) -> None:
    before = left(kubectl)
    run = workspace.train(
        spec(kubectl.namespace, f'run: "{LASTS}"\nroles: {{worker: 2}}\nenv: {{A: {{from: TOKEN}}}}', kind),
        "--on",
        kind,
        env={"TOKEN": "hush"},
    )
    run.wait_for(Phase.RUNNING)
    assert left(kubectl) - before
    assert workspace.run("kill", "1").code == 0
    assert left(kubectl) == before
    state = run.wait_for(Phase.KILLED)
    assert [each.phase for each in state.replicas.values()] == [Phase.KILLED, Phase.KILLED]
    assert b"hush" not in b"".join(path.read_bytes() for path in run.path.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_supervisor_is_replaced_and_no_event_is_missed(
    workspace: Workspace, kubectl: Kubectl, kind: str
) -> None:
    script = f"echo one; {WAITS}; echo two; exit $DRUMLINE_INDEX"
    run = workspace.train(spec(kubectl.namespace, f'run: "{script}"\nroles: {{worker: 2}}', kind), "--on", kind)
    until_said(run, "worker.1", b"one")
    run.wait_for(Phase.RUNNING)
    run.kill_supervisor()
    let_go(run, kubectl, 1)
    let_go(run, kubectl, 0, check=kind == "kubernetes")  # an operator may end the others as soon as one has failed
    wait_until(lambda: _over(kubectl) == 2 or kind != "kubernetes")  # without a supervisor
    assert workspace.run("supervise", "1").code == 0
    run.wait_for(Phase.FAILED)
    assert (run.cause.replica, run.cause.exit.code) == (ReplicaId("worker", 1), 1)
    assert run.log("worker.1") == b"one\ntwo\n"
    if kind == "kubernetes":
        assert (run.exit("worker.0").code, run.log("worker.0")) == (0, b"one\ntwo\n")
    assert len([event for event in run.events if isinstance(event, ReplicaStarted)]) >= 2


def _over(kubectl: Kubectl) -> int:
    return sum(pod["status"]["phase"] in ("Failed", "Succeeded") for pod in kubectl.items("pods"))


def test_kill_works_without_a_supervisor(workspace: Workspace, kubectl: Kubectl) -> None:
    before = left(kubectl)
    run = workspace.train(spec(kubectl.namespace, f'run: "{LASTS}"\nroles: {{worker: 2}}'), "--on", "kubernetes")
    run.wait_for(Phase.RUNNING)
    run.kill_supervisor()
    assert workspace.run("kill", "1").code == 0
    assert run.wait_for(Phase.KILLED)
    assert left(kubectl) == before


def test_a_supervisor_that_returns_uses_the_cluster_of_the_launch(
    workspace: Workspace, kubectl: Kubectl, cluster: str, tmp_path: Path
) -> None:
    before = left(kubectl)
    elsewhere = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    elsewhere["clusters"][0]["cluster"] = {"server": "http://127.0.0.1:1"}  # under the same name
    (tmp_path / "elsewhere.conf").write_text(json.dumps(elsewhere))
    run = workspace.train(spec(kubectl.namespace, f'run: "{LASTS}"\nroles: {{worker: 2}}'), "--on", "kubernetes")
    run.wait_for(Phase.RUNNING)
    run.kill_supervisor()
    answer = workspace.run("kill", "1", env={"KUBECONFIG": str(tmp_path / "elsewhere.conf")})
    assert answer.code == 0
    state = run.wait_for(Phase.KILLED)
    assert all(each.exit and each.exit.seen for each in state.replicas.values())
    assert left(kubectl) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_fails_once_restarts_the_gang(workspace: Workspace, kubectl: Kubectl, kind: str) -> None:
    script = """
    run: |
      echo attempt $DRUMLINE_ATTEMPT
      if [ $DRUMLINE_ATTEMPT = 0 ]; then [ $DRUMLINE_INDEX = 0 ] && sleep 30; sleep 2; exit 3; fi
    roles: {worker: 2}
    restart: {crash: 1, early: 1}
    """
    run = workspace.train(spec(kubectl.namespace, script, kind), "--on", kind)
    state = run.wait_for(Phase.FINISHED)
    assert state.attempt == 1
    assert [(str(cause.replica), cause.exit.code) for cause in state.causes] == [("worker.1", 3)]
    assert [run.log("worker.1", attempt) for attempt in (0, 1)] == [b"attempt 0\n", b"attempt 1\n"]


# Makes the second worker ready only when the first one, its peer, has ended and its name is removed.
_READY = f"""
first=${{DRUMLINE_PEERS%%,*}}
try() {{ python3 -c "import socket; socket.$1" 2> /dev/null; }}
read -r own < /proc/sys/kernel/hostname
if [ "${{own%-1}}" != "$own" ]; then
  until try "create_connection(('$first', {PORT}))"; do sleep 0.2; done
  while try "getaddrinfo('$first', None)"; do sleep 0.2; done
fi
sh {PARTS}/ready.sh {PARTS} {PROJECT} {RUNTIME}
"""


@pytest.mark.parametrize("kind", ["kubernetes", "tfjob"])  # in a container of drumline, and in the replica's
def test_no_replica_waits_for_the_dns_name_of_an_ended_replica(
    workspace: Workspace, kubectl: Kubectl, kind: str
) -> None:
    workspace.write("meet.py", f"import socket; socket.create_server(('', {PORT})).accept()")
    ready = {"name": "drumline", "command": ["/bin/sh", "-c", _READY]}
    inside = {"name": "replica", "command": ["/bin/sh", "-c", f'{_READY}exec "$@"', "sh"]}
    patch = {"containers": [inside]} if kind == "tfjob" else {"initContainers": [ready]}
    workspace.write_spec(
        spec(
            kubectl.namespace,
            f"""
            framework: tensorflow
            run: '[ $DRUMLINE_INDEX = 1 ] || exec python3 meet.py'
            roles: {{worker: {{replicas: 2, pod: {json.dumps(patch)}}}}}
            """,
            kind,
        )
    )
    workspace.run("train", "--detach", "--on", kind)
    (run,) = workspace.runs()
    wait_until(lambda: _over(kubectl) == 1)
    kubectl(
        "label", "service", "--all", "looked=again"
    )  # as when another pod starts: the name of an ended pod is removed
    state = run.wait_for(Phase.FINISHED)
    assert [each.exit and each.exit.code for each in state.replicas.values()] == [0, 0]


def test_two_users_can_run_the_same_project_with_the_same_run_number(
    workspace: Workspace, kubectl: Kubectl, tmp_path: Path
) -> None:
    other = Workspace(tmp_path / "other")
    script = spec(kubectl.namespace, "run: echo here; sleep 3\nroles: {worker: 2}")
    try:
        runs = [place.train(script, "--on", "kubernetes") for place in (workspace, other)]
        assert [run.id for run in runs] == ["1", "1"]
        for run in runs:
            assert run.wait_for(Phase.FINISHED)
            assert len(run.exits()) == 2
        placed = [event.addresses for run in runs for event in run.events if isinstance(event, AttemptPlaced)]
        assert not set(placed[0]) & set(placed[1])
    finally:
        other.leave()


def test_a_namespace_and_a_name_of_the_greatest_length_are_accepted(workspace: Workspace, cluster: str) -> None:
    name = f"{'long-' * 12}{uuid.uuid4().hex}"[:63]
    kubectl = Kubectl(name)
    kubectl.make_namespace()
    try:
        text = spec(name, "run: 'python3 -c \"import socket; print(socket.gethostname())\"'\nroles: {worker: 2}")
        run = workspace.train(text, "--on", "kubernetes", "--name", "a" * 63)
        assert run.wait_for(Phase.FINISHED)
        assert run.log("worker.1") == b"worker-1\n"
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def test_a_missing_namespace_is_refused_and_no_run_is_created(workspace: Workspace, cluster: str) -> None:
    workspace.write_spec(spec("nowhere-at-all", "run: 'true'"))
    answer = workspace.run("train", "--on", "kubernetes")
    assert answer.code == 3
    assert "there is no namespace `nowhere-at-all`" in answer.err
    assert "`kubectl create namespace nowhere-at-all` makes it" in answer.err
    assert workspace.runs() == []


def test_the_namespace_can_be_set_on_the_command_line(workspace: Workspace, kubectl: Kubectl) -> None:
    run = workspace.train(spec("nowhere-at-all", "run: 'true'"), "--on", "kubernetes", "-n", kubectl.namespace)
    assert run.wait_for(Phase.FINISHED)


def test_missing_rights_are_named_and_no_run_is_created(
    workspace: Workspace, kubectl: Kubectl, cluster: str, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "norights")
    token = kubectl("create", "token", "norights").strip()
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "norights.conf").write_text(json.dumps(config))
    workspace.write_spec(spec(kubectl.namespace, "run: 'true'"))
    answer = workspace.run("train", "--on", "kubernetes", env={"KUBECONFIG": str(tmp_path / "norights.conf")})
    assert answer.code == 3
    assert "you may not " in answer.err
    assert "create configmaps" in answer.err
    assert f"in the namespace `{kubectl.namespace}`" in answer.err
    assert workspace.runs() == []


def test_a_full_quota_is_reported_and_is_the_cause_after_the_start_timeout(
    workspace: Workspace, kubectl: Kubectl
) -> None:
    before = left(kubectl)
    kubectl.make_quota("small", "pods=1")
    text = spec(kubectl.namespace, f'run: "{LASTS}"\nroles: {{worker: 2}}\ntimeouts: {{start: 15s}}')
    run = workspace.train(text, "--on", "kubernetes")
    run.wait_for(Phase.FAILED)
    waits = [event for event in run.events if isinstance(event, ReplicaWaits) and event.reason == "Quota"]
    assert waits
    assert all("it exceeds the quota small" in wait.message for wait in waits)
    assert "did not start within 15 s" in run.cause.exit.message
    assert left(kubectl) == before


def test_a_missing_image_is_reported(workspace: Workspace, kubectl: Kubectl) -> None:
    text = spec(
        kubectl.namespace, "run: 'true'\nroles: {worker: 1}\ntimeouts: {start: 20s}", image="no-such/image:none"
    )
    run = workspace.train(text, "--on", "kubernetes")
    run.wait_for(Phase.FAILED)
    assert "cannot be pulled" in run.cause.exit.message
    assert run.exit("worker.0").seen is False


@pytest.mark.parametrize("kind", KINDS)
def test_an_unavailable_api_server_does_not_change_the_state_of_a_run(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker, tmp_path: Path, kind: str
) -> None:
    before = left(kubectl)
    script = f"echo one; {WAITS}; echo two"
    workspace.env["KUBECONFIG"] = str(breaker.kubeconfig(tmp_path / "through", kubectl.namespace))
    run = workspace.train(spec(kubectl.namespace, f'run: "{script}"\nroles: {{worker: 2}}', kind), "--on", kind)
    for index in (0, 1):
        until_said(run, f"worker.{index}", b"one\n")
    breaker.stop_serving()
    for index in (0, 1):
        let_go(run, kubectl, index)
    wait_until(lambda: all(_is_over(pod) for pod in kubectl.items("pods", "drumline.dev/role=worker")))
    breaker.serve_again()
    run.wait_for(Phase.FINISHED)
    for index in (0, 1):
        assert run.log(f"worker.{index}") == b"one\ntwo\n"
    assert [each.exit.code for each in run.events if isinstance(each, ReplicaExited)] == [0, 0]
    assert left(kubectl) == before


def _is_over(pod: dict[str, dict[str, str]]) -> bool:
    return pod["status"]["phase"] in ("Failed", "Succeeded")
