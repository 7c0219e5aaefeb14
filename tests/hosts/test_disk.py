"""A full disk of this machine: a run on hosts is stopped when its logs cannot be written, and the cause is stated."""

from __future__ import annotations

import errno
import os

from drumline.run.state import Phase
from hosts.host_cluster import HostCluster
from scaffold.workspace import Workspace, mounted

FULL = os.strerror(errno.ENOSPC)


def test_a_run_with_logs_that_fill_the_disk_of_this_machine_is_stopped_with_the_cause(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    with mounted(workspace.home, "1m"):
        run = workspace.train("run: yes all work and no play\nroles: {worker: 2}\nengine: {ssh: [h1, h2]}\n")
        state = run.wait_for(Phase.FAILED)
        assert state.ending
        assert state.ending.reason == "EngineFailed"
        assert FULL in run.cause.exit.message
        assert {each.phase for each in state.replicas.values()} == {Phase.KILLED}
        for name in host_cluster.names:
            host_cluster.wait_idle(name)
        workspace.leave()
        workspace.clear()
