"""The contract of fault injection: a fault looks as if it came from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.abilities import FaultInjector, Sabotable
from drumline.errors import EngineError
from drumline.plan.types import ReplicaId
from drumline.run.drill import Fault
from drumline.run.event import Exit
from drumline.run.traces import trace_dir
from scaffold.supervised import SessionRecorder, require_ability, watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed


def fault_injector_of(testbed: EngineTestBed) -> FaultInjector:
    return require_ability(testbed.make_engine(), Sabotable).fault_injector()


def traces(recorder: SessionRecorder, replica: ReplicaId) -> Path:
    return recorder.run_dir / trace_dir(replica, 0)


@pytest.mark.parametrize(("fault", "exit_"), [(Fault.KILL, Exit(signal=9)), (Fault.TERM, Exit(signal=15))])
def test_a_killed_or_terminated_replica_is_reported_with_its_signal(
    testbed: EngineTestBed, tmp_path: Path, fault: Fault, exit_: Exit
) -> None:
    fault_injector = fault_injector_of(testbed)
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    recorder.start()
    recorder.until_started()
    fault_injector.inject(traces(recorder, worker(1)), worker(1), fault)
    recorder.until(recorder.ends)
    assert recorder.exits() == {worker(1): exit_}
    with pytest.raises(EngineError, match=r"has no process|does not run"):
        fault_injector.inject(traces(recorder, worker(1)), worker(1), fault)
    fault_injector.undo(traces(recorder, worker(1)), worker(1), fault)
    recorder.stop()
    recorder.until_ended()


def test_a_paused_replica_continues_when_the_fault_is_undone(testbed: EngineTestBed, tmp_path: Path) -> None:
    fault_injector = fault_injector_of(testbed)
    recorder = watch(testbed, tmp_path, Behavior(until=1), Behavior(until=1))
    recorder.start()
    recorder.until_started()
    fault_injector.inject(traces(recorder, worker(1)), worker(1), Fault.PAUSE)
    testbed.open(1)
    recorder.until(recorder.ends)
    assert recorder.exits() == {worker(0): Exit(0)}
    fault_injector.undo(traces(recorder, worker(1)), worker(1), Fault.PAUSE)
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(0), worker(1): Exit(0)}


def test_no_fault_is_injected_into_a_replica_that_has_not_started(testbed: EngineTestBed, tmp_path: Path) -> None:
    fault_injector = fault_injector_of(testbed)
    with pytest.raises(EngineError, match=r"has no process|does not run"):
        fault_injector.inject(tmp_path, worker(0), Fault.KILL)


def test_a_network_that_others_use_is_not_cut(testbed: EngineTestBed, tmp_path: Path) -> None:
    fault_injector = fault_injector_of(testbed)
    plan = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED).plan
    assert "network" in (fault_injector.find_problem(plan, Fault.CUT) or "")
    assert fault_injector.find_problem(plan, Fault.KILL) is None
