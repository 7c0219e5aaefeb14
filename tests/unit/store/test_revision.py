"""Which code a run was launched from is asked of git, which starts nothing that the repository names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from drumline.store.revision import code_facts


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("pass\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(folder, *words)
    return folder


def git(folder: Path, *words: str) -> None:
    own = ("-c", "user.name=A", "-c", "user.email=a@b")
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


def test_a_revision_is_known_and_whether_it_was_changed(repository: Path) -> None:
    facts = code_facts(repository)
    assert len(str(facts["revision"])) == 40
    assert facts["dirty"] is False
    (repository / "train.py").write_text("1\n")
    assert code_facts(repository) == {**facts, "dirty": True}


def test_a_program_that_a_repository_names_is_not_started(repository: Path) -> None:
    attack = repository.parent / "attack"
    attack.write_text(f"#!/bin/sh\ntouch {repository.parent}/executed\n")
    attack.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(attack))
    git(repository, "config", "core.hooksPath", str(repository.parent))
    assert code_facts(repository)["dirty"] is False
    assert not (repository.parent / "executed").exists()
    subprocess.run(["git", "status"], cwd=repository, check=True, capture_output=True)
    assert (repository.parent / "executed").exists()  # the attack works where nothing is done about it


def test_where_there_is_no_repository_nothing_is_known(tmp_path: Path) -> None:
    assert code_facts(tmp_path) == {}
