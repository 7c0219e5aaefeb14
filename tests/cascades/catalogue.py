"""The cascades that are collected: gangs of real frameworks with one faulty replica."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


class Cascade(NamedTuple):
    """A script, its gang, the faulty replica and its fault; a signal is sent when a log has a line that begins so."""

    name: str
    script: str
    framework: str
    roles: Mapping[str, int]
    faulty: str
    how: str  # a signal, or a fault of scripts/fall.py
    when: tuple[str, str] = ("", "step 5:")  # replica and beginning of the line; the faulty replica by default
    patience_seconds: float = 25.0  # the time that the other replicas may take to end
    spec: str = ""
    is_run: bool = False  # started by drumline


def run_of(cascade: Cascade) -> Cascade:
    return cascade._replace(name=f"run-{cascade.name}", is_run=True, spec="timeouts: {grace: 2}")


def cut(cascade: Cascade) -> Cascade:
    return run_of(cascade)._replace(spec="timeouts: {grace: 2}\nengine: {local: {network: private}}")


def mirrored(name: str, faulty: str, how: str, workers: int = 2, **more: Any) -> Cascade:
    return Cascade(f"mirrored-{name}", "mirrored.py", "tensorflow", {"worker": workers}, faulty, how, **more)


def servers(name: str, faulty: str, how: str, **more: Any) -> Cascade:
    roles = {"chief": 1, "worker": 2, "ps": 2}
    when = ("chief.0", "epoch 1")
    return Cascade(f"servers-{name}", "parameter_server.py", "tensorflow", roles, faulty, how, when, **more)


def torch(script: str, name: str, faulty: str, how: str, workers: int = 2) -> Cascade:
    return Cascade(f"{script}-{name}", f"{script}.py", "torch", {"worker": workers}, faulty, how)


def jax(name: str, faulty: str, how: str, workers: int = 2, **more: Any) -> Cascade:
    return Cascade(f"jax-{name}", "spread.py", "jax", {"worker": workers}, faulty, how, patience_seconds=40.0, **more)


_LIMIT = "resources: {memory: 2GiB}"
_KERAS = ("keras_mnist.py", "tensorflow", {"worker": 2})
_EPOCH = ("worker.0", "epoch")

CASCADES = (
    mirrored("kill-other", "worker.1", "kill"),
    mirrored("kill-first", "worker.0", "kill"),
    mirrored("three-kill-first", "worker.0", "kill", 3),
    mirrored("three-kill-second", "worker.1", "kill", 3),
    mirrored("three-kill-last", "worker.2", "kill", 3),
    mirrored("leave-other", "worker.1", "leave"),
    mirrored("leave-first", "worker.0", "leave"),
    mirrored("three-leave-second", "worker.1", "leave-at-once", 3),
    mirrored("raise-other", "worker.1", "raise"),
    mirrored("raise-first", "worker.0", "raise"),
    mirrored("three-raise-last", "worker.2", "raise", 3),
    mirrored("graph-other", "worker.1", "graph"),
    mirrored("graph-first", "worker.0", "graph"),
    mirrored("three-graph-second", "worker.1", "graph", 3),
    mirrored("abort-other", "worker.1", "abort"),
    mirrored("stop-other", "worker.1", "stop"),
    mirrored("stop-first", "worker.0", "stop"),
    mirrored("three-stop-first", "worker.0", "stop", 3),
    mirrored("three-stop-second", "worker.1", "stop", 3),
    mirrored("early-other", "worker.1", "raise-early"),
    mirrored("early-first", "worker.0", "raise-early"),
    mirrored("memory-other", "worker.1", "memory", spec=_LIMIT, is_run=True),
    mirrored("memory-first", "worker.0", "memory", spec=_LIMIT, is_run=True),
    Cascade("chief-kill", "mirrored.py", "tensorflow", {"chief": 1, "worker": 1}, "chief.0", "kill"),
    Cascade("chief-stop-worker", "mirrored.py", "tensorflow", {"chief": 1, "worker": 1}, "worker.0", "stop"),
    Cascade("keras-kill-other", *_KERAS, "worker.1", "kill", _EPOCH),
    Cascade("keras-kill-first", *_KERAS, "worker.0", "kill", _EPOCH),
    servers("kill-chief", "chief.0", "kill"),
    servers("kill-ps", "ps.1", "kill"),
    servers("kill-first-ps", "ps.0", "kill"),
    servers("term-ps", "ps.0", "term"),
    servers("kill-worker", "worker.1", "kill"),
    torch("gloo", "kill-other", "worker.1", "kill"),
    torch("gloo", "kill-first", "worker.0", "kill"),
    torch("gloo", "three-kill-second", "worker.1", "kill", 3),
    torch("gloo", "raise-other", "worker.1", "raise"),
    torch("gloo", "raise-first", "worker.0", "raise"),
    torch("gloo", "three-raise-last", "worker.2", "raise", 3),
    torch("gloo", "leave-other", "worker.1", "leave"),
    torch("gloo", "leave-first", "worker.0", "leave"),
    torch("gloo", "early-other", "worker.1", "raise-early"),
    torch("gloo", "absent-other", "worker.1", "absent"),
    torch("gloo", "absent-first", "worker.0", "absent"),
    torch("gloo", "stop-other", "worker.1", "stop"),
    torch("gloo", "stop-first", "worker.0", "stop"),
    torch("gloo", "three-stop-second", "worker.1", "stop", 3),
    torch("reduce", "kill-other", "worker.1", "kill"),
    torch("reduce", "three-stop-second", "worker.1", "stop", 3),
    torch("reduce", "three-kill-first", "worker.0", "kill", 3),
    torch("reduce", "three-leave-last", "worker.2", "leave-at-once", 3),
    jax("kill-other", "worker.1", "kill"),
    jax("kill-first", "worker.0", "kill"),
    jax("three-kill-second", "worker.1", "kill", 3),
    jax("raise-other", "worker.1", "raise"),
    jax("raise-first", "worker.0", "raise"),
    jax("leave-other", "worker.1", "leave-at-once"),
    jax("stop-other", "worker.1", "stop"),
    jax("stop-first", "worker.0", "stop"),
    jax("absent-other", "worker.1", "absent"),
    jax("absent-first", "worker.0", "absent"),
    run_of(mirrored("stop-first", "worker.0", "stop")),
    run_of(mirrored("stop-other", "worker.1", "stop")),
    run_of(mirrored("three-stop-first", "worker.0", "stop", 3)),
    run_of(mirrored("three-stop-second", "worker.1", "stop", 3)),
    run_of(mirrored("three-kill-second", "worker.1", "kill", 3)),
    run_of(mirrored("graph-first", "worker.0", "graph")),
    run_of(torch("gloo", "stop-other", "worker.1", "stop")),
    run_of(torch("gloo", "three-stop-second", "worker.1", "stop", 3)),
    run_of(torch("gloo", "raise-first", "worker.0", "raise")),
    run_of(jax("stop-first", "worker.0", "stop")),
    run_of(jax("stop-other", "worker.1", "stop")),
    run_of(jax("raise-other", "worker.1", "raise")),
    cut(mirrored("cut-other", "worker.1", "cut")),
    cut(mirrored("three-cut-first", "worker.0", "cut", 3)),
    cut(mirrored("three-cut-second", "worker.1", "cut", 3)),
    cut(jax("cut-other", "worker.1", "cut")),
    run_of(servers("kill-ps", "ps.1", "kill")),
    run_of(servers("kill-chief", "chief.0", "kill")),
    # TensorFlow waits for an hour in each of these.
    mirrored("absent-other", "worker.1", "absent", patience_seconds=4000.0),
    mirrored("absent-first", "worker.0", "absent", patience_seconds=4000.0),
    mirrored("three-absent-last", "worker.2", "absent", 3, patience_seconds=4000.0),
)
