"""Read scalars from the end of TensorBoard's event files.

A record consists of its length, a checksum of the length, its data, and a checksum of the data. Records that are
incomplete, damaged or of another kind are ignored.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import cache

from drumline.record import Record
from drumline.run.progress import Progress

_HEAD, _FOOT = 12, 4
_LONGEST = 512  # a record with a scalar is shorter; histograms, images and graphs are not read
_MOST = 64  # scalars that are read; the loss is among them even if a script writes many tags
_LENGTH = re.compile(rb"(?s)(?=(...\0\0\0\0\0....))")  # of a record below 16 MiB, and its checksum

# Names of the training loss in Keras, Estimator, Lightning and common scripts.
_LOSS = re.compile(r"(?i)(?:train(?:ing)?[_/ .-])?(?:loss|total_loss)(?:[_/ .-](?:train(?:ing)?|step))?|batch_loss")
_EPOCH_LOSS = "epoch_loss"  # of the Keras callback; its steps are epochs, counted from 0


class Scalar(Record):
    """A number that a script has written under a tag, at a step."""

    tag: str
    step: int
    value: float
    at: float  # UTC, seconds


def read_scalars(tail: bytes, *, is_cut: bool) -> list[Scalar]:
    """Return the last scalars in the end of a file, newest first; with `is_cut`, it may begin within a record."""
    records = list(_records(tail, _first_record(tail) if is_cut else 0))
    found: list[Scalar] = []
    for data, checksum in reversed(records):
        if len(data) <= _LONGEST and _masked_checksum(data) == checksum:
            found.extend(_scalars(data))
        if len(found) >= _MOST:
            break
    return found


def progress_in(scalars: list[Scalar], *, by_keras: bool) -> tuple[Progress, float] | None:
    """Return the progress in these scalars (newest first), and when it was written (UTC, seconds).

    Return None if no scalar is a known loss. `by_keras` is true if the Keras callback wrote the scalars.
    """
    for newest in scalars:
        if by_keras and newest.tag == _EPOCH_LOSS:
            return Progress(epoch=newest.step + 1, loss=newest.value, is_latest=True), newest.at
        if _LOSS.fullmatch(newest.tag):
            return Progress(step=newest.step, loss=newest.value, is_latest=True), newest.at
    return None


def _first_record(tail: bytes) -> int:
    """Return the offset of the first complete record; the length if there is none."""
    for found in _LENGTH.finditer(tail):
        head = found[1]
        if struct.unpack_from("<I", head, 8)[0] == _masked_checksum(head[:8]):
            return found.start()
    return len(tail)


def _records(tail: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield records with the checksums of their data, up to the first incomplete one."""
    while at + _HEAD <= len(tail):
        length, checksum = struct.unpack_from("<QI", tail, at)
        end = at + _HEAD + length
        if end + _FOOT > len(tail) or checksum != _masked_checksum(tail[at : at + 8]):
            return
        yield tail[at + _HEAD : end], struct.unpack_from("<I", tail, end)[0]
        at = end + _FOOT


def _scalars(event: bytes) -> Iterator[Scalar]:
    """Yield the scalars of one event."""
    try:
        fields = dict(_fields(event))  # the last value of a repeated field; no writer repeats the summary of an event
        step, at, summary = fields.get(2, 0), fields.get(1), fields.get(5)
        if not isinstance(step, int) or step >= 1 << 63 or not isinstance(at, bytes) or not isinstance(summary, bytes):
            return
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                own = dict(_fields(value))
                tag, found = own.get(1), _number(own)
                if isinstance(tag, bytes) and found is not None:
                    yield Scalar(tag.decode(errors="replace"), step, found, struct.unpack("<d", at)[0])
    except (ValueError, struct.error, IndexError):
        return


def _number(value: dict[int, int | bytes]) -> float | None:
    """Return a plain number, or the value of a scalar float tensor."""
    plain, tensor = value.get(2), value.get(8)
    if isinstance(plain, bytes) and len(plain) == 4:
        return float(struct.unpack("<f", plain)[0])
    if not isinstance(tensor, bytes):
        return None
    fields = dict(_fields(tensor))
    shape = fields.get(2, b"")
    form, size, listed = {1: ("<f", 4, 5), 2: ("<d", 8, 6)}.get(_whole(fields.get(1)), ("", 0, 0))
    content = fields.get(4) or fields.get(listed)
    if shape or not isinstance(content, bytes) or len(content) != size:
        return None
    return float(struct.unpack(form, content)[0])


def _whole(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: varints as numbers, all others as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError(kind)
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(at)


@cache
def _table() -> tuple[int, ...]:
    """Return the table of CRC-32C, which the standard library does not have."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return tuple(table)


def _masked_checksum(data: bytes) -> int:
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
