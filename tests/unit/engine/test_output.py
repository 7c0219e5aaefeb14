"""The output that remains when a run's own folder is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.output import RunOutput, retained_output
from scaffold.gangs import gang


@pytest.mark.parametrize(
    ("output", "folder", "words"),
    [
        ("/data/out", "/data/out", ["its output stays in /data/out"]),
        ("out", "/home/runs/7/out", []),  # removed with the run's own folder
        (None, "/data/out", []),  # the run has none
    ],
)
def test_an_output_folder_outside_of_the_runs_own_folder_remains(
    output: str | None, folder: str, words: list[str]
) -> None:
    found = RunOutput(gang("worker").replace(output=output), Path(folder), Path("/home/runs/7"))
    assert [*retained_output(found)] == words
