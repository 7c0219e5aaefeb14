"""The same files are ignored as by git, in trees that both read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumline.engine.project.tree import walk_project
from scaffold.effort import examples

FILES = (
    "a.py", "a.txt", "data/a.txt", "data/keep/b.txt", "data/keep/deep/c.py", "src/a.py", "src/data/a.txt",
    "src/b c.txt", "b/data", "logs/1/run.log", "logs/keep.log", "#x", "!x", "[x]", "é.txt", "a**b", "x\\y", "end ",
    "deep/er/still/a.py",
)  # fmt: skip
IGNORES: tuple[Mapping[str, str], ...] = (
    {".gitignore": "*.txt\n"},
    {".gitignore": "data\n"},
    {".gitignore": "data/\n"},
    {".gitignore": "/data/\n"},
    {".gitignore": "*\n!*/\n!*.py\n"},
    {".gitignore": "data/*\n!data/keep/\n"},
    {".gitignore": "data/\n!data/keep/b.txt\n"},  # too late: the folder stays closed
    {".gitignore": "*.txt\n", "data/.gitignore": "!a.txt\n"},
    {".gitignore": "!a.txt\n", "data/.gitignore": "*\n!.gitignore\n"},
    {".gitignore": "src/*.txt\n"},
    {".gitignore": "src/**\n"},
    {".gitignore": "**/data\n"},
    {".gitignore": "**/data/**\n"},
    {".gitignore": "deep/**/a.py\n"},
    {".gitignore": "deep/**/er\n"},
    {".gitignore": "data/**/c.py\n"},
    {".gitignore": "a**.py\na\\*\\*b\n"},
    {".gitignore": "# a comment\n\\#x\n\\!x\n\\[x]\n"},
    {".gitignore": "end \n"},
    {".gitignore": "end\\ \n"},
    {".gitignore": "*.py   \n\n   \n"},
    {".gitignore": "*.py\r\n*.txt\r\n"},
    {".gitignore": "\ufeff*.py\n"},
    {".gitignore": "[ab].*\n"},
    {".gitignore": "[!a].txt\n[^a].py\n"},
    {".gitignore": "[[:punct:]]x\n[[:nonsense:]].py\n"},
    {".gitignore": "[]a].py\n[a-\n"},
    {".gitignore": "?.txt\n??.txt\n"},
    {".gitignore": "x\\\\y\n*.log\\\n"},
    {".gitignore": "b/data/\nlogs/*/\n"},
    {".gitignore": "/*\n!/src\n"},
    {".gitignore": "src\n!src\n"},
    {".gitignore": "!\n/\n//\n*.py"},
)
LINES = st.lists(
    st.text(alphabet="ab!/*?[]\\-^ .#dt", max_size=8)
    | st.sampled_from(["data", "*.py", "*.txt", "!*/", "**/keep", "logs/"]),
    max_size=5,
).map("\n".join)


def make(root: Path, files: Mapping[str, str]) -> None:
    for name, text in {**dict.fromkeys(FILES, ""), **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def git(root: Path, *words: str) -> bytes:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CEILING_DIRECTORIES": "",
    }
    return subprocess.run(["git", *words], cwd=root, env=env, check=True, capture_output=True).stdout


def by_git(root: Path) -> set[str]:
    found = git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    return {os.fsdecode(name) for name in found if name}


def by_us(root: Path) -> set[str]:
    return {entry.path for entry in walk_project(root).entries if entry.kind == "file"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    git(root, "init", "--quiet")
    return root


@pytest.mark.parametrize("files", IGNORES, ids=lambda files: repr(next(iter(files.values()))))
def test_files_that_git_ignores_are_ignored(tmp_path: Path, files: Mapping[str, str]) -> None:
    git(tmp_path, "init", "--quiet")
    make(tmp_path, files)
    assert by_us(tmp_path) == by_git(tmp_path)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=LINES, nested=LINES)
def test_any_lines_of_an_ignore_file_have_the_same_effect_as_in_git(repository: Path, top: str, nested: str) -> None:
    make(repository, {".gitignore": top, "data/.gitignore": nested})
    assert by_us(repository) == by_git(repository)


def test_a_project_inside_a_repository_uses_the_ignore_files_above_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    make(tmp_path / "team/project", {})
    (tmp_path / ".gitignore").write_text("*.txt\n/team/project/src/\n/src/\n")
    (tmp_path / "team/.gitignore").write_text("project/logs\n!a.txt\n")
    found = {f"team/project/{name}" for name in by_us(tmp_path / "team/project")}
    assert found == by_git(tmp_path) - {".gitignore", "team/.gitignore"}


def test_ignore_files_above_a_repository_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")
    make(tmp_path / "project", {})
    git(tmp_path / "project", "init", "--quiet")
    assert "a.py" in by_us(tmp_path / "project")
    assert "a.py" in by_us(tmp_path / "project/src")


def test_drumlineignore_overrides_gitignore(tmp_path: Path) -> None:
    make(
        tmp_path,
        {".gitignore": "data/\n*.log\n", "src/.gitignore": "!b c.txt\n", ".drumlineignore": "!data/\n*c.txt\n"},
    )
    found = by_us(tmp_path)
    assert "data/a.txt" in found
    assert "src/b c.txt" not in found
    assert "logs/keep.log" not in found
