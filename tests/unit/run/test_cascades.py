"""Failures of real gangs, recorded by tests/cascades/collect.py: the cause is the faulty replica in all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumline.plan.rendezvous.rank import ranks
from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import AttemptPlaced, Cause, Event, Exit, ReplicaExited, ReplicaStarted, RunAccepted, TimerFired
from drumline.run.evidence import Peers, read_evidence
from scaffold.decisions import fold
from scaffold.gangs import gang

CASCADES = sorted((Path(__file__).parents[2] / "cascades").glob("*.json"))

# The expected reason and class of each fault; `graph` is an exception in a step of TensorFlow.
VERDICTS = {
    "kill": ("Signalled", "crash"),
    "term": ("Signalled", "preempted"),
    "abort": ("Signalled", "crash"),
    "leave": ("LeftEarly", "crash"),
    "leave-at-once": ("LeftEarly", "crash"),
    "raise": ("Exited", "crash"),
    "raise-early": ("Exited", "early"),
    "graph": ("Exited", "crash"),
    "memory": ("OutOfMemory", "out_of_memory"),
    "stop": ("Unresponsive", "hang"),
    "absent": ("Missing", "rendezvous"),
    "cut": ("Unreachable", "lost"),
}
MESSAGES = {"raise": "ValueError: bad row in the data", "raise-early": "FileNotFoundError: no such data: digits.npz"}


def events_of(plan: Plan, cascade: dict[str, Any], stop_signal: int | None = None) -> Iterator[Event]:
    """Yield the events of a cascade; with a signal, as if it had ended the others as soon as the first had failed."""
    addresses = {f"127.0.0.1:{cascade['port'] + number}": replica.id for number, replica in enumerate(plan.replicas)}
    yield RunAccepted()
    yield AttemptPlaced(0, tuple(addresses))
    yield from (ReplicaStarted(replica.id, 0) for replica in plan.replicas)
    if cascade["how"] != "raise-early":  # in the others, steps were taken
        yield TimerFired("old", 0)
    failed = False
    for end in cascade["ends"]:
        name = ReplicaId.parse(end["replica"])
        exit_ = Exit(end.get("code"), end.get("signal"), end.get("message", ""), end.get("out_of_memory", False))
        peers = Peers(name, tuple(ranks(plan)), addresses, plan.chief)
        evidence = read_evidence("\n".join(cascade["logs"][str(name)]).encode(), peers)
        if failed and stop_signal and not end.get("stopped"):
            # The replica that raised has printed its exception before the others could notice its end.
            exit_, evidence = Exit(signal=stop_signal), evidence if end["replica"] == cascade["faulty"] else None
        failed = failed or not exit_.ok
        yield ReplicaExited(name, 0, 0, exit_, 1000.0 + end["seconds"], evidence if not exit_.ok else None)


def verdict(cascade: dict[str, Any], stop_signal: int | None = None) -> Cause:
    roles = " ".join(f"{role}*{number}" for role, number in cascade["roles"].items())
    plan = gang(roles).replace(framework=cascade["framework"])
    ending = fold(plan, events_of(plan, cascade, stop_signal)).ending
    assert ending is not None
    assert ending.cause is not None
    return ending.cause


# Of three ranks of gloo one is silent; the others report a timeout without the name of the peer. The faulty replica is
# known only if both have reported before they are stopped.
WITHOUT_NAME = ("gloo-three-stop-second", "reduce-three-stop-second")


@pytest.mark.parametrize("stop_signal", [None, 15, 9], ids=["by themselves", "terminated", "killed"])
@pytest.mark.parametrize("path", CASCADES, ids=lambda path: path.stem)
def test_the_faulty_replica_is_the_cause(path: Path, stop_signal: int | None) -> None:
    cascade = json.loads(path.read_text())
    # In a run of drumline the others were really stopped.
    cause = verdict(cascade, None if cascade.get("is_run") else stop_signal)
    if stop_signal and path.stem in WITHOUT_NAME:
        assert (cause.reason, cause.failure) == ("WaitedInVain", "hang")
        return
    reason, failure = VERDICTS[cascade["how"]]
    if cascade["framework"] == "jax" and cascade["how"] == "raise":
        assert cause.reason in ("Exited", "Signalled")  # it aborts if its peers do not end together with it
        reason = cause.reason
    is_either = cascade["how"] == "cut" and len(cascade["ends"]) == 2  # of two, the one that is cut off is not known
    faulty = None if is_either else cascade["faulty"]
    assert (cause.replica and str(cause.replica), cause.reason, cause.failure) == (faulty, reason, failure)
    assert cause.said.startswith(MESSAGES.get(cascade["how"], ""))


def test_the_other_replicas_report_that_a_peer_has_gone() -> None:
    for path in CASCADES:
        cascade = json.loads(path.read_text())
        followers = [end for end in cascade["ends"] if end["replica"] != cascade["faulty"] and not end.get("stopped")]
        for end in followers:
            name = ReplicaId.parse(end["replica"])
            evidence = read_evidence("\n".join(cascade["logs"][end["replica"]]).encode(), Peers(name))
            assert evidence is not None, (path.stem, end)
            assert evidence.reports, (path.stem, end, evidence)


def test_the_cascades_contain_no_name_of_the_machine_that_recorded_them() -> None:
    assert len(CASCADES) > 50
    for path in CASCADES:
        text = path.read_text()
        assert not [word for word in ("/work", "/root", "/home", "/tmp") if f"{word}/" in text], path
