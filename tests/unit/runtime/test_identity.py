"""Role and index of a script: from drumline, TF_CONFIG, torchrun, or none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline import runtime
from drumline.runtime.start_error import StartError
from drumline.runtime.tfconfig import read_config

VARIABLES = (
    "DRUMLINE_ROLE",
    "DRUMLINE_INDEX",
    "DRUMLINE_CHIEF",
    "DRUMLINE_ATTEMPT",
    "DRUMLINE_TRACE",
    "TF_CONFIG",
    "RANK",
    "OUTPUT_DIR",
    "CHECKPOINT_DIR",
)
WORKERS = {"worker": ["a:1", "b:1"]}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def set_task(monkeypatch: pytest.MonkeyPatch, cluster: dict[str, list[str]], role: str, index: int) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}))


def test_a_script_that_runs_alone_is_the_chief_and_only_worker() -> None:
    assert (runtime.role(), runtime.index(), runtime.is_chief(), runtime.attempt()) == ("worker", 0, True, 0)
    assert runtime.cluster() == {}


@pytest.mark.parametrize(
    ("role", "index", "chief", "is_chief"),
    [
        ("worker", "0", "worker.0", True),
        ("worker", "1", "worker.0", False),
        ("worker", "0", "chief.0", False),
        ("chief", "0", "chief.0", True),
        ("evaluator", "0", "worker.0", False),
        ("ps", "0", "chief.0", False),
    ],
)
def test_role_and_index_come_from_drumline_with_any_framework(
    monkeypatch: pytest.MonkeyPatch, role: str, index: str, chief: str, *, is_chief: bool
) -> None:
    for name, value in (("ROLE", role), ("INDEX", index), ("CHIEF", chief), ("ATTEMPT", "2")):
        monkeypatch.setenv(f"DRUMLINE_{name}", value)
    assert (runtime.role(), runtime.index(), runtime.attempt()) == (role, int(index), 2)
    assert runtime.is_chief() is is_chief


@pytest.mark.parametrize(
    ("cluster", "role", "index", "is_chief"),
    [
        (WORKERS, "worker", 0, True),
        (WORKERS, "worker", 1, False),
        ({"chief": ["c:1"], **WORKERS}, "worker", 0, False),
        ({"chief": ["c:1"], **WORKERS}, "chief", 0, True),
        ({"master": ["c:1"], **WORKERS}, "master", 0, True),
        (WORKERS, "evaluator", 0, False),
    ],
)
def test_without_drumline_role_and_index_come_from_tf_config(
    monkeypatch: pytest.MonkeyPatch, cluster: dict[str, list[str]], role: str, index: int, *, is_chief: bool
) -> None:
    set_task(monkeypatch, cluster, role, index)
    assert runtime.role() == ("chief" if role == "master" else role)
    assert runtime.index() == index
    assert runtime.is_chief() is is_chief
    assert runtime.cluster() == cluster


def test_ranks_of_another_launcher_are_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert (runtime.role(), runtime.index(), runtime.is_chief()) == ("worker", 3, False)


@pytest.mark.parametrize("text", ["", " ", "{}", '{"task": {"type": "worker", "index": 0}}', '{"cluster": {}}'])
def test_a_tf_config_without_a_cluster_is_ignored(text: str) -> None:
    assert read_config(text) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("nonsense", "is not JSON: Expecting value"),
        ([1], "must be an object with `cluster` and `task`, not [1]"),
        ({"cluster": ["a:1"]}, "needs a `cluster` that is an object of roles"),
        ({"cluster": WORKERS}, "does not name the task of this process"),
        ({"cluster": WORKERS, "task": {"type": "worker"}}, "does not name the task of this process"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "says that this is worker 2, and the cluster"),
        ({"cluster": WORKERS, "task": {"type": "ps", "index": 0}}, "says that this is ps 0, and the cluster has 2 wo"),
        ({"cluster": WORKERS, "task": {"type": "boss", "index": 0}}, 'says that this is "boss"; known are chief,'),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": -1}}, "has -1 as the task's index"),
        ({"cluster": {"boss": ["a:1"]}, "task": {}}, "has the role `boss`"),
        ({"cluster": {"worker": "a:1"}, "task": {}}, "needs a list of `host:port` for `worker`"),
        ({"cluster": {"worker": []}, "task": {}}, "needs a list of `host:port` for `worker`"),
        ({"cluster": {"worker": ["a"]}, "task": {}}, 'has the address "a" for `worker`, which is not `host:port`'),
        ({"cluster": {"chief": ["a:1", "b:1"]}, "task": {}}, "has 2 of `chief`, and there is at most one"),
    ],
)
def test_an_invalid_tf_config_is_reported_in_one_sentence(config: object, said: str) -> None:
    with pytest.raises(StartError) as refused:
        read_config(config if isinstance(config, str) else json.dumps(config))
    sentence = str(refused.value.code)
    assert sentence.startswith(f"TF_CONFIG {said}")
    assert sentence.endswith("(`drumline tfconfig check` names every problem)")


def test_an_index_in_quotes_is_read_as_tensorflow_reads_it() -> None:
    config = read_config(json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": "1"}}))
    assert config is not None
    assert config.index == 1


def test_only_replicas_with_a_coordinating_chief_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.serve_if_server()
    set_task(monkeypatch, WORKERS, "worker", 0)
    runtime.serve_if_server()
    all_roles = {"chief": ["c:1"], "ps": ["p:1"], **WORKERS}
    set_task(monkeypatch, all_roles, "chief", 0)
    runtime.serve_if_server()
    set_task(monkeypatch, all_roles, "evaluator", 0)
    runtime.serve_if_server()
    set_task(monkeypatch, all_roles, "worker", 1)
    with pytest.raises(ModuleNotFoundError, match="tensorflow"):  # it would, and there is none here
        runtime.serve_if_server()


def test_folders_are_created_at_the_paths_of_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert runtime.checkpoint_dir().resolve() == tmp_path / "output" / "checkpoint"
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "a" / "b"))
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path / "c"))
    assert (runtime.output_dir(), runtime.checkpoint_dir()) == (tmp_path / "a" / "b", tmp_path / "c")
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "c").is_dir()


def test_a_folder_that_cannot_be_created_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "file" / "output"))
    with pytest.raises(StartError, match=r"cannot create .*output: Not a directory"):
        runtime.output_dir()
