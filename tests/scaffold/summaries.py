"""Write summaries in TensorFlow's format without TensorFlow, and read TensorBoard's answers as its page does."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

_POLYNOMIAL = 0x82F63B78  # of CRC-32C


def write_scalars(folder: Path, tag: str, values: Sequence[float]) -> Path:
    """Write an event file with one value at each step, from 0 on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.1700000000.here.{os.getpid()}.0"
    events = [_event(0, _field(3, b"brain.Event:2"))]
    for step, value in enumerate(values):
        scalar = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        events.append(_event(step, _field(5, _field(1, scalar))))
    path.write_bytes(b"".join(map(_record, events)))
    return path


def event_record(step: int, value: bytes) -> bytes:
    """Return a record of a file of events: one event at this step, with this value of a summary."""
    return summary_record(_field(1, value), step)


def summary_record(summary: bytes, step: int = 7) -> bytes:
    """Return a record of a file of events: one event at this step, with this summary."""
    return _record(_event(step, _field(5, summary)))


def read_scalars(address: str, tag: str) -> dict[str, list[tuple[int, float]]]:
    """Return the steps and values of each run that TensorBoard shows with this tag."""
    tags = _read(f"{address}data/plugin/scalars/tags")
    runs = [run for run, known in tags.items() if tag in known]
    return {
        run: [(step, value) for _, step, value in _read(f"{address}data/plugin/scalars/scalars", tag=tag, run=run)]
        for run in runs
    }


def _read(address: str, **query: str) -> Any:
    with urlopen(f"{address}?{urlencode(query)}", timeout=30) as answer:
        return json.load(answer)


def _event(step: int, what: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + _number(step) + what


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data))


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
