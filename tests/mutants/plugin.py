"""The tests, collected once: each mutant is tried in a fork, by the tests that execute its line, quickest first."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from mutants.mutate import Mutant, compile_mutant

_CPU_SECONDS = 5  # beside five times what the tests took; what needs more is in a loop without end
_WALL_SECONDS = 600
_MEMORY_BYTES = 4 << 30
NOTICED, SURVIVED, UNTRIED, UNAPPLIED = "noticed", "survived", "not executed by any test", "no function has this code"
_FAILED, _NOT_APPLIED = 1, 3  # exit codes


class Result(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    outcome: str


class Tester:
    """A plugin of pytest: replaces the run of the tests by that of the mutants."""

    def __init__(self, mutants: Sequence[Mutant], jobs: int, tell: Callable[[Result], None]) -> None:
        self._mutants = mutants
        self._jobs = jobs
        self._tell = tell
        self.results: list[Result] = []

    def pytest_sessionstart(self) -> None:
        """Let chance find the same in every run, and not make smaller what it found."""
        from hypothesis import Phase, settings  # noqa: PLC0415 - pytest wants to import it first

        usual, phases = settings.get_profile("usual"), (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", usual, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out which tests execute which lines; then try the mutants."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        files = {str(each.path) for each in self._mutants}
        executed, seconds, failed = _measure(session.items, files, self._jobs)
        if failed:
            raise session.Failed(f"these fail without any mutant: {', '.join(failed)}")
        functions = _functions(files)
        running: dict[int, tuple[Mutant, float]] = {}
        for number, mutant in enumerate(self._mutants, 1):
            chosen = sorted(executed[str(mutant.path), mutant.line], key=seconds.__getitem__)
            if not chosen:
                self._add(Result(mutant, UNTRIED))
                continue
            while len(running) >= self._jobs:
                self._reap(running)
            pid = _fork(session, mutant, functions, chosen, sum(seconds[each] for each in chosen))
            running[pid] = (mutant, time.monotonic() + _WALL_SECONDS)
            if sys.stderr.isatty() or number % 100 == 0:
                sys.stderr.write(f"\r{number} of {len(self._mutants)}")
        while running:
            self._reap(running)
        return True

    def _reap(self, running: dict[int, tuple[Mutant, float]]) -> None:
        """Wait for one that is done; end those that take too long."""
        while True:
            for pid, (mutant, deadline) in running.items():
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done and time.monotonic() > deadline:
                    os.killpg(pid, signal.SIGKILL)
                    _, status = os.waitpid(pid, 0)
                elif not done:
                    continue
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what the tests had started
                del running[pid]
                outcomes = {0: SURVIVED, _NOT_APPLIED: UNAPPLIED}
                self._add(Result(mutant, outcomes.get(os.waitstatus_to_exitcode(status), NOTICED)))
                return
            time.sleep(0.01)

    def _add(self, result: Result) -> None:
        self.results.append(result)
        self._tell(result)


Lines = dict[tuple[str, int], list[int]]  # the tests, by number, that execute a line of a file


def _measure(items: Sequence[pytest.Item], files: set[str], jobs: int) -> tuple[Lines, dict[int, float], list[str]]:
    """Run the tests in forks, as they are; return which execute which lines, how long each takes, and which fail."""
    executed: Lines = defaultdict(list)
    seconds: dict[int, float] = {}
    failed: list[str] = []
    with TemporaryDirectory() as folder:
        outs = [Path(folder, str(part)) for part in range(jobs)]
        numbers = [range(part, len(items), jobs) for part in range(jobs)]
        children = [_fork_measuring(items, files, some, out) for some, out in zip(numbers, outs, strict=True)]
        for pid in children:
            os.waitpid(pid, 0)
        rows = [json.loads(row) for out in outs for row in out.read_text().splitlines()]
    for number, spent, is_ok, lines in rows:
        seconds[number] = spent
        if not is_ok:
            failed.append(items[number].nodeid)
        for file, line in lines:
            executed[file, line].append(number)
    assert len(seconds) == len(items), "a test ended the process that ran it"
    return executed, seconds, failed


def _fork_measuring(items: Sequence[pytest.Item], files: set[str], numbers: Iterable[int], out: Path) -> int:
    """Have some of the tests run in a child, which writes a row for each; return its pid."""
    pid = os.fork()
    if pid == 0:
        _silence()
        with out.open("w") as rows:
            for number in numbers:
                lines, spent, is_ok = _trace(items[number], files)
                rows.write(json.dumps((number, spent, is_ok, [*lines])) + "\n")
        os._exit(0)
    return pid


def _trace(item: pytest.Item, files: set[str]) -> tuple[set[tuple[str, int]], float, bool]:
    lines: set[tuple[str, int]] = set()

    def in_function(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def at_call(frame: FrameType, event: str, _: object) -> Any:
        del event
        if frame.f_code.co_filename in files:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return in_function
        return None

    began = time.process_time()
    sys.settrace(at_call)
    try:
        is_ok = _passes(item)
    finally:
        sys.settrace(None)
    return lines, time.process_time() - began, is_ok


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _fork(
    session: pytest.Session, mutant: Mutant, functions: dict[str, list[FunctionType]], tests: Iterable[int], cost: float
) -> int:
    """Try a mutant in a process of its own, which exits with 0 if no test notices it."""
    pid = os.fork()
    if pid:
        return pid
    code = _FAILED
    try:
        os.setpgid(0, 0)
        _silence()
        limit = int(_CPU_SECONDS + 5 * cost)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        if not _apply(mutant, functions[str(mutant.path)]):
            code = _NOT_APPLIED
        elif all(_passes(session.items[each]) for each in tests):
            code = 0
    finally:
        os._exit(code)


def _apply(mutant: Mutant, functions: Iterable[FunctionType]) -> bool:
    """Give the functions of a file the code that they have with this change; return whether there is one."""
    codes = compile_mutant(mutant)
    applied = False
    for each in functions:
        old = each.__code__
        new = codes.get((old.co_qualname, old.co_firstlineno))
        if new is not None and _differ(old, new):
            each.__code__ = new
            applied = True
    return applied


def _differ(old: CodeType, new: CodeType) -> bool:
    return old.co_code != new.co_code or old.co_consts != new.co_consts


def _functions(files: set[str]) -> dict[str, list[FunctionType]]:
    """All functions that there are, by their files."""
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    gc.unfreeze()  # tests/conftest.py has frozen what was collected, and the collector does not list that
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in files:
            found[each.__code__.co_filename].append(each)
    return found


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def source_files(folder: Path, packages: Iterable[str]) -> Iterator[Path]:
    """Yield the modules that are tried: those right in these packages."""
    for package in packages:
        yield from sorted((folder / package).glob("*.py"))
