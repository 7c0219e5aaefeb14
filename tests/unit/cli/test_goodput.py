"""The goodput of a run as text and as JSON."""

from __future__ import annotations

import pytest

from drumline.cli.goodput import describe_goodput, goodput_data
from drumline.run.goodput import Goodput, RestartCost

RESTARTED = Goodput(49.6, 0.0, 3.1, 41.2, 2.0, 3.3, 12, (RestartCost(1, 12),))


@pytest.mark.parametrize(
    ("goodput", "words"),
    [
        (None, ""),
        (
            RESTARTED,
            ("83 % productive (41s of 50s): 3.1s starting, 2.0s recomputed (12 steps), 3.3s down;"
            " 1 restart lost 12 steps"),
        ),
        (RESTARTED.replace(restarts=()), ""),
        (
            Goodput(20, 0, 2, 18, 0, 0, None, (RestartCost(1, None, 1),)),
            "90 % productive (18s of 20s): 2.0s starting; 1 restart lost 1 epoch",
        ),
        (Goodput(90, 0, None, None, None, 3, None, (RestartCost(1, None),)), ""),
        (Goodput(100, 0, 0, 100, 0, 0, 0, ()), "100 % productive (1m40s of 1m40s)"),
        (
            Goodput(100, 0, 5, 60, 0, 0, 0, (), evaluating_seconds=20, saving_seconds=10, idle_seconds=5),
            "60 % productive (1m of 1m40s): 5.0s starting, 20s evaluating, 10s saving, 5.0s without steps",
        ),
        (Goodput(100, 10, 5, 85, 0, 0, 0, ()), "85 % productive (1m25s of 1m40s): 10s waiting, 5.0s starting"),
        (
            Goodput(20, 0, 4, None, None, 3, 2, (RestartCost(1, 2), RestartCost(2, None))),
            ("not known of 20s, since the time of the lost steps is not known: 4.0s starting, 3.0s down;"
            " 2 restarts"),
        ),
        (
            Goodput(20, 0, 2, 18, 0, 0, 0, (RestartCost(1, 0), RestartCost(2, 1))),
            "90 % productive (18s of 20s): 2.0s starting; 2 restarts lost 1 step",
        ),
    ],
)  # fmt: skip
def test_goodput_is_described_in_one_line_if_it_is_known(goodput: Goodput | None, words: str) -> None:
    assert describe_goodput(goodput) == words


def test_the_json_of_goodput_has_every_value_and_null_for_unknown_ones() -> None:
    assert goodput_data(None) is None
    assert goodput_data(RESTARTED.replace(productive_seconds=None, restarts=(RestartCost(1, None),))) == {
        "seconds": 49.6,
        "productive": None,
        "productive_seconds": None,
        "waiting_seconds": 0.0,
        "starting_seconds": 3.1,
        "evaluating_seconds": None,
        "saving_seconds": None,
        "idle_seconds": None,
        "recomputed_seconds": 2.0,
        "down_seconds": 3.3,
        "recomputed_steps": 12,
        "restarts": [{"attempt": 1, "incarnation": 0, "steps_lost": None, "epochs_lost": None}],
    }
