"""A testbed of the contract on a real cluster: replicas are pods, and another pod serves the gates."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from cluster.conftest import Kubectl
from cluster.proxy import ApiProxy
from drumline.engine import protocol
from drumline.engine.kubernetes import KubernetesEngine, names
from drumline.engine.kubernetes.plan_options import Cluster, Image, Volume, with_cluster
from drumline.engine.kubernetes.session import ClusterSession
from drumline.plan.codec import plan_from_json
from drumline.plan.types import Environment, Launch, Plan, ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited
from drumline.run.incarnation import Incarnation
from scaffold.loops import SteppedLoop
from scaffold.testbeds import Behavior, OpenSessions, Rendered, player
from scaffold.waiting import PATIENCE_SECONDS, wait_until

IMAGE = "python:local"
PORT = 8080
_LOOK_SECONDS = 0.05  # between two requests to the server

# A server of gates: `WAIT name` is answered when the gate is open, and `GET /name` opens it.
_GATES = """
import socketserver, threading
opened, changed = set(), threading.Condition()
class Gate(socketserver.StreamRequestHandler):
    def handle(self):
        words = self.rfile.readline().decode().split()
        if not words:  # a probe of the kubelet
            return
        verb, gate = words[:2]
        with changed:
            if verb == "GET":
                opened.add(gate.rpartition("/")[2])
                changed.notify_all()
            else:
                changed.wait_for(lambda: gate in opened)
        self.wfile.write(b"HTTP/1.0 200 OK\\r\\n\\r\\n{}")
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer(("", 8080), Gate).serve_forever()
"""

_PLAYER = player("""
def pass_gate(gate):
    *at, name = gate
    with socket.create_connection(at) as connection:
        connection.sendall(f"WAIT {name}\\n".encode())
        while not connection.recv(64):  # the server of gates has ended; this process is stopped by the test
            signal.pause()
