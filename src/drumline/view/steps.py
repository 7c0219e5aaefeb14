"""The steps of a run as they are said: whoever waits for one hears of it within moments."""

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

_MOST_BYTES = 1 << 24  # of a log at a look
_MOST_SOURCES = 4  # replicas whose logs are looked at for steps


def step_sources(plan: Plan) -> list[ReplicaId]:
    """Whose steps may count, the chief's before others'."""
    return [replica.id for replica in plan.replicas if replica.id.role in COMPUTING][:_MOST_SOURCES]


class _IncarnationSteps:
    """What one life of a replica has said of its steps since it was looked at first."""

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
        report = None if self.counted else read_report(self._folder / REPORT)  # one that prints is not asked twice
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
    """Follows the steps of one run; `look` again and again."""

    def __init__(self, folder: RunFolder, plan: Plan, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._leaders = step_sources(plan)
        self._clock = clock
        self._lives: dict[tuple[ReplicaId, int, int], _IncarnationSteps] = {}

    def poll(self, state: RunState) -> None:
        """Read what is new of everybody's life in this state, and of those before: what they said last counts."""
        now = self._clock()
        for replica in self._leaders:
            own = state.replicas.get(replica)
            key = (replica, state.attempt, own.incarnation if own else 0)
            if key not in self._lives:
                self._lives[key] = _IncarnationSteps(self._folder.path / trace_dir(*key))
        for life in self._lives.values():
            life.poll(now)

    def highest_step(self, attempt: int) -> int | None:
        """The highest step that anybody has said in an attempt."""
        said = (point.step for key, life in self._lives.items() if key[1] == attempt for point in life.points)
        return max((step for step in said if step is not None), default=None)

    def steps(self, attempt: int, *, since: float = 0.0, until: float = float("inf")) -> Steps | None:
        """The steps of an attempt that were said in this time, by the first who says any."""
        for replica in self._leaders:
            for (name, number, _), life in reversed(self._lives.items()):
                if (name, number) != (replica, attempt):
                    continue
                points = [point for point in life.points if since < point.at <= until]
                if points:
                    return Steps(points[0], points[-1], stride=usual_stride(life.counted))
        return None
