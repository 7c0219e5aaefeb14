"""Samples on disk: complete or absent, limited in number, with sums over the whole incarnation."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.record import to_dict
from drumline.store.metrics import MOST_SAMPLES, RECORD, Sample, append_sample, last_sample, read_samples, thin

AMOUNTS = st.none() | st.integers(0, 2**63 - 1)
SAMPLES = st.builds(
    Sample,
    at=st.floats(0, 1e10),
    seconds=st.floats(0, 1e6),
    cpu_seconds=st.floats(0, 1e8),
    memory_bytes=AMOUNTS,
    memory_total_bytes=AMOUNTS,
    gpu_share=st.none() | st.floats(0, 1),
    gpu_memory_bytes=AMOUNTS,
    gpu_memory_total_bytes=AMOUNTS,
    gpu_devices=st.integers(0, 2**64 - 1),
    gpu_is_whole=st.booleans(),
)


def second(number: int, memory_bytes: int | None = None) -> Sample:
    """Return a sample of one second with half a second of CPU time."""
    return Sample(at=1000.0 + number, seconds=1.0, cpu_seconds=0.5, memory_bytes=memory_bytes)


@given(st.lists(SAMPLES, max_size=20))
def test_samples_read_back_as_they_were_written(samples: list[Sample]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "metrics")
        for sample in samples:
            append_sample(path, sample)
        assert read_samples(path) == samples
        assert last_sample(path) == (samples[-1] if samples else None)


@given(st.binary(max_size=5 * RECORD.size))
def test_any_bytes_are_read_as_numbers_or_skipped(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "metrics")
        path.write_bytes(data)
        found = read_samples(path)
        assert len(found) <= len(data) // RECORD.size
        for sample in (*found, *filter(None, [last_sample(path)])):
            assert all(0 <= number < math.inf for number in to_dict(sample).values() if number is not None)


def test_damaged_samples_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    for number in range(3):
        append_sample(path, second(number))
    data = bytearray(path.read_bytes())
    data[RECORD.size] = 9  # another version
    path.write_bytes(data)
    assert read_samples(path) == [second(0), second(2)]


@given(st.integers(1, RECORD.size - 1))
def test_a_sample_of_which_only_a_part_was_written_is_cut_off(cut: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "metrics")
        append_sample(path, second(0))
        append_sample(path, second(1))
        with path.open("r+b") as file:
            file.truncate(2 * RECORD.size - cut)
        assert read_samples(path) == [second(0)]
        assert last_sample(path) == second(0)
        append_sample(path, second(2))
        assert read_samples(path) == [second(0), second(2)]


def test_samples_are_private_to_their_user(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    for number in range(MOST_SAMPLES + 1):  # the file is rewritten in between
        append_sample(path, second(number))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_raises_an_error_and_keeps_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics"
    append_sample(path, second(0))
    with monkeypatch.context() as full, Path("/dev/full").open("wb") as disk:
        write = os.write
        full.setattr("os.write", lambda _, data: write(disk.fileno(), data))
        with pytest.raises(OSError, match="No space"):
            append_sample(path, second(1))
    assert len(read_samples(path)) == 1


def test_the_samples_of_a_long_incarnation_are_limited_and_keep_the_sums(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    number = 5 * MOST_SAMPLES
    for each in range(number):
        append_sample(path, second(each, memory_bytes=7000 if each == 3 else 100))
        assert path.stat().st_size <= MOST_SAMPLES * RECORD.size
    samples = read_samples(path)
    assert MOST_SAMPLES / 4 < len(samples) <= MOST_SAMPLES
    assert math.isclose(sum(sample.seconds for sample in samples), number)
    assert math.isclose(sum(sample.cpu_seconds for sample in samples), number / 2)
    assert samples[0].memory_bytes == 7000  # a peak stays a peak
    assert samples[-1].at == 1000.0 + number - 1
    # The beginning has as many samples as the rest.
    assert max(sample.seconds for sample in samples) <= 8 * number / MOST_SAMPLES


@given(st.lists(SAMPLES, max_size=60), st.integers(2, 30))
def test_merging_limits_the_number_of_samples_and_keeps_the_sums(samples: list[Sample], most: int) -> None:
    left = thin(samples, most)
    assert len(left) <= most
    assert not samples or left[-1].at == samples[-1].at
    for total in ("seconds", "cpu_seconds"):
        before = math.fsum(getattr(sample, total) for sample in samples)
        assert math.isclose(math.fsum(getattr(sample, total) for sample in left), before, rel_tol=1e-9, abs_tol=1e-9)
    for peak in ("memory_bytes", "gpu_memory_bytes"):
        before = max((getattr(sample, peak) or 0 for sample in samples), default=0)
        assert max((getattr(sample, peak) or 0 for sample in left), default=0) == before


def test_merged_neighbours_have_the_mean_share_of_both() -> None:
    one = Sample(at=1.0, seconds=1.0, cpu_seconds=1.0, gpu_share=1.0, gpu_devices=1)
    other = Sample(at=4.0, seconds=3.0, cpu_seconds=0.0, gpu_share=0.0, gpu_devices=2)
    (merged,) = thin([one, other], 2)
    assert (merged.at, merged.seconds, merged.cpu_share, merged.gpu_share) == (4.0, 4.0, 0.25, 0.25)
    assert merged.gpu_devices == 3
