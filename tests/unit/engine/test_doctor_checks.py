"""The hint of a missing framework, and the free bytes of a folder that does not exist yet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drumline.engine.doctor_checks import MISSING, free_bytes, missing_framework


@pytest.mark.parametrize(
    ("framework", "own"),
    [("tensorflow", "`tensorflow: {version: …}`"), ("torch", "`environment: [LINES]`"), ("jax", "`environment:")],
)
def test_a_missing_framework_can_be_installed_for_the_run_by_a_key_of_the_spec(framework: str, own: str) -> None:
    check = missing_framework(framework, "it is not installed", "install it there")
    assert (check.subject, check.verdict, check.words) == (framework, MISSING, "it is not installed")
    assert check.hint.startswith(f"install it there, or let {own}")


def test_a_folder_that_does_not_exist_yet_has_the_free_bytes_of_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", {tmp_path: usage}.__getitem__)
    assert free_bytes(tmp_path) == free_bytes(tmp_path / "a" / "b") == usage.free


def test_the_free_bytes_of_a_disk_that_does_not_answer_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(5, "Input/output error", str(folder))

    monkeypatch.setattr(shutil, "disk_usage", fail)
    assert free_bytes(tmp_path) is None
