"""Texts about a run: what its replicas wait for, and which replicas return."""

from __future__ import annotations

import pytest

from drumline.run.describe import describe_revival, describe_waits
from scaffold.gangs import gang
from scaffold.scenarios import ScenarioReplay


def replayed(plan: str, *events: str) -> ScenarioReplay:
    replay = ScenarioReplay(gang(plan))
    for words in events:
        replay.apply(words)
    return replay


PLACED = ("accepted", "placed")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (PLACED, ""),
        (("accepted", "worker.1 waits: for its image"), "worker.1: for its image"),
        ((*PLACED, "worker.1 waits: for its image"), "worker.1: for its image"),
        (
            (*PLACED, "worker.0 waits: for its image", "worker.1 waits: for its image"),
            "worker.0 and 1 other: for its image",
        ),
        (
            (*PLACED, *(f"worker.{index} waits: for its image" for index in range(3))),
            "worker.0 and 2 others: for its image",
        ),
        (
            (*PLACED, "worker.0 waits: for a volume", "worker.1 waits: for its image"),
            "worker.0: for a volume; worker.1: for its image",
        ),
        ((*PLACED, "worker.0 waits: for its image", "worker.0 starts"), ""),
        ((*PLACED, "worker.0 waits: for its image", "stop at 5"), ""),
        (("accepted", "delayed 2 GPUs are taken"), "2 GPUs are taken"),
        (("accepted", "delayed no GPU is free", "placed", "worker.0 waits: for its image"), "worker.0: for its image"),
    ],
)
def test_what_a_run_waits_for_is_described_until_it_has_it(events: tuple[str, ...], words: str) -> None:
    assert describe_waits(replayed("worker*3", *events).state) == words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("worker.1 signal 9", "worker.1 rejoins (restart 1 of 2): killed by signal 9 (KILL)"),
        ("chief.0 exits 3", "chief.0 restarts (restart 1 of 2): exit code 3"),
    ],
)
def test_a_replica_that_returns_alone_is_described_with_the_reason_and_the_budget(event: str, words: str) -> None:
    (revival,) = replayed("chief worker*2 ps crash=2", "running", "stepped", event).state.revivals
    assert describe_revival(revival) == words


def test_replicas_that_restart_together_are_described_with_the_replica_that_ended() -> None:
    (revival,) = replayed("chief worker ps crash=2", "running", "stepped", "ps.0 exits 1").state.revivals
    again = "chief.0, worker.0 and ps.0 restart from the checkpoint (restart 1 of 2)"
    assert describe_revival(revival) == f"{again}, since the variables on ps.0 are lost: exit code 1"
