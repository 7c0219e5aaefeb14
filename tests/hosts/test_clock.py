"""A host with other clocks than this machine: it is reported, and events have the time of this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from drumline.cli import run
from drumline.run.state import Phase
from drumline.runtime.keeper import now
from hosts.host_cluster import SHARED, HostCluster
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

LONG_SECONDS = 900.0
AHEAD_SECONDS = 7200
FALLING = f"""
import os, sys, time

print("it is", time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
number = int(os.environ["DRUMLINE_INDEX"])
while not os.path.exists(f"{SHARED}/fall-{{number}}"):
    time.sleep(0.01)
if number == 0:
    time.sleep(3)  # the other one is about to end, and clocks are compared with the precision of a round trip
print("falls", flush=True)
sys.exit(3 + number)
"""


@pytest.fixture(scope="module")
def host_cluster() -> Iterator[HostCluster]:
    """Yield two hosts, one of which is two hours ahead, with another boot id."""
    with HostCluster(2, shared=True, clocks={"h2": AHEAD_SECONDS}) as host_cluster:
        yield host_cluster


def test_a_clock_that_is_fast_is_found(reached: HostCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--hosts", "h1,h2"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("clocks")]
    assert re.fullmatch(r"clocks +note +compared with this machine's: h2 is (2h|1h59m\d*s?) fast", row.strip()), row


def test_times_are_converted_to_this_machine_and_the_first_failure_is_known(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    workspace.write("fall.py", FALLING)
    began, began_at = time.time(), now()
    # The chief, on h1, fails after the other one, without a supervisor.
    started = workspace.train("run: python3 fall.py\nroles: {worker: 2}\nengine: {ssh: [h1, h2]}\n")
    wait_until(lambda: all(b"it is" in started.log(f"worker.{n}") for n in range(2)), LONG_SECONDS)
    clocks = [[float(word) for word in started.log(f"worker.{n}").split()[2:4]] for n in range(2)]
    assert clocks[1][0] - clocks[0][0] > AHEAD_SECONDS / 2  # the clock of h2 is really ahead
    assert clocks[1][1] - clocks[0][1] > AHEAD_SECONDS / 2
    started.kill_supervisor()
    (host_cluster.shared / "fall-1").touch()
    host_cluster.wait_idle("h2")
    workspace.run("status", started.id)  # takes longer than the round trip by which clocks are compared
    (host_cluster.shared / "fall-0").touch()
    host_cluster.wait_idle("h1")
    assert workspace.run("supervise", started.id).code == 0
    started.wait_for(Phase.FAILED, LONG_SECONDS)
    assert (str(started.cause.replica), started.cause.exit.code) == ("worker.1", 4)
    ends = {str(end.replica): end.at_seconds for end in started.exits()}
    assert began_at < ends["worker.1"] < ends["worker.0"] < now()
    lines = workspace.run("logs", "--timestamps", started.id).out.splitlines()
    said = [
        datetime.fromisoformat(found[1]).timestamp() for line in lines if (found := re.search(r"\[~?(.*?Z)\]", line))
    ]
    assert len(said) > 4
    assert all(int(began) <= each <= time.time() for each in said)