""")


class SharedNamespace:
    """A namespace for many tests, with the pod that serves the gates."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.namespace = kubectl.namespace
        container = {
            "name": "gates",
            "image": IMAGE,
            "command": ["python3", "-c", _GATES],
            # A replica that connects before the server listens would fail.
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        }
        metadata, spec = {"name": "gates"}, {"containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        kubectl("create", "-f", "-", given=json.dumps(pod))
        kubectl("wait", "pod/gates", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS:.0f}s")
        self.address = str(kubectl("get", "pod", "gates", "-o", "jsonpath={.status.podIP}")).strip()
        self._proxy = ApiProxy()

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._proxy.get(f"/api/v1/namespaces/{self.namespace}/pods/gates:{PORT}/proxy/{gate}")

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the pods with these labels."""
        return self._proxy.pods(self.namespace, selector)

    def close(self) -> None:
        """Stop the proxy of the namespace."""
        self._proxy.close()


class _Session(ClusterSession):
    """A session that reports exit codes above 128 as signals: a cluster does not distinguish them, and these tests use
    such codes for signals only."""

    async def events(self) -> AsyncIterator[Event]:
        async for event in super().events():
            if isinstance(event, ReplicaExited) and (code := event.exit.code) and code > 128:
                yield event.replace(exit=Exit(signal=code - 128))
            else:
                yield event

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> protocol.Placed:
        placed = await super().place(plan, attempt=attempt, keep=keep)
        return placed.replace(warnings=())  # the tests need no volume


class _Engine(KubernetesEngine):
    """An engine with such sessions."""

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[protocol.Session]:
        session = _Session(plan_from_json((run_dir / "plan.json").read_text("utf-8")), run_dir, self._site)
        try:
            yield session
        finally:
            await session.disconnect()

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[protocol.Problem]:
        """Yield all problems but warnings: the tests need no volume."""
        return (each for each in super().problems(plan, launches) if not each.is_warning)


class KubernetesTestBed:
    """Pods of a real cluster."""

    refused: tuple[str, ...] = ("echo", "x" * (2 << 20))

    def __init__(
        self, folder: Path, shared_namespace: SharedNamespace, kind: str = "kubernetes", *, jobs: str = "single"
    ) -> None:
        self._shared_namespace = shared_namespace
        self._kind = kind
        self._jobs = jobs
        self._unique = f"{secrets.token_hex(4)}"
        project = folder / "project"
        project.mkdir()
        self._site = protocol.Site(project, folder / "home", cores=2)
        self._sessions = OpenSessions()
        self._plan: Plan | None = None
        self._seen: list[dict[str, Any]] = []  # the pods, as last read
        self._look_at = 0.0

    def make_engine(self) -> protocol.Engine:
        return _Engine(self._site)

    def open_session(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        return self._sessions.open(engine, run_dir, loop)

    def make_loop(self) -> SteppedLoop:
        return SteppedLoop()

    def of(self, plan: Plan) -> Plan:
        volume = Volume(size_bytes=1 << 24, storage_class="shared", access="ReadWriteMany")
        cluster = Cluster(
            unique=self._unique,
            user="tester",
            namespace=self._shared_namespace.namespace,
            image=Image(IMAGE),
            jobs=self._jobs,
            data={each.variable: volume for each in plan.preparations},
        )
        self._plan = with_cluster(plan, cluster).replace(
            engine=self._kind, is_elsewhere=True, restarts_whole=self._kind != "kubernetes"
        )
        return self._plan

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        at = (self._shared_namespace.address, PORT)
        data = [
            {**behavior._asdict(), "gate": behavior.until and (*at, self._gate(behavior.until))}
            for behavior in behaviors
        ]
        return ("python3", "-c", _PLAYER, json.dumps(data))

    def rendered(self, engine: protocol.Engine, plan: Plan, launches: tuple[Launch, ...]) -> dict[ReplicaId, Rendered]:
        objects = list(yaml.safe_load_all(engine.render(plan, launches, "yaml")))
        shared = {name: text for each in objects for name, text in (each.get("data") or {}).items()}
        found = {}
        for job in objects:
            if job["kind"] == "Job":
                incarnation = names.incarnation_of(plan, job["metadata"])
                container = job["spec"]["template"]["spec"]["containers"][0]
                assert incarnation
                found[incarnation.replica] = Rendered(tuple(container["args"]), _expanded(container["env"], shared))
        return found

    def rest(self, session: protocol.Session) -> None:
        self._sessions.release(session)

    def have_environment(self, environment: Environment) -> None:
        """Do nothing: the image has it."""

    def open(self, gate: int) -> None:
        self._shared_namespace.open(self._gate(gate))

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        return bool(self._pods(replica, attempt))

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        """Wait until it has ended and the second has passed: a cluster's times are whole seconds."""
        wait_until(
            lambda: all(_is_over(pod) for pod in self._pods(replica, 0))
        )  # or there are none: operators delete pods
        second = int(time.time())
        wait_until(lambda: time.time() >= second + 1)

    def left(self) -> list[str]:
        found = self._look() if self._plan else []
        return [each["metadata"]["name"] for each in found if not _is_over(each)]

    def describe(self) -> str:
        """Return what `kubectl describe` prints for the pods that are left."""
        said = [self._shared_namespace.kubectl("describe", "pod", name, check=False) for name in self.left()]
        return "\n".join(["not all pods have ended", *said])

    def close(self) -> None:
        self._sessions.release_all()

    def _pods(self, replica: ReplicaId, attempt: int) -> list[dict[str, Any]]:
        assert self._plan
        if time.monotonic() >= self._look_at:
            self._seen, self._look_at = self._look(), time.monotonic() + _LOOK_SECONDS
        wanted = Incarnation(replica, attempt, 0)
        return [each for each in self._seen if names.incarnation_of(self._plan, each["metadata"]) == wanted]

    def _look(self) -> list[dict[str, Any]]:
        assert self._plan
        return self._shared_namespace.pods(names.selector(self._plan))

    def _gate(self, number: int) -> str:
        return f"{self._unique}-{number}"


def _is_over(pod: dict[str, Any]) -> bool:
    """Return whether nothing runs in a pod any more; its phase changes a little later."""
    states = [each["state"] for each in pod["status"].get("containerStatuses", ())]
    return pod["status"].get("phase") in ("Succeeded", "Failed") or any("terminated" in state for state in states)


def _expanded(entries: list[dict[str, Any]], shared: dict[str, str]) -> dict[str, str]:
    """Return variables as a kubelet expands them."""
    known: dict[str, str] = {}
    for entry in entries:
        value = entry.get("value")
        if value is None:
            value = shared[entry["valueFrom"]["configMapKeyRef"]["key"]]
        for name, text in known.items():
            value = value.replace(f"$({name})", text)
        known[entry["name"]] = value
    return known
