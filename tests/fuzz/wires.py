"""What others say: to a supervisor's socket, to an agent on a host, and what hosts and clusters answer."""

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
NONSENSE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)  # whoever hears it hangs up


@cache
def seen(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def spoken(value: Any, chance: Random) -> bytes:
    """A message as it may arrive."""
    value = twist(value, chance) if chance.random() < 0.7 else value
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    return (damage(data, chance) if chance.random() < 0.4 else data) + chance.choice((b"\n", b"\n", b"", b"\r\n"))


@contextmanager
def few_descriptors(most: int) -> Iterator[None]:
    """Have no more than so many, as when others have taken them all."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@case
def control(trial: Trial) -> None:
    """A supervisor's socket hears whoever speaks, whatever others say or leave unsaid."""
    chance, path, loop, heard = trial.chance, trial.folder / "control", SteppedLoop(), list[object]()
    server = ControlServer(path, loop, heard.append)
    clients: list[socket.socket] = []
    try:
        for _ in range(chance.choice((1, 3, 30))):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(path))
            client.setblocking(False)
            clients.append(client)
            for _ in range(chance.randrange(4)):
                said = spoken(chance.choice(REQUESTS[1:]), chance) * chance.choice((1, 1, 300))
                try:
                    client.send(said[: chance.randint(0, len(said))])
                except OSError:
                    break
            if chance.random() < 0.3:
                client.close()
            elif chance.random() < 0.1:
                client.shutdown(socket.SHUT_WR)
            turn(loop)
        if chance.random() < 0.2:
            with few_descriptors(clients[-1].fileno() + 2 if clients[-1].fileno() > 0 else 64):
                turn(loop)
        server.notify_watchers()
        with socket.socket(socket.AF_UNIX) as asker:
            asker.settimeout(10)
            asker.connect(str(path))
            asker.sendall(b'{"do": "stop", "force": true}\n')
            before = len(heard)
            while len(heard) == before:
                loop.turn()
            assert asker.recv(100) == b'{"ok": true}\n'
    finally:
        server.close()
        loop.close()
        for client in clients:
            client.close()


def turn(loop: SteppedLoop) -> None:
    """Let everything be heard that was said."""
    for _ in range(5):
        loop.turn()


@case
def requests(trial: Trial) -> None:
    chance = trial.chance
    parse_request(spoken(chance.choice(REQUESTS), chance), 0.0)
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(5)
        body = spoken({"do": "start", "order": {"name": "x"}, "held": 0}, chance)
        size = chance.choice((len(body), len(body) - 1, 0, 2**32 - 1, 2**31, len(body) + 9))
        there.sendall(damage(size.to_bytes(4), chance, most=1)[:4] + body)
        there.close()
        try:
            receive_request(here, 10)
        except (OSError, *NONSENSE):
            pass


@case
def frames(trial: Trial) -> None:
    """What a supervisor says to a host, in any pieces; who hears nonsense there hangs up."""
    chance, hears = trial.chance, FrameParser()
    said = b"".join(
        Frame(
            chance.choice((EVENT, {"do": "log", "incarnation": "worker.0 0 0", "at": 5})), b"x" * chance.randrange(9)
        ).encode()
        for _ in range(5)
    )
    said = damage(said, chance) if chance.random() < 0.8 else said
    try:
        while said:
            size = chance.choice((1, 10, 1000))
            for frame in hears.feed(said[:size]):
                assert isinstance(frame.message, dict)
            said = said[size:]
    except NONSENSE:
        pass
    with suppress(ValueError):
        incarnation_from_text(chance.choice(TEXTS))
    with suppress(ValueError):
        read_report(Frame(load_json(spoken(EVENT, chance))))
    with suppress(*NONSENSE):
        launch_from_data(
            twist({"replica": {"id": "worker.0"}, "attempt": 0, "place": {}, "env": {}, "incarnation": 0}, chance)
        )


@case
def pods(trial: Trial) -> None:
    """What an API server says of pods: statuses of a real one, of which one thing is another."""
    chance = trial.chance
    pod = chance.choice(seen("pods.jsonl"))["pod"]
    status = {**pod, "status": twist_texts(pod.get("status") or {}, chance)}
    for asked in (False, True):
        read_pod_status(status, now=2e9, deleted=chance.random() < 0.3, asked=asked)
    main_container(status), started_at(status)
    event = chance.choice(seen("events.jsonl"))
    read_event(twist_texts(event, chance))
    parse_quantity(chance.choice((*TEXTS, "1Gi", "100m", "1e3", "-1", "1e9999", "0.5Ki")))


def twist_texts(value: Any, chance: Random) -> Any:
    """The same, with other texts and with keys that are not there: a server keeps to the kinds of its API."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if chance.random() > 0.05 or key in ("name", "type", "status")}
        return {key: twist_texts(each, chance) for key, each in kept.items()}
    if isinstance(value, list):
        return [twist_texts(each, chance) for each in value]
    if isinstance(value, str) and chance.random() < 0.05 and not value[:4].isdigit():
        return chance.choice(TEXTS)
    return value


@case
def claims(trial: Trial) -> None:
    entry = {"v": 1, "run": "1", "holds": True, "cpus": 1, "memory_bytes": 5, "gpus": 0, "gpu_ids": []}
    path = trial.folder / "entry"
    path.write_bytes(json.dumps(twist(entry, trial.chance)).encode("utf-8", "surrogatepass"))
    parse_entry(path)
    path.write_bytes(json.dumps(strange(trial.chance)).encode("utf-8", "surrogatepass"))
    with suppress(DrumlineError):
        parse_entry(path)
