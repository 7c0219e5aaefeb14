"""An answer that is not of the requested kind, or out of limits, is refused."""

from __future__ import annotations

from typing import Any

import pytest

from drumline.engine.agent.answers import (
    ClockAnswer,
    Done,
    FactsAnswer,
    PlaceAnswer,
    PortsAnswer,
    SocketsAnswer,
    UsageAnswer,
    WorkSamplesAnswer,
    read_answer,
)

PLACE = {
    "host": "127.0.0.1",
    "port": 20000,
    "workdir": "/w",
    "output_dir": "/o",
    "checkpoint_dir": "/o/c",
    "cores": 2,
    "gpus": ["0"],
}
FACTS = {"base": "/home/me", "boot": "b-1", "python": "3.11.2", "cpus": 2, "memory_bytes": 1, "gpus": ["GPU-1"]}
FACTS |= {"executable": "/usr/bin/python3", "free_bytes": 5, "is_writable": True}
INCARNATION = {"replica": "worker.0", "attempt": 0, "incarnation": 0}
TIMES = {"at_seconds": 2.0, "started_seconds": 1.0, "cpu_seconds": 0.5}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Done, {}),
        (FactsAnswer, FACTS),
        (ClockAnswer, {"now": 12.5, "time": 1.5}),
        (PlaceAnswer, {"places": {"worker.0": PLACE}, "warnings": ["a"]}),
        (PortsAnswer, {"owners": [{"port": 80, "user": "me"}]}),
        (UsageAnswer, {"usage": [{**INCARNATION, **TIMES}]}),
        (WorkSamplesAnswer, {"work_samples": [{**INCARNATION, "cpu_seconds": 1.0}]}),
        (SocketsAnswer, {"sockets": [{"replica": "worker.0", "listening": [80], "connected": ["[::1]:80"]}]}),
    ],
)
def test_valid_answers_are_read(kind: type[Any], data: dict[str, Any]) -> None:
    assert isinstance(read_answer(kind, {"do": "answer", "id": 3, **data}), kind)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Done, {"more": 1}),
        (ClockAnswer, {}),
        (ClockAnswer, {"now": "12", "time": 1}),
        (ClockAnswer, {"now": True, "time": 1}),
        (FactsAnswer, {**FACTS, "base": "relative"}),
        (FactsAnswer, {**FACTS, "base": "/a\0b"}),
        (FactsAnswer, {**FACTS, "base": "/a\n/b"}),
        (FactsAnswer, {**FACTS, "python": "3.11.2; rm"}),
        (FactsAnswer, {**FACTS, "executable": "python3\n"}),
        (FactsAnswer, {**FACTS, "gpus": ["0,1"]}),
        (FactsAnswer, {**FACTS, "gpus": ["0"] * 2000}),
        (FactsAnswer, {**FACTS, "boot": "x" * 100}),
        (PlaceAnswer, {"places": [], "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "port": 0}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "port": 65536}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "port": True}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "port": 2.0}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "output_dir": "o"}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "output_dir": "/a\0"}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "workdir": "/" + "x" * 5000}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "cores": 0}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "gpus": ["0 1"]}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "domain": ".evil"}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": {**PLACE, "written": ["RANK"]}}, "warnings": []}),
        (PlaceAnswer, {"places": {"worker.0": PLACE}, "warnings": ["a"] * 1000}),
        (PortsAnswer, {"owners": [{"port": 0, "user": "me"}]}),
        (PortsAnswer, {"owners": [[80, "me"]]}),
        (UsageAnswer, {"usage": {}}),
        (UsageAnswer, {"usage": [{**INCARNATION, **TIMES, "memory_bytes": 1.5}]}),
        (SocketsAnswer, {"sockets": [{"replica": "worker.0", "listening": [0], "connected": []}]}),
        (SocketsAnswer, {"sockets": [{"replica": "worker.0", "listening": [], "connected": ["a b"]}]}),
        (SocketsAnswer, {"sockets": [{"replica": "../..", "listening": [], "connected": []}]}),
    ],
)
def test_invalid_answers_are_refused(kind: type[Any], data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_answer(kind, {"do": "answer", "id": 3, **data})
