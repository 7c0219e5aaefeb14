"""Warm processes on a host do not outlive the run if each connection has its own session."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.agent.replicas import _fit_session
from drumline.plan.types import Warm
from scaffold.plans import plan_of


@pytest.mark.parametrize(
    ("cgroup", "keep_seconds"),
    [
        ("0::/user.slice/user-1000.slice/session-17.scope\n", 0.0),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice\n", 60.0),
        ("0::/\n", 60.0),
    ],
)
def test_a_warm_process_of_a_session_ends_with_its_run(tmp_path: Path, cgroup: str, keep_seconds: float) -> None:
    (tmp_path / "cgroup").write_text(cgroup)
    plan = plan_of("").replace(warm=Warm(keep_seconds=60.0))
    assert _fit_session(plan, tmp_path / "cgroup").warm == Warm(keep_seconds=keep_seconds)


def test_a_plan_without_warm_processes_stays_as_it_is(tmp_path: Path) -> None:
    plan = plan_of("").replace(warm=None)
    assert _fit_session(plan, tmp_path / "nowhere") == plan
