"""The records of a keeper about memory are read and reported, also by a later supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.engine.local.trace import Trace, read_trace
from drumline.plan.types import ReplicaId
from drumline.run.event import EngineWarned, Exit, ReplicaExited, ReplicaStarted
from drumline.runtime import keeper
from drumline.runtime.order import Descriptors, Order

WORKER = ReplicaId("worker", 0)
MIB = 1 << 20


# In a process of its own, since a supervisor adopts orphans and reaps every child.
SUPERVISOR = """
import sys
from pathlib import Path
from drumline.run.incarnation import Incarnation
from drumline.engine.local.processes import Processes
from drumline.plan.types import ReplicaId
from drumline.engine.loop import BootClockLoop
processes = Processes(Path(sys.argv[1]), boot="b", file_limits=(1024, 1024), loop=BootClockLoop(), report=print)
processes.stop([Incarnation(ReplicaId("worker", 0), 1)], grace_seconds=1)
"""


@pytest.mark.parametrize(
    ("used", "limit", "words"),
    [
        (64 * MIB, 64 * MIB, "out of memory: it used 64.0 MiB, all of its limit"),
        (64 * MIB - 28672, 64 * MIB, "out of memory: it used 64.0 MiB, all of its limit"),
        (
            30 * MIB,
            64 * MIB,
            "out of memory: it used 30.0 MiB of its limit of 64.0 MiB, and no more was available",
        ),
        ("", 64 * MIB, "out of memory: its limit is 64.0 MiB"),
        (64 * MIB, "max", "out of memory"),
        ("", "", "out of memory"),
    ],
)
def test_out_of_memory_is_reported_with_the_kernels_numbers(
    used: object, limit: object, words: str, tmp_path: Path
) -> None:
    trace = tmp_path / "keeper"
    trace.write_text(f'{{"code": null, "signal": 9, "at": 5.5, "out_of_memory": ["{used}", "{limit}"]}}\n')
    assert read_trace(trace).exit == Exit(signal=9, message=words, out_of_memory=True)


def test_an_exit_without_lack_of_memory_has_no_message_about_it(tmp_path: Path) -> None:
    trace = tmp_path / "keeper"
    trace.write_text('{"code": 1, "signal": null, "at": 5.5}\n')
    assert read_trace(trace).exit == Exit(code=1)


def test_a_keeper_that_cannot_enter_the_cgroup_reports_why_and_runs_the_replica(tmp_path: Path) -> None:
    trace, log = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("keeper", "log"))
    heard, news = os.pipe()
    pid = os.fork()
    if pid == 0:
        order = Order("worker.0 0 0", ["echo", "ran"], {}, "/", group=f"{tmp_path}/gone", note="cold: why")
        keeper.keep(order, Descriptors(trace, log, news))
    os.close(news)
    os.waitpid(pid, 0)
    assert read_trace(tmp_path / "keeper").unlimited == "No such file or directory"
    assert (tmp_path / "log").read_text() == "ran\n"
    word = json.loads(os.read(heard, 100))
    assert word == ["worker.0 0 0", read_trace(tmp_path / "keeper").pid, "No such file or directory", "cold: why"]
    assert read_trace(tmp_path / "keeper").note == "cold: why"
    for descriptor in (trace, log, heard):
        os.close(descriptor)


def test_a_later_supervisor_reports_out_of_memory_too(tmp_path: Path) -> None:
    folder = tmp_path / "attempts" / "1" / "worker.0"
    folder.mkdir(parents=True)
    (folder / "keeper").write_text(
        '{"keeper": 11, "boot": "b"}\n{"pid": 12, "ticks": 13, "unlimited": "Permission denied"}\n'
        '{"code": 0, "signal": null, "at": 5.5}\n{"over": true}\n'
    )
    told = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout
    assert told.splitlines() == [
        str(ReplicaStarted(WORKER, 1, 0, 12)),
        str(EngineWarned(1, "worker.0 runs without its memory limit: Permission denied")),
        str(ReplicaExited(WORKER, 1, 0, Exit(code=0), 5.5)),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *('{"pid": -1}', '{"pid": 1}', '{"pid": true}', '{"pid": "12"}', '{"keeper": 4294967296}', '{"code": "0"}'),
        *(
            '{"at": NaN}',
            '{"over": "no"}',
            '{"out_of_memory": [5, 6]}',
            '{"lease": []}',
            "[]",
            "5",
            '"pid"',
            "[" * 9999,
        ),
    ],
    ids=lambda line: line[:30],
)
def test_invalid_records_in_a_trace_are_ignored(line: str, tmp_path: Path) -> None:
    (tmp_path / "keeper").write_text(f'{line}\n{{"pid": 12, "ticks": 13}}\n')
    assert read_trace(tmp_path / "keeper") == Trace(pid=12, ticks=13)
    (tmp_path / "keeper").write_text(f'{{"code": 1}}\n{line}\n')
    assert read_trace(tmp_path / "keeper") == Trace(exit=Exit(code=1))
