"""A fixed selection of the cases of `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import files, histories, specs, wires  # noqa: F401 - each registers its cases
from fuzz.cases import CASES, attempt, silence
from fuzz.kills import try_one

# The number of cases of each reader: all together take a few seconds; hostile templates take long.
FEWER = {"template": 3, "folder": 6, "control": 10, "history": 10, "shaken": 10, "arguments": 20, "output": 20}
USUAL = 30


@pytest.mark.parametrize("name", CASES)
def test_random_input_is_accepted_or_refused_with_a_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / name
    folder.mkdir()
    for seed in range(FEWER.get(name, USUAL)):
        with silence():
            attempt(name, seed, folder)


@pytest.mark.parametrize("seed", [2, 9, 11, 15, 18])
def test_after_any_fault_the_run_ends_and_no_process_is_left(seed: int) -> None:
    assert try_one(seed) in ("FINISHED", "FAILED", "KILLED", "nothing")
