"""Run a failed test again if its virtual machine had lost much of its processor time meanwhile.

A virtual machine loses its processors to its neighbours for seconds or minutes at a time. A peer then misses the
heartbeats of a framework, or a gang that trains seems to hang. The kernel counts the lost time (*steal*). A test is run
again only with that evidence, and the output of its first try is printed, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from _pytest.runner import runtestprotocol

TRIES = 3
TAKEN_SHARE = 0.5  # stolen share within a window; a fairly shared machine may lose up to half
CALM_SHARE = 0.25
CALM_PATIENCE_SECONDS = 120.0
AGAIN = "tried again"


class Machine(Protocol):
    """The load of a machine by its neighbours."""

    def taken(self, since: float) -> float:
        """Return the greatest share of processor time that was stolen in a window since `since` (monotonic seconds)."""
        ...

    def await_calm(self) -> None:
        """Wait until little processor time is stolen, at most CALM_PATIENCE_SECONDS."""
        ...


class Reading(NamedTuple):
    """The kernel's counts at one time: stolen and all ticks."""

    at: float
    stolen: float
    whole: float


def read_kernel(text: str, at: float) -> Reading:
    """Parse the first line of /proc/stat: the ticks of all processors; the eighth number is that of stolen ticks."""
    ticks = [float(figure) for figure in text.split("\n", 1)[0].split()[1:9]]
    return Reading(at, ticks[7], sum(ticks))


class Watch:
    """A thread that reads /proc/stat while the tests run."""

    def __init__(self, path: Path = Path("/proc/stat"), window_seconds: float = 5.0) -> None:
        self._path = path
        self._window_seconds = window_seconds
        self._windows: list[tuple[float, float]] = []  # (end of the window, stolen share)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if /proc/stat exists."""
        if self._path.exists():
            self._thread = threading.Thread(target=self._read_on, args=(self._read(),), name="absence", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._ended.set()
        if self._thread:
            self._thread.join()

    def taken(self, since: float) -> float:
        """Return the greatest stolen share since `since`; wait for the end of the current window."""
        now = time.monotonic()
        while self._thread and not any(end >= now for end, _ in self._windows[-1:]):
            self._ended.wait(self._window_seconds / 5)
        return max((share for end, share in self._windows if end >= since), default=0.0)

    def await_calm(self) -> None:
        """Wait until a window that begins after this call is calm."""
        begin = time.monotonic()
        while self._thread and time.monotonic() < begin + CALM_PATIENCE_SECONDS:
            if any(end > begin + self._window_seconds and share < CALM_SHARE for end, share in self._windows[-1:]):
                return
            self._ended.wait(self._window_seconds / 5)

    def _read_on(self, before: Reading) -> None:
        while not self._ended.wait(self._window_seconds):
            now = self._read()
            self._windows.append((now.at, (now.stolen - before.stolen) / max(now.whole - before.whole, 1)))
            before = now

    def _read(self) -> Reading:
        return read_kernel(self._path.read_text(), time.monotonic())


class TryAgain:
    """The pytest plugin: run a test again if it failed while much processor time was stolen; report both results."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test as pytest does, up to TRIES times."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
        for left in reversed(range(TRIES)):
            begin = time.monotonic()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            failed = any(report.failed for report in reports)
            if not left or not failed or (taken := self._machine.taken(begin)) < TAKEN_SHARE:
                yield from reports
                return
            for report in reports:
                if report.failed:
                    report.outcome = AGAIN  # type: ignore[assignment]
                    report.sections.insert(0, (AGAIN, f"others had {taken:.0%} of the processors meanwhile"))
                    yield report
            item.session._setupstate.teardown_exact(None)  # the next try gets new fixtures
            self._machine.await_calm()

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Return the word and the letter of a test that is tried again."""
        if report.outcome != AGAIN:
            return None
        return AGAIN, "R", (AGAIN.upper(), {"yellow": True})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the first failures of the tests that were tried again."""
        again: list[pytest.TestReport] = terminalreporter.stats.get(AGAIN, [])
        if not again:
            return
        terminalreporter.section(f"{AGAIN}, since the machine was away")
        for report in again:
            terminalreporter.write_line(f"{report.nodeid} ({report.when}): {dict(report.sections)[AGAIN]}", yellow=True)
            terminalreporter.write_line(report.longreprtext)
