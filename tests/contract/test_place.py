"""The contract before the start: place, render, problems."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from drumline.errors import EngineError
from scaffold.supervised import SessionRecorder, watch, workers
from scaffold.testbeds import Behavior, EngineTestBed


def test_every_replica_has_its_own_address(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = workers(testbed, *(Behavior() for _ in range(5)))
    engine = testbed.make_engine()
    placement = asyncio.run(engine.place(plan))
    assert list(placement) == [replica.id for replica in plan.replicas]
    assert len({place.address for place in placement.values()}) == 5


def test_a_running_attempt_keeps_its_addresses(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = workers(testbed, *(Behavior() for _ in range(5)))
    first = SessionRecorder(testbed, tmp_path / "run", plan)
    addresses = [launch.place.address for launch in first.launches()]
    first.loop.wait(first.session.start([]))
    second = first.again(testbed)
    kept = second.loop.wait(second.session.place(plan, keep=addresses)).places
    assert [place.address for place in kept.values()] == addresses
    assert second.loop.wait(second.session.place(plan, keep=addresses)).places == kept


def test_the_rendered_command_and_environment_are_those_that_start(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(
        testbed, tmp_path, *[Behavior(("$DRUMLINE_ROLE $DRUMLINE_INDEX of $DRUMLINE_RUN", "$TF_CONFIG"))] * 2
    )
    launches = recorder.launches()
    rendered = testbed.rendered(recorder.engine, recorder.plan, launches)
    recorder.loop.wait(recorder.session.start(launches))
    recorder.until_ended()
    for replica in recorder.plan.replicas:
        argv, env = rendered[replica.id]
        assert argv == replica.argv
        assert recorder.log(replica.id) == f"worker {replica.id.index} of 4\n{env.get('TF_CONFIG', '$TF_CONFIG')}\n"


def test_every_listed_form_of_an_engine_is_rendered_and_twice_the_same(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior())
    launches = recorder.launches()
    for form in recorder.engine.capabilities.forms:
        text = recorder.engine.render(recorder.plan, launches, form)
        assert text.endswith("\n")
        assert recorder.engine.render(recorder.plan, launches, form) == text


def test_a_plan_that_an_engine_refuses_is_not_started(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(), Behavior())
    before = _descriptors()
    launches = recorder.launches()
    assert all(each.is_warning for each in recorder.engine.problems(recorder.plan, launches))
    first, second = launches
    launches = (first, second.replace(replica=second.replica.replace(argv=testbed.refused)))
    (problem,) = [each for each in recorder.engine.problems(recorder.plan, launches) if not each.is_warning]
    assert "worker.1" in problem.message
    with pytest.raises(EngineError, match=r"worker\.1"):
        recorder.loop.wait(recorder.session.start(launches))
    recorder.stop()
    recorder.until_ended()
    assert not recorder.starts()
    assert not any(end.exit.seen for end in recorder.ends())
    testbed.rest(recorder.session)
    recorder.until(lambda: _descriptors() <= before)


def test_a_gang_that_was_only_checked_claims_nothing(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, *[Behavior()] * 5)
    before = _descriptors()
    recorder.launches()
    recorder.loop.wait(recorder.session.start([]))
    recorder.loop.wait(recorder.session.start([]))
    testbed.rest(recorder.session)
    assert _descriptors() <= before


def test_a_gang_that_has_ended_claims_nothing(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, *[Behavior()] * 5)
    before = _descriptors()
    recorder.start()
    recorder.until_ended()
    testbed.rest(recorder.session)
    recorder.until(lambda: _descriptors() <= before)


def _descriptors() -> set[tuple[str, str]]:
    """Return the open files of this process, after a garbage collection."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((link.name, str(link.readlink())))
    return found
