"""Follow the steps of a run as its replicas print or report them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.goodput import Point, Steps
from drumline.run.state import RunState
from drumline.run.steps import Counted, StepReader, usual_stride
from drumline.run.traces import LOG, REPORT, trace_dir
from drumline.runtime.private import open_regular
from drumline.runtime.progress import read_report
from drumline.store.folder import RunFolder

_MOST_BYTES = 1 << 24  # bytes that are read of a log in one poll
_MOST_SOURCES = 4  # replicas that may be read


def step_sources(plan: Plan) -> list[ReplicaId]:
    """Return the replicas that may count steps, the chief first."""
    return [replica.id for replica in plan.replicas if replica.id.role in COMPUTING][:_MOST_SOURCES]


class _IncarnationSteps:
    """The steps of one incarnation since the first poll."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = StepReader()
        self._offset = 0
        self._reported: int | None = None
        self.counted: list[Counted] = []
        self.points: list[Point] = []

    def poll(self, now: float) -> None:
        for counted in self._reader.read(self._read()):
            self.counted.append(counted)
            self.points.append(Point(now, counted.step, counted.epoch, counted.steps))
        report = None if self.counted else read_report(self._folder / REPORT)  # not read if the log has steps
        if report and report.step != self._reported:
            self._reported = report.step
            self.points.append(Point(now, report.step))

    def _read(self) -> bytes:
        try:
            with open(self._folder / LOG, "rb", opener=open_regular) as log:
                log.seek(self._offset)
                data = log.read(_MOST_BYTES)
        except OSError:
            return b""
        self._offset += len(data)
        return data


class StepFollower:
    """Follows the steps of one run; `poll` has to be called repeatedly."""

    def __init__(self, folder: RunFolder, plan: Plan, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._sources = step_sources(plan)
        self._clock = clock
        self._incarnations: dict[tuple[ReplicaId, int, int], _IncarnationSteps] = {}

    def poll(self, state: RunState) -> None:
        """Read the new steps of the incarnations in this state, and of earlier incarnations."""
        now = self._clock()
        for replica in self._sources:
            own = state.replicas.get(replica)
            key = (replica, state.attempt, own.incarnation if own else 0)
            if key not in self._incarnations:
                self._incarnations[key] = _IncarnationSteps(self._folder.path / trace_dir(*key))
        for incarnation in self._incarnations.values():
            incarnation.poll(now)

    def highest_step(self, attempt: int) -> int | None:
        """Return the highest step of any replica in an attempt; None if there is none."""
        said = (
            point.step
            for key, incarnation in self._incarnations.items()
            if key[1] == attempt
            for point in incarnation.points
        )
        return max((step for step in said if step is not None), default=None)

    def steps(self, attempt: int, *, since: float = 0.0, until: float = float("inf")) -> Steps | None:
        """Return the steps of an attempt after `since` and up to `until`, of the first replica that has any."""
        for replica in self._sources:
            for (name, number, _), incarnation in reversed(self._incarnations.items()):
                if (name, number) != (replica, attempt):
                    continue
                points = [point for point in incarnation.points if since < point.at <= until]
                if points:
                    return Steps(points[0], points[-1], stride=usual_stride(incarnation.counted))
        return None
