"""The revision of the code is read with git, without starting a program that the repository names."""

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


def test_the_revision_and_whether_files_have_changed_are_returned(repository: Path) -> None:
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
    assert (repository.parent / "executed").exists()  # without protection the attack works


def test_a_folder_without_a_repository_has_no_facts(tmp_path: Path) -> None:
    assert code_facts(tmp_path) == {}
