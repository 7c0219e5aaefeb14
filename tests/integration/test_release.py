"""`make release`: its refusals, and its changes of files before the build."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("CHANGELOG.md", "scripts/release", "src/drumline/__init__.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a clean checkout with the files that a release changes."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


def prepare(folder: Path, version: str) -> tuple[int, str]:
    return release(folder, "--prepare", version)


def release(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [folder / "scripts" / "release", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_version_and_the_changelog_are_those_of_the_release(checkout: Path) -> None:
    before = (checkout / "CHANGELOG.md").read_text()
    assert prepare(checkout, "9.8.7")[0] == 0
    assert '__version__ = "9.8.7"\n' in (checkout / "src/drumline/__init__.py").read_text()
    after = (checkout / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(.*?)\]", after, re.MULTILINE)[:2] == ["Unreleased", "9.8.7"]
    heading = re.search(r"^## \[9\.8\.7\] - \d{4}-\d\d-\d\d\n\n", after, re.MULTILINE)
    assert heading
    assert after.replace(heading[0], "", 1) == before


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1", "1.2.3; ls"])
def test_an_invalid_version_is_refused(checkout: Path, version: str) -> None:
    assert prepare(checkout, version) == (
        2,
        f"error: not a version: `{version}`\nhint: `make release VERSION=1.2.3`\n",
    )


def test_a_failed_release_leaves_the_checkout_unchanged(checkout: Path) -> None:
    (checkout / "Makefile").write_text("dist:\n\tgrep -q 9.8.7 CHANGELOG.md && echo failed && false\n")
    commit(checkout)
    before = [(checkout / name).read_text() for name in FILES]
    code, said = release(checkout, "9.8.7")
    assert code != 0
    assert "failed" in said
    assert [(checkout / name).read_text() for name in FILES] == before


def test_a_checkout_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "new.txt").touch()
    assert prepare(checkout, "9.8.7")[1].startswith("error: the working tree has changes")


def test_a_version_that_was_released_and_an_older_one_are_refused(checkout: Path) -> None:
    git(checkout, "tag", "v9.10.0")
    assert prepare(checkout, "9.10.0") == (2, "error: the tag v9.10.0 exists\n")
    assert prepare(checkout, "9.9.0") == (2, "error: 9.9.0 is older than the last release, 9.10.0\n")
    assert prepare(checkout, "9.10.1")[0] == 0


def test_a_release_without_changes_for_users_is_refused(checkout: Path) -> None:
    text = (checkout / "CHANGELOG.md").read_text()
    (checkout / "CHANGELOG.md").write_text(
        text.replace("## [Unreleased]", "## [Unreleased]\n\n## [9.0.0] - 2026-01-01")
    )
    commit(checkout)
    assert prepare(checkout, "9.8.7") == (2, "error: CHANGELOG.md has nothing below [Unreleased]\n")
