"""The location of a run's output on hosts, what remains after the run is removed, and unverified hosts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from drumline.engine.output import RunOutput
from drumline.engine.ssh.remains import describe_output, remains, unverified_hosts
from drumline.load.engine import plan_spec
from drumline.plan.types import Plan
from drumline.run.origin import ORIGIN, Origin
from drumline.run.traces import UNREACHED
from drumline.run.unverified import UnverifiedHost
from scaffold.plans import spec_of

FETCHED = Origin("gpu1", "/there", folders={"output": "/there"})


def plan(options: str = "") -> Plan:
    spec = spec_of(f"project: digits\nrun: a\noutput: out\nengine: {{ssh: {{hosts: [gpu1, gpu2]{options}}}}}")
    return plan_spec(spec, run="4", on="ssh")


def written(folder: Path, origin: Origin | None, own: Plan | None = None) -> RunOutput:
    if origin:
        (folder / ORIGIN).write_text(origin.to_json())
    return RunOutput(own or plan(), Path("/project/out"), folder)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, "/project/out"),
        (Origin("gpu1", "/there"), "/there on gpu1, which the hosts share: `drumline cp 4: .` fetches it"),
        (FETCHED, "/there on gpu1, not fetched so far"),
        (FETCHED.replace(fetched_at=1.0, is_whole=True), "/project/out, fetched from gpu1"),
    ],
)
def test_the_output_is_described_by_its_folder_here_or_on_the_host(
    tmp_path: Path, origin: Origin | None, words: str
) -> None:
    assert describe_output(written(tmp_path, origin)) == words


def test_an_output_that_is_fetched_repeatedly_is_described_with_the_last_time(tmp_path: Path) -> None:
    words = describe_output(written(tmp_path, FETCHED.replace(fetched_at=time.time() - 7200)))
    assert words == "/project/out, fetched 2h ago from /there on gpu1"


def test_shared_output_remains_on_the_hosts_and_fetched_output_in_the_project(tmp_path: Path) -> None:
    assert list(remains(written(tmp_path, FETCHED))) == ["its output stays in /project/out"]
    assert list(remains(written(tmp_path, Origin("gpu1", "/there")))) == ["its output stays in /there on gpu1"]
    inside = RunOutput(plan(), tmp_path / "output", tmp_path)
    (tmp_path / ORIGIN).unlink()
    assert list(remains(inside)) == []


def test_unverified_hosts_are_read_from_the_supervisors_list_and_have_the_lease_of_the_plan(tmp_path: Path) -> None:
    assert list(unverified_hosts(written(tmp_path, None))) == []
    (tmp_path / UNREACHED).write_text("gpu1\ngpu2 1700000000\n")
    own = plan(", lease: 2m")
    assert list(unverified_hosts(written(tmp_path, None, own))) == [
        UnverifiedHost("gpu1", None, 120.0),
        UnverifiedHost("gpu2", 1.7e9, 120.0),
    ]
