"""Incarnations of an earlier supervisor that start, end or are stopped while the next one adopts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from drumline.engine.local.processes import Processes
from drumline.engine.local.trace import open_trace
from drumline.plan.bind import bind
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.keeper import now, start_ticks
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop
from scaffold.plans import placement_of
from scaffold.testbeds import LocalTestBed


class LoopWithoutReaders(SimulatedTimeLoop):
    """A loop without events of descriptors: changes are found only by reading the disk again."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Ignore the descriptor."""


def test_a_start_after_the_return_of_the_supervisor_is_reported(tmp_path: Path) -> None:
    plan = gang("worker")
    (launch,) = bind(plan, placement_of(plan))
    folder = tmp_path / trace_dir(launch.replica.id, 0)
    folder.mkdir(parents=True)
    reported: list[Event] = []
    loop = LoopWithoutReaders()
    # The keeper has only locked its trace so far.
    with closing(LocalTestBed(tmp_path)), subprocess.Popen(["sleep", "1000"]) as keeper:
        trace = open_trace(folder / TRACE)
        assert trace is not None
        try:
            os.write(trace, json.dumps({"keeper": keeper.pid, "boot": "now"}).encode() + b"\n")
            processes = Processes(tmp_path, boot="now", file_limits=(256, 256), loop=loop, report=reported.append)
            processes.start([launch], lambda _: {}, {})
            loop.pass_time(1.0)
            assert reported == []
            os.write(trace, json.dumps({"pid": keeper.pid, "ticks": start_ticks(keeper.pid)}).encode() + b"\n")
            loop.pass_time(1.0)
            assert reported == [ReplicaStarted(launch.replica.id, 0, 0, keeper.pid)]
        finally:
            os.close(trace)
            keeper.kill()


def test_no_signal_is_sent_for_a_replica_with_a_keeper_on_another_machine(tmp_path: Path) -> None:
    """Machines may share a folder, and the same pid is another process on each."""
    which = Incarnation(ReplicaId("worker", 0), 0)
    (tmp_path / which.folder).mkdir(parents=True)
    reported: list[Event] = []
    # The leader of a process group that is not a child of this process.
    script = "setsid sleep 1000 & echo $!; wait"
    with closing(LocalTestBed(tmp_path)), subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        innocent = int(shell.stdout.readline())
        trace = open_trace(tmp_path / which.folder / TRACE)
        assert trace is not None
        try:
            known = {"keeper": innocent, "pid": innocent, "ticks": start_ticks(innocent)}
            os.write(trace, json.dumps({**known, "boot": "another machine's"}).encode() + b"\n")
            processes = Processes(
                tmp_path, boot="ours", file_limits=(256, 256), loop=LoopWithoutReaders(), report=reported.append
            )
            processes.stop([which], grace_seconds=0.0)
            assert shell.poll() is None
            assert [type(event) for event in reported] == [ReplicaStarted, ReplicaExited]
        finally:
            os.close(trace)
            with suppress(ProcessLookupError):
                os.kill(innocent, signal.SIGKILL)


def adopted(folder: Path, *traces: str) -> list[Event]:
    """Return the events about workers with these traces, which an earlier supervisor started."""
    plan = gang(f"worker*{len(traces)}")
    launches = bind(plan, placement_of(plan))
    for launch, trace in zip(launches, traces, strict=True):
        path = folder / trace_dir(launch.replica.id, 0)
        path.mkdir(parents=True)
        (path / TRACE).write_text(trace)
    reported: list[Event] = []
    with closing(LocalTestBed(folder)):
        processes = Processes(
            folder, boot="now", file_limits=(256, 256), loop=LoopWithoutReaders(), report=reported.append
        )
        processes.start(launches, lambda _: {}, {})
        processes.stop([Incarnation(each.replica.id, 0) for each in launches], grace_seconds=0.0)
    return reported


def kept(boot: str, code: int, at: float) -> str:
    """Return the trace of a replica that has ended."""
    lines = ({"keeper": 11, "boot": boot}, {"pid": 12, "ticks": 13}, {"code": code, "signal": None, "at": at})
    return "".join(f"{json.dumps(each)}\n" for each in (*lines, {"over": True}))


def test_ends_between_two_supervisors_are_reported_in_their_order_and_unrecorded_ones_last(tmp_path: Path) -> None:
    unseen = json.dumps({"keeper": 11, "boot": "now", "over": True}) + "\n"
    reported = adopted(tmp_path, unseen, kept("now", 1, 5.5), kept("now", 2, 4.5))
    ends = [event for event in reported if isinstance(event, ReplicaExited)]
    assert [(event.replica.index, event.exit.code) for event in ends] == [(2, 2), (1, 1), (0, None)]
    assert [event.at_seconds for event in ends[:2]] == [4.5, 5.5]


def test_an_end_before_a_restart_of_the_machine_has_a_time_by_the_clock_of_the_new_boot(tmp_path: Path) -> None:
    """The clock of another boot may be far ahead of this one's."""
    reported = adopted(tmp_path, kept("another", 1, 9e9))
    (end,) = [event for event in reported if isinstance(event, ReplicaExited)]
    assert end.exit.code == 1
    assert now() - 60 < end.at_seconds <= now()


def test_a_replica_that_was_stopped_before_its_start_is_not_started(tmp_path: Path) -> None:
    plan = gang("worker")
    launches = bind(plan, placement_of(plan))
    reported: list[Event] = []
    with closing(LocalTestBed(tmp_path)):
        loop = LoopWithoutReaders()
        processes = Processes(tmp_path, boot="now", file_limits=(256, 256), loop=loop, report=reported.append)
        processes.stop([Incarnation(launches[0].replica.id, 0)], grace_seconds=0.0)
        processes.start(launches, lambda _: {}, {})
        loop.pass_time(1.0)
    assert [type(event) for event in reported] == [ReplicaExited]
    assert not (tmp_path / trace_dir(launches[0].replica.id, 0)).exists()
