"""Messages: to a supervisor's socket and to an agent on a host, and the answers of hosts and clusters."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from drumline.engine.agent.frames import Frame, FrameParser
from drumline.engine.agent.launches import incarnation_from_text, launch_from_data
from drumline.engine.kubernetes.pod_status import main_container, read_pod_status, started_at
from drumline.engine.kubernetes.wait_reason import read_event
from drumline.engine.local.claim_registry import _parse as parse_entry
from drumline.engine.ssh.reports import read_report
from drumline.engine.untrusted import load_json
from drumline.errors import DrumlineError
from drumline.runtime.unix import receive_request
from drumline.spec.quantity import parse_quantity
from drumline.supervise.control import ControlServer, parse_request
from fuzz.cases import Trial, case
from fuzz.mutate import TEXTS, damage, strange, twist
from scaffold.loops import SteppedLoop

DATA = Path(__file__).parents[1] / "unit" / "engine" / "kubernetes" / "data"
REQUESTS: tuple[dict[str, Any], ...] = ({"do": "stop", "force": True}, {"do": "watch"}, {"do": "stacks"}, {"do": "x"})
EVENT = {"do": "event", "event": {"event": "ReplicaExited", "replica": "worker.0", "attempt": 0, "exit": {"code": 1}}}
MALFORMED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)  # the receiver closes the connection


@cache
def recorded(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def encode_message(value: Any, rng: Random) -> bytes:
    """Return a message as it may arrive, complete or damaged."""
    value = twist(value, rng) if rng.random() < 0.7 else value
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    return (damage(data, rng) if rng.random() < 0.4 else data) + rng.choice((b"\n", b"\n", b"", b"\r\n"))


@contextmanager
def few_descriptors(most: int) -> Iterator[None]:
    """Limit the number of open files of this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@case
def control(trial: Trial) -> None:
    """Check that a supervisor's socket answers a request, whatever other clients send or leave unsent."""
    rng, path, loop, received = trial.rng, trial.folder / "control", SteppedLoop(), list[object]()
    server = ControlServer(path, loop, received.append)
    clients: list[socket.socket] = []
    try:
        for _ in range(rng.choice((1, 3, 30))):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(path))
            client.setblocking(False)
            clients.append(client)
            for _ in range(rng.randrange(4)):
                sent = encode_message(rng.choice(REQUESTS[1:]), rng) * rng.choice((1, 1, 300))
                try:
                    client.send(sent[: rng.randint(0, len(sent))])
                except OSError:
                    break
            if rng.random() < 0.3:
                client.close()
            elif rng.random() < 0.1:
                client.shutdown(socket.SHUT_WR)
            run_loop(loop)
        if rng.random() < 0.2:
            with few_descriptors(clients[-1].fileno() + 2 if clients[-1].fileno() > 0 else 64):
                run_loop(loop)
        server.notify_watchers()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(b'{"do": "stop", "force": true}\n')
            before = len(received)
            while len(received) == before:
                loop.turn()
            assert client.recv(100) == b'{"ok": true}\n'
    finally:
        server.close()
        loop.close()
        for client in clients:
            client.close()


def run_loop(loop: SteppedLoop) -> None:
    """Let the server read what was sent."""
    for _ in range(5):
        loop.turn()


@case
def requests(trial: Trial) -> None:
    rng = trial.rng
    parse_request(encode_message(rng.choice(REQUESTS), rng), 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        body = encode_message({"do": "start", "order": {"name": "x"}, "held": 0}, rng)
        size = rng.choice((len(body), len(body) - 1, 0, 2**32 - 1, 2**31, len(body) + 9))
        theirs.sendall(damage(size.to_bytes(4), rng, most=1)[:4] + body)
        theirs.close()
        try:
            receive_request(ours, 10)
        except (OSError, *MALFORMED):
            pass


@case
def frames(trial: Trial) -> None:
    """Parse the frames of a supervisor in any pieces; malformed ones raise known errors."""
    rng, parser = trial.rng, FrameParser()
    sent = b"".join(
        Frame(
            rng.choice((EVENT, {"do": "log", "incarnation": "worker.0 0 0", "at": 5})), b"x" * rng.randrange(9)
        ).encode()
        for _ in range(5)
    )
    sent = damage(sent, rng) if rng.random() < 0.8 else sent
    try:
        while sent:
            size = rng.choice((1, 10, 1000))
            for frame in parser.feed(sent[:size]):
                assert isinstance(frame.message, dict)
            sent = sent[size:]
    except MALFORMED:
        pass
    with suppress(ValueError):
        incarnation_from_text(rng.choice(TEXTS))
    with suppress(ValueError):
        read_report(Frame(load_json(encode_message(EVENT, rng))))
    with suppress(*MALFORMED):
        launch_from_data(
            twist({"replica": {"id": "worker.0"}, "attempt": 0, "place": {}, "env": {}, "incarnation": 0}, rng)
        )


@case
def pods(trial: Trial) -> None:
    """Read recorded statuses of pods in which some values are replaced."""
    rng = trial.rng
    pod = rng.choice(recorded("pods.jsonl"))["pod"]
    status = {**pod, "status": twist_texts(pod.get("status") or {}, rng)}
    for asked in (False, True):
        read_pod_status(status, now=2e9, deleted=rng.random() < 0.3, asked=asked)
    main_container(status), started_at(status)
    event = rng.choice(recorded("events.jsonl"))
    read_event(twist_texts(event, rng))
    parse_quantity(rng.choice((*TEXTS, "1Gi", "100m", "1e3", "-1", "1e9999", "0.5Ki")))


def twist_texts(value: Any, rng: Random) -> Any:
    """Return the value with other texts and missing keys; types are kept, as by an API server."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if rng.random() > 0.05 or key in ("name", "type", "status")}
        return {key: twist_texts(each, rng) for key, each in kept.items()}
    if isinstance(value, list):
        return [twist_texts(each, rng) for each in value]
    if isinstance(value, str) and rng.random() < 0.05 and not value[:4].isdigit():
        return rng.choice(TEXTS)
    return value


@case
def claims(trial: Trial) -> None:
    entry = {"v": 1, "run": "1", "holds": True, "cpus": 1, "memory_bytes": 5, "gpus": 0, "gpu_ids": []}
    path = trial.folder / "entry"
    path.write_bytes(json.dumps(twist(entry, trial.rng)).encode("utf-8", "surrogatepass"))
    parse_entry(path)
    path.write_bytes(json.dumps(strange(trial.rng)).encode("utf-8", "surrogatepass"))
    with suppress(DrumlineError):
        parse_entry(path)
