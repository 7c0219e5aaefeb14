"""An unexpected error ends the run in order, and is recorded in its journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drumline.engine.fake import FakeSession
from drumline.engine.fake.behavior import FakeBehavior, command_of
from drumline.engine.tasks import Tasks
from drumline.plan.types import Launch
from drumline.run.event import EngineFailed, ReplicaExited
from drumline.run.state import Phase
from drumline.store.journal import Journal, read_journal
from drumline.supervise.supervisor import Supervisor
from scaffold.fake_sessions import open_fake
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop

FULL = (28, "No space left on device", "/home/log")
WORDS = "unexpected error in the supervisor: /home/log: No space left on device"


class BrokenEngine(FakeSession):
    """An engine with a start that raises an unexpected error."""

    async def start(self, launches: Sequence[Launch]) -> None:
        """Raise an error that is not allowed for engines."""
        raise KeyError("h1")


class Trial:
    """A run of two replicas that never end by themselves."""

    def __init__(self, folder: Path, kind: type[FakeSession] = FakeSession) -> None:
        plan = gang("worker*2")
        plan = plan.replace(
            replicas=tuple(each.replace(argv=command_of(FakeBehavior(exit=None))) for each in plan.replicas)
        )
        self.loop = SimulatedTimeLoop()
        self.path = folder / "events.jsonl"
        session = open_fake(folder, self.loop, kind)
        journal = Journal(self.path, boot="b", wall=time.time, since_boot=self.loop.time)
        self.supervisor = Supervisor(plan, session, journal, (), self.loop)
        self.supervisor.begin()
        self.running = self.loop.create_task(self.supervisor.run())
        self.loop.pass_time(1)

    def failures(self) -> list[str]:
        """Run to the end; return the messages of EngineFailed in the journal."""
        self.loop.run_until_complete(self.running)
        events = [record.event for record in read_journal(self.path, self.supervisor.plan)]
        assert len([each for each in events if isinstance(each, ReplicaExited)]) == 2
        assert self.supervisor.state.ending
        assert self.supervisor.state.ending.reason == "EngineFailed"
        assert self.supervisor.state.phase is Phase.FAILED
        return [each.message for each in events if isinstance(each, EngineFailed)]


def fail() -> None:
    raise OSError(*FULL)


async def fail_later() -> None:
    raise OSError(*FULL)


def begin_tasks(loop: SimulatedTimeLoop) -> None:
    tasks = Tasks(loop)
    for _ in range(3):
        tasks.begin(fail_later())


def begin_callbacks(loop: SimulatedTimeLoop) -> None:
    for _ in range(3):
        loop.call_soon(fail)


@pytest.mark.parametrize("begin", [begin_tasks, begin_callbacks])
def test_an_error_in_a_task_or_a_callback_is_recorded_once_and_the_run_is_stopped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], begin: Callable[[SimulatedTimeLoop], None]
) -> None:
    trial = Trial(tmp_path)
    begin(trial.loop)
    assert trial.failures() == [WORDS]
    assert capfd.readouterr().err.count("raise OSError(") == 3


def test_an_unexpected_error_of_a_start_is_recorded_and_the_run_is_stopped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert Trial(tmp_path, BrokenEngine).failures() == ["unexpected error in the supervisor: KeyError: 'h1'"]
    assert 'raise KeyError("h1")' in capfd.readouterr().err


def test_an_error_that_a_library_reports_is_logged_and_the_run_continues(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(tmp_path)
    trial.loop.call_exception_handler({"message": "Fatal read error on socket transport", "exception": OSError(*FULL)})
    trial.loop.pass_time(1)
    assert not trial.running.done()
    assert "Fatal read error on socket transport\n" in capfd.readouterr().err
