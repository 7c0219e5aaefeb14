"""Samples of the resources that an incarnation has used: a file beside its log, written by the supervisor.

Each sample starts at the end of the previous one, so samples add up to the whole time, even if some were lost or
merged. The size of the file is limited: when it is full, neighbours are merged until all samples have about the same
length.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from drumline.record import Record
from drumline.runtime.private import open_file, read_regular, write_file
from drumline.store.logs import read_end

MOST_SAMPLES = 1024
VERSION = 1

# Version, flags, time (UTC), seconds, CPU seconds, memory, its total, GPU share, GPU memory, its total, GPU devices.
RECORD = struct.Struct("<IIdddqqdqqQ")
_WHOLE = 1  # a flag: the GPU figures are of whole devices
_NONE = -1
_LATEST = 1e11  # a time beyond this is damage


class Sample(Record):
    """The resources used in the `seconds` before `at` (UTC); memory is the peak. A field is None if it is not known."""

    at: float
    seconds: float
    cpu_seconds: float
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    gpu_share: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_devices: int = 0
    gpu_is_whole: bool = False

    @property
    def cpu_share(self) -> float:
        """Return the mean number of busy cores."""
        return self.cpu_seconds / self.seconds if self.seconds > 0 else 0.0


def append_sample(path: Path, sample: Sample) -> None:
    """Append a sample; raise OSError, and leave the file intact, if the disk is full."""
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        whole = size - size % RECORD.size
        if whole < MOST_SAMPLES * RECORD.size:
            if whole < size:
                os.ftruncate(file, whole)  # the last sample may be incomplete, if the disk was full
            os.write(file, _pack(sample))
            return
    finally:
        os.close(file)
    _replace(path, [*thin(read_samples(path), MOST_SAMPLES // 2), sample])


def read_samples(path: Path) -> list[Sample]:
    """Return all samples except damaged and incomplete ones."""
    try:
        data = read_regular(path, 2 * MOST_SAMPLES * RECORD.size)
    except OSError:
        return []
    return list(_unpack(data[: len(data) - len(data) % RECORD.size]))


def last_sample(path: Path) -> Sample | None:
    """Return the newest complete sample; None if there is none."""
    data, start = read_end(path, 2 * RECORD.size)
    end = len(data) - (start + len(data)) % RECORD.size  # of the last complete record
    return next(_unpack(data[end - RECORD.size : end]), None) if end >= RECORD.size else None


def thin(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Merge neighbours until there are at most `most` samples, all of about the same length."""
    # Two neighbours are merged if their sum is not longer than this; so the sum of any two remaining ones is longer.
    longest = 2 * math.fsum(sample.seconds for sample in samples) / max(1, most - 1)
    merged: list[Sample] = []
    for sample in samples:
        if merged and merged[-1].seconds + sample.seconds <= longest:
            merged[-1] = _merge(merged[-1], sample)
        else:
            merged.append(sample)
    return merged


def _merge(one: Sample, other: Sample) -> Sample:
    """Merge two neighbours: the sum of times, the mean of shares, the peak of memory."""
    seconds = one.seconds + other.seconds
    return other.replace(
        seconds=seconds,
        cpu_seconds=one.cpu_seconds + other.cpu_seconds,
        memory_bytes=_most(one.memory_bytes, other.memory_bytes),
        memory_total_bytes=_most(one.memory_total_bytes, other.memory_total_bytes),
        gpu_share=_mean(one, other, seconds),
        gpu_memory_bytes=_most(one.gpu_memory_bytes, other.gpu_memory_bytes),
        gpu_memory_total_bytes=_most(one.gpu_memory_total_bytes, other.gpu_memory_total_bytes),
        gpu_devices=one.gpu_devices | other.gpu_devices,
        gpu_is_whole=one.gpu_is_whole or other.gpu_is_whole,
    )


def _most(*amounts: int | None) -> int | None:
    return max((amount for amount in amounts if amount is not None), default=None)


def _mean(one: Sample, other: Sample, seconds: float) -> float | None:
    if one.gpu_share is None or other.gpu_share is None or seconds <= 0:
        return one.gpu_share if other.gpu_share is None else other.gpu_share
    return (one.gpu_share * one.seconds + other.gpu_share * other.seconds) / seconds


def _replace(path: Path, samples: Iterable[Sample]) -> None:
    """Replace the file as a whole."""
    write_file(path, b"".join(map(_pack, samples)))


def _pack(sample: Sample) -> bytes:
    return RECORD.pack(
        VERSION,
        _WHOLE if sample.gpu_is_whole else 0,
        sample.at,
        sample.seconds,
        sample.cpu_seconds,
        *(_NONE if amount is None else amount for amount in (sample.memory_bytes, sample.memory_total_bytes)),
        _NONE if sample.gpu_share is None else sample.gpu_share,
        *(_NONE if amount is None else amount for amount in (sample.gpu_memory_bytes, sample.gpu_memory_total_bytes)),
        sample.gpu_devices,
    )


def _unpack(data: bytes) -> Iterator[Sample]:
    for version, flags, at, seconds, cpu, *amounts, devices in RECORD.iter_unpack(data):
        memory, memory_total, share, gpu_memory, gpu_memory_total = (None if each < 0 else each for each in amounts)
        numbers = (at, seconds, cpu, share or 0.0)
        if version == VERSION and all(0 <= number < _LATEST for number in numbers):
            yield Sample(
                at,
                seconds,
                cpu,
                memory,
                memory_total,
                share,
                gpu_memory,
                gpu_memory_total,
                devices,
                gpu_is_whole=bool(flags & _WHOLE),
            )
