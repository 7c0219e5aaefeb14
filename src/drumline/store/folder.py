"""The folder of a run and its files. Only its user can read them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drumline.errors import EngineError, NotFoundError
from drumline.plan.codec import plan_from_json
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.runtime.private import make_folder, open_file, read_regular
from drumline.store.home import JOURNAL, LAUNCH, LOCK, PLAN, RUNS, check_home, check_run, run_ids, write_version

_LARGEST_PLAN = 1 << 28  # bytes; far more than thousands of replicas take


class RunFolder(Record):
    """The folder of one run."""

    path: Path

    @property
    def id(self) -> str:
        """Return the run's number."""
        return self.path.name

    @property
    def plan_file(self) -> Path:
        """Return the file of the plan, which is written once, before any process of the run starts."""
        return self.path / PLAN

    @property
    def facts_file(self) -> Path:
        """Return the file that records where, when and from which code the run was launched."""
        return self.path / LAUNCH

    @property
    def spec_file(self) -> Path:
        """Return the copy of the spec."""
        return self.path / "drumline.yml"

    @property
    def journal_file(self) -> Path:
        """Return the journal, which has one event with its decisions per line."""
        return self.path / JOURNAL

    @property
    def lock_file(self) -> Path:
        """Return the file that the run's supervisor locks while it runs."""
        return self.path / LOCK

    @property
    def supervisor_log(self) -> Path:
        """Return the log of the supervisor itself."""
        return self.path / "supervisor.log"

    @property
    def socket_file(self) -> Path:
        """Return the socket on which the supervisor accepts requests."""
        return self.path / "control"

    @property
    def output_dir(self) -> Path:
        """Return the default output folder of a run."""
        return self.path / "output"

    def plan(self) -> Plan:
        """Read the plan; raise NotFoundError if this is not the folder of a run.

        Raise EngineError if the plan is damaged, or if another user could have changed it: its commands are executed.
        """
        check_run(str(self.path))
        hint = f"`drumline rm {self.id}` removes the run"
        try:
            plan = plan_from_json(read_regular(self.plan_file, _LARGEST_PLAN).decode())
            if not plan.replicas:
                raise ValueError("it has no replicas")
        except FileNotFoundError:
            raise NotFoundError(f"run {self.id} has no plan; it was never started", hint=hint) from None
        except OSError as error:
            raise EngineError(f"run {self.id} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise EngineError(f"the plan of run {self.id} cannot be read: {error}", hint=hint) from None
        return plan


def _runs_dir(home: Path) -> Path:
    """Return the folder of all runs."""
    return home / RUNS


def create_folder(home: Path) -> RunFolder:
    """Create the folder of the next run; numbers are unique, also for concurrent launches.

    Raise EngineError if it cannot be created.
    """
    runs = _runs_dir(home)
    try:
        make_folder(runs)
        check_home(str(home))  # another user may have created a part of the path meanwhile, in a folder such as /tmp
        with _counter(home) as counter:
            number = max(_read_number(counter), max(numbers(home), default=0)) + 1
            os.pwrite(counter, f"{number:<20}\n".encode(), 0)
            path = runs / str(number)
            if not numbers(home):
                write_version(home)
            path.mkdir(mode=0o700)
    except OSError as error:
        raise EngineError(
            f"cannot keep runs in {home}: {error.strerror}", hint="set DRUMLINE_HOME to a folder that you may write to"
        ) from None
    return RunFolder(path)


@contextmanager
def _counter(home: Path) -> Iterator[int]:
    """Open and lock the file with the number of the last run, so that no number is used twice."""
    file = open_file(home / "last-run", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def find_folder(home: Path, run: str) -> RunFolder:
    """Return the folder of a run; raise NotFoundError, which lists the existing runs, if there is none.

    Raise EngineError if another user could have changed the content of the folder.
    """
    folder = RunFolder(_runs_dir(home) / run)
    if os.path.exists(folder.plan_file):  # noqa: PTH110 - Path raises where a folder may not be looked into
        check_run(str(folder.path))
        return folder
    if is_there(folder):
        raise NotFoundError(f"run {run} has no plan; it was never started", hint=f"`drumline rm {run}` removes it")
    raise no_run(home, run)


def is_there(folder: RunFolder) -> bool:
    """Return whether the folder of a run exists, even if it is damaged."""
    return os.path.lexists(folder.path)


def no_run(home: Path, run: str) -> NotFoundError:
    """Return the error that lists the existing runs."""
    known = sorted(numbers(home))
    exist = "there is run" if len(known) == 1 else "there are runs"
    hint = f"{exist} {_span(known)}" if known else "there are no runs yet: `drumline train` starts one"
    return NotFoundError(f"there is no run {run}", hint=hint)


def _span(numbers: list[int]) -> str:
    """Return these numbers as text; of more than ten, the first and the last ones."""
    if len(numbers) <= 10:
        return ", ".join(str(number) for number in numbers)
    return f"{numbers[0]} to {numbers[-1]}, the last ones {', '.join(str(number) for number in numbers[-5:])}"


def numbers(home: Path) -> Iterator[int]:
    """Yield the numbers of all runs that have a folder."""
    yield from map(int, run_ids(home))


def _read_number(counter: int) -> int:
    try:
        return int(os.pread(counter, 32, 0))
    except ValueError:
        return 0
