"""The resources that the replicas of a run have used, from its start to its end or until now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drumline.record import Record
from drumline.run.id import Target
from drumline.run.traces import METRICS
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.metrics import Sample, read_samples
from drumline.store.summary import read_history, summarise_history
from drumline.view.incarnation import incarnation_dirs
from drumline.view.runs import RunRow, make_row

Value = Callable[[Sample], float | None]


class ReplicaUse(Record):
    """A replica, and the samples of all its incarnations in the order of time."""

    id: str
    samples: tuple[Sample, ...]


class RunUse(Record):
    """A run, the time in which it was sampled, and its replicas."""

    run: RunRow
    start: float
    end: float
    replicas: tuple[ReplicaUse, ...]


class Extent(Record):
    """The minimum, the mean over time, and the maximum of a value."""

    least: float
    mean: float
    most: float


def run_use(folder: RunFolder, target: Target, now: Moment) -> RunUse:
    """Read the samples of these replicas; raise DrumlineError if the run cannot be read."""
    history = read_history(folder)
    replicas = []
    for replica in target.replicas(history.plan):
        dirs = [
            each
            for attempt in range(history.state.attempt + 1)
            for each in incarnation_dirs(folder.path, replica, attempt)
        ]
        samples = [sample for each in dirs for sample in read_samples(each / METRICS)]
        samples.sort(key=lambda sample: sample.at)
        replicas.append(ReplicaUse(f"{folder.id}.{replica}", tuple(samples)))
    every = [sample for replica in replicas for sample in replica.samples]
    return RunUse(
        run=make_row(summarise_history(folder, history), now, supervised=True),
        start=min((sample.at - sample.seconds for sample in every), default=now.at),
        end=max((sample.at for sample in every), default=now.at),
        replicas=tuple(replicas),
    )


def extent(samples: Sequence[Sample], value: Value) -> Extent | None:
    """Return the minimum, mean and maximum of a value; None if no sample has it."""
    known = [(each, sample.seconds) for sample in samples if (each := value(sample)) is not None]
    if not known:
        return None
    seconds = sum(length for _, length in known)
    values = [each for each, _ in known]
    mean = sum(each * length for each, length in known) / seconds if seconds else values[-1]
    return Extent(min(values), mean, max(values))


_SHORTEST_SECONDS = 1e-6  # shorter intervals have no values


def series(samples: Sequence[Sample], value: Value, *, start: float, end: float, width: int) -> list[float | None]:
    """Return the means of a value in `width` equal intervals of the time; None for an interval without samples."""
    step = (end - start) / width
    sums, lengths = [0.0] * width, [0.0] * width
    for sample in samples:
        known = value(sample)
        if known is None or step < _SHORTEST_SECONDS:
            continue
        begin, over = sample.at - sample.seconds - start, sample.at - start
        first = min(width - 1, max(0, int(begin / step)))
        last = min(width - 1, max(first, int(over / step)))
        for index in range(first, last + 1):
            shared = min(over, (index + 1) * step) - max(begin, index * step)
            if shared > 0:
                sums[index] += known * shared
                lengths[index] += shared
    return [sums[index] / lengths[index] if lengths[index] else None for index in range(width)]
