"""The table of figures says what was reached and what was missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.figures import REASONS, Figure, note, write

UP = Figure("8 tiny replicas, until all are up", 0.3, 0.2, "honcho", 1.0, "python -m bench.launch up")


def test_a_miss_is_marked_and_its_reason_given() -> None:
    page = write([UP], "2 cores", "2026-11-16")
    row = "| 8 tiny replicas, until all are up | 0.30 s | honcho: 0.20 s | 1.50 | ≤ 1 | **missed** |"
    assert row in page
    assert REASONS["until all are up"].split(".")[0] in page.partition("## Missed goals")[2].replace("\n  ", " ")


@pytest.mark.parametrize(
    ("figure", "is_missed"),
    [
        (UP._replace(ours=0.2), False),
        (UP._replace(ours=0.21), True),
        (UP._replace(goal=None), False),
        (UP._replace(ours=98.0, theirs=100.0, goal=0.98, at_least=True), False),
        (UP._replace(ours=97.0, theirs=100.0, goal=0.98, at_least=True), True),
    ],
)
def test_a_goal_is_the_most_or_the_least_that_a_ratio_may_be(figure: Figure, *, is_missed: bool) -> None:
    assert figure.is_missed is is_missed
    assert ("## Missed goals" in write([figure], "2 cores", "today")) is is_missed


def test_figures_are_noted_only_for_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRUMLINE_FIGURES", raising=False)
    note(UP)
    monkeypatch.setenv("DRUMLINE_FIGURES", str(tmp_path / "figures"))
    note(UP)
    note(UP._replace(unit="ms"))
    lines = (tmp_path / "figures").read_text().splitlines()
    assert [Figure(*json.loads(line)) for line in lines] == [UP, UP._replace(unit="ms")]
