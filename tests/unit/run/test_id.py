"""Ids of runs, roles and replicas as users type them."""

from __future__ import annotations

import pytest

from drumline.errors import InputError, NotFoundError
from drumline.plan.types import TENSORBOARD, ReplicaId
from drumline.run.id import Target, parse_target
from drumline.run.traces import trace_dir
from scaffold.gangs import gang

WITH_CHIEF = gang("chief worker*2 ps evaluator")
WITHOUT = gang("worker*2 ps")


@pytest.mark.parametrize(
    ("text", "run", "with_chief", "without"),
    [
        ("4", "4", "chief.0 worker.0 worker.1 ps.0 evaluator.0", "worker.0 worker.1 ps.0"),
        ("12345", "12345", "chief.0 worker.0 worker.1 ps.0 evaluator.0", "worker.0 worker.1 ps.0"),
        ("7.2", "7.2", "chief.0 worker.0 worker.1 ps.0 evaluator.0", "worker.0 worker.1 ps.0"),
        ("4.worker", "4", "worker.0 worker.1", "worker.0 worker.1"),
        ("4.worker.1", "4", "worker.1", "worker.1"),
        ("7.2.worker.0", "7.2", "worker.0", "worker.0"),
        ("7.2.ps", "7.2", "ps.0", "ps.0"),
        # the replica that is chief, under any name
        ("4.chief", "4", "chief.0", "worker.0"),
        ("4.master", "4", "chief.0", "worker.0"),
        ("4.chief.0", "4", "chief.0", "worker.0"),
        ("7.2.master.0", "7.2", "chief.0", "worker.0"),
    ],
)
def test_an_id_names_a_run_a_role_or_a_replica(text: str, run: str, with_chief: str, without: str) -> None:
    target = parse_target(text)
    assert target.run == run
    assert " ".join(map(str, target.replicas(WITH_CHIEF))) == with_chief
    assert " ".join(map(str, target.replicas(WITHOUT))) == without


@pytest.mark.parametrize(("text", "helper"), [("4.build", "build"), ("7.2.prepare-words", "prepare-words")])
def test_an_id_may_name_a_helper(text: str, helper: str) -> None:
    assert parse_target(text).replicas(gang("build prepare-words worker")) == (ReplicaId(helper, 0),)
    with pytest.raises(NotFoundError):
        parse_target(text).replicas(WITHOUT)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "worker.0", "4.", ".4", "4..worker", "4.worker.", "4.worker.x", "4.worker.-1", "4.worker.1.0"),
        *("4.Worker.1", "-4", "4 ", "4\n", "4/worker", "../4", "7.2.3", "7.2.3.worker", "٤", "4.worker.٤"),
        *("9" * 300, f"7.{'9' * 300}", f"4.worker.{'9' * 5000}"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_cannot_be_an_id_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_target(text)
    assert "4.worker.1" in error.value.hint
    assert text[:20] in error.value.message


def test_an_unknown_role_is_refused_with_the_existing_roles() -> None:
    with pytest.raises(InputError) as error:
        parse_target("4.boss.0")
    assert error.value.message == "`4.boss.0`: `boss` is not a role"
    assert error.value.hint == "roles are chief, worker, ps, evaluator"


@pytest.mark.parametrize("text", ["4.worker.2", "4.evaluator", "4.evaluator.0", "4.ps.1", "4.chief.1", "4.master.7"])
def test_an_unknown_replica_is_refused_with_the_replicas_of_the_run(text: str) -> None:
    with pytest.raises(NotFoundError) as error:
        parse_target(text).replicas(WITHOUT)
    assert error.value.message == f"run 4 has no {text.removeprefix('4.').replace('master', 'chief')}"
    assert error.value.hint == "it has 4.worker.0, 4.worker.1, 4.ps.0"


@pytest.mark.parametrize("wanted", ["tensorboard", "tensorboard=true"])
def test_tensorboard_is_named_by_its_name_alone(wanted: str) -> None:
    plan = gang(f"worker {wanted}")
    assert parse_target("4.tensorboard").replicas(plan) == (TENSORBOARD,)
    assert parse_target("4").replicas(plan) == (ReplicaId("worker", 0),)
    with pytest.raises(NotFoundError):
        parse_target("4.tensorboard.0").replicas(plan)
    with pytest.raises(NotFoundError):
        parse_target("4.tensorboard").replicas(gang("worker"))


def test_the_ids_of_a_large_gang_are_cut() -> None:
    with pytest.raises(NotFoundError) as error:
        Target("4", "ps").replicas(gang("worker*2000"))
    assert error.value.hint.endswith("4.worker.11, …")


def test_each_incarnation_of_a_replica_has_an_own_trace_directory() -> None:
    worker = ReplicaId("worker", 1)
    assert trace_dir(worker, 0) == "attempts/0/worker.1"
    assert trace_dir(worker, 2) == "attempts/2/worker.1"
    assert trace_dir(worker, 2, 3) == "attempts/2/worker.1+3"


@pytest.mark.parametrize(("replicas", "is_cut"), [(12, False), (13, True)])
def test_of_many_replicas_the_first_twelve_are_listed(replicas: int, is_cut: bool) -> None:
    with pytest.raises(NotFoundError) as error:
        parse_target("4.ps").replicas(gang(f"worker*{replicas}"))
    assert error.value.hint.count("4.worker.") == 12
    assert error.value.hint.endswith(", …") == is_cut
