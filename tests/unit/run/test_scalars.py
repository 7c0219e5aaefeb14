"""Scalars in TensorBoard's event files. Those in `scalars` were written by TensorFlow 2.21."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.run.progress import Progress
from drumline.run.scalars import Scalar, progress_in, read_scalars
from scaffold.summaries import event_record, summary_record

FILES = {path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "scalars").iterdir())}


def brief(scalars: list[Scalar]) -> list[tuple[str, int, float]]:
    return [(each.tag, each.step, round(each.value, 4)) for each in scalars]


def test_what_keras_and_scripts_and_estimators_write_is_read() -> None:
    assert brief(read_scalars(FILES["keras"], is_cut=False)) == [
        ("epoch_loss", 2, 0.1667),
        ("epoch_loss", 1, 0.25),
        ("epoch_loss", 0, 0.5),
    ]
    assert brief(read_scalars(FILES["script"], is_cut=False))[:2] == [("loss", 290, 0.0333), ("loss", 280, 0.0345)]
    assert brief(read_scalars(FILES["estimator"], is_cut=False)) == [
        ("loss", step, round(2.0 / (step + 1), 4)) for step in (4, 3, 2, 1, 0)
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_byte_has_the_same_scalars_or_fewer(name: str) -> None:
    data = FILES[name]
    whole = read_scalars(data, is_cut=False)
    for cut in range(0, len(data), 1 if len(data) < 1000 else 37):
        of_end = read_scalars(data[cut:], is_cut=True)
        assert of_end == whole[: len(of_end)]
        of_begin = read_scalars(data[:cut], is_cut=False)
        assert of_begin == whole[len(whole) - len(of_begin) :]
    assert read_scalars(data[len(data) // 2 :], is_cut=True)


@pytest.mark.parametrize("name", FILES)
def test_a_record_with_a_wrong_checksum_is_skipped(name: str) -> None:
    data = FILES[name]
    whole = set(read_scalars(data, is_cut=False))
    for at in range(0, len(data), 1 if len(data) < 1000 else 53):
        damaged = data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
        assert set(read_scalars(damaged, is_cut=False)) <= whole
        assert set(read_scalars(damaged, is_cut=True)) <= whole
    assert len(read_scalars(data[:-1] + b"?", is_cut=False)) == len(whole) - (name != "script")  # which ends in text


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_can_be_read(data: bytes, is_cut: bool) -> None:
    assert read_scalars(data, is_cut=is_cut) == []


def test_a_record_that_is_too_long_is_skipped() -> None:
    assert read_scalars(struct.pack("<QI", 2**63, 0) + b"x" * 100, is_cut=False) == []
    for length, is_read in ((512, True), (513, False)):
        tag = b"loss".ljust(length - 25)
        value = b"\x0a" + bytes([len(tag) & 127 | 128, len(tag) >> 7]) + tag + b"\x15" + HALF
        data = event_record(7, value)
        assert len(data) == length + 16  # the length, and the checksums
        assert bool(read_scalars(data, is_cut=False)) is is_read


LOSS = b"\x0a\x04loss"  # field 1, the tag
HALF, HALF_OF_DOUBLE = struct.pack("<f", 0.5), struct.pack("<d", 0.5)


def tensor(fields: bytes) -> bytes:
    """Return a value with a tensor of fields 1 is the type, 2 the shape, 4 the content, 5 floats and 6 doubles."""
    return LOSS + b"\x42" + bytes([len(fields)]) + fields


@pytest.mark.parametrize(
    "value",
    [
        LOSS + b"\x15" + HALF,
        tensor(b"\x08\x01\x22\x04" + HALF),
        tensor(b"\x08\x01\x2a\x04" + HALF),
        tensor(b"\x08\x02\x22\x08" + HALF_OF_DOUBLE),
        tensor(b"\x08\x02\x32\x08" + HALF_OF_DOUBLE),
    ],
)
def test_a_value_is_a_plain_number_or_a_tensor_of_one_float_or_double(value: bytes) -> None:
    data = event_record(7, value)
    assert brief(read_scalars(data, is_cut=False)) == [("loss", 7, 0.5)]
    assert brief(read_scalars(b"cut" + data, is_cut=True)) == [("loss", 7, 0.5)]


@pytest.mark.parametrize(
    "value",
    [
        LOSS,
        b"\x15" + HALF,
        b"\x08\x01\x15" + HALF,  # a tag that is a number
        b"\x15" + HALF + b"\x0a\x09loss",  # a tag that is cut
        tensor(b"\x22\x04" + HALF),  # without a type
        tensor(b"\x08\x03\x22\x04" + HALF),  # of whole numbers
        tensor(b"\x08\x01\x22\x08" + HALF * 2),
        tensor(b"\x08\x01\x12\x02\x12\x00\x22\x04" + HALF),  # a list of one
        tensor(b"\x08\x01\x32\x04" + HALF),
        tensor(b"\x08\x01"),
    ],
)
def test_a_value_that_is_not_one_number_with_a_tag_is_no_scalar(value: bytes) -> None:
    assert read_scalars(event_record(7, value), is_cut=False) == []


def varint(number: int, length: int) -> bytes:
    """Return a small number in so many bytes: all but the last say that another one follows."""
    return bytes([number | 128]) + b"\x80" * (length - 2) + b"\x00"


@pytest.mark.parametrize(("length", "is_read"), [(2, True), (10, True), (11, False)])
def test_a_number_has_at_most_ten_bytes(length: int, is_read: bool) -> None:
    value = b"\x08" + varint(3, length) + b"\x0a\x0b" + LOSS + b"\x15" + HALF
    data = summary_record(value)
    assert brief(read_scalars(data, is_cut=False)) == ([("loss", 7, 0.5)] if is_read else [])


def test_the_step_after_127_takes_two_bytes() -> None:
    assert brief(read_scalars(event_record(128, LOSS + b"\x15" + HALF), is_cut=False)) == [("loss", 128, 0.5)]


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


@pytest.mark.parametrize(
    "other",
    [
        field(2, LOSS + b"\x15" + HALF),  # not a value
        b"\x08\x05",  # a number in place of a value
        field(1, tensor(b"\x08\x06\x22\x01\x05")),  # a tensor of bytes
        field(1, tensor(field(1, b""))),  # a tensor with a type that is no number
    ],
)
def test_what_is_not_a_scalar_does_not_hide_the_next_value_of_its_summary(other: bytes) -> None:
    data = summary_record(other + field(1, LOSS + b"\x15" + HALF))
    assert brief(read_scalars(data, is_cut=False)) == [("loss", 7, 0.5)]


def test_of_many_scalars_the_last_64_are_read() -> None:
    data = b"".join(event_record(step, LOSS + b"\x15" + HALF) for step in range(70))
    assert [each.step for each in read_scalars(data, is_cut=False)] == [*range(69, 5, -1)]


def test_a_step_is_at_most_the_largest_that_tensorflow_counts() -> None:
    value = LOSS + b"\x15" + HALF
    assert brief(read_scalars(event_record(2**63 - 1, value), is_cut=False)) == [("loss", 2**63 - 1, 0.5)]
    assert read_scalars(event_record(2**63, value), is_cut=False) == []


def scalar(tag: str, step: int, value: float = 0.5) -> Scalar:
    return Scalar(tag, step, value, 100.0 + step)


def test_the_epochs_of_keras_are_counted_as_it_prints_them() -> None:
    written = [scalar("epoch_learning_rate", 4), scalar("epoch_loss", 4, 0.25), scalar("epoch_loss", 3, 0.5)]
    assert progress_in(written, by_keras=True) == (Progress(epoch=5, loss=0.25, is_latest=True), 104.0)
    assert progress_in(written, by_keras=False) is None  # other writers may count from 1


@pytest.mark.parametrize("tag", ["loss", "Loss/train", "train/loss", "train_loss", "training loss", "batch_loss"])
def test_the_loss_of_a_training_has_its_step(tag: str) -> None:
    written = [scalar("lr", 12), scalar(tag, 12, 0.25), scalar(tag, 8)]
    assert progress_in(written, by_keras=False) == (Progress(step=12, loss=0.25, is_latest=True), 112.0)


@pytest.mark.parametrize("tag", ["val_loss", "Loss/test", "loss/val", "validation/loss", "lossless", "accuracy", ""])
def test_other_scalars_are_not_the_loss(tag: str) -> None:
    assert progress_in([scalar(tag, 12)], by_keras=True) is None
