"""The output of `drumline monitor` as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.cli import run
from drumline.cli.usage import usage_frame
from drumline.run.event import AttemptPlaced, Event, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.id import Target
from drumline.run.traces import METRICS, trace_dir
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.metrics import Sample, append_sample
from drumline.view.monitor import MonitoredRun, monitor_run
from scaffold.past_runs import NOON, NOW, SECOND, TWO_WORKERS, WORKER, finished, moments, write_run

GIB = 1 << 30
SAMPLES = [
    Sample(at=NOON + 11, seconds=1.0, cpu_seconds=0.5, memory_bytes=GIB, memory_total_bytes=8 * GIB),
    Sample(at=NOON + 20, seconds=9.0, cpu_seconds=18.0, memory_bytes=2 * GIB, memory_total_bytes=8 * GIB),
    Sample(at=NOON + 30, seconds=10.0, cpu_seconds=0.0),
]


def put(folder: RunFolder, *samples: Sample, replica: object = WORKER) -> None:
    path = folder.path / trace_dir(replica, 0) / METRICS  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    for sample in samples:
        append_sample(path, sample)


def running_pair(home: Path) -> RunFolder:
    """Write a run of two workers, one with a GPU, that has lost its supervisor."""
    accepted, started, *_ = moments()
    events: list[tuple[Moment, Event]] = [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("127.0.0.1:20000", "127.0.0.1:20001"))),
        (started, ReplicaStarted(WORKER, 0)),
        (started, ReplicaStarted(SECOND, 0)),
    ]
    folder = write_run(home, 4, events, spec=TWO_WORKERS, directory=Path.cwd())
    put(folder, SAMPLES[1])
    gpu = {"gpu_share": 0.724, "gpu_memory_bytes": 4 * GIB, "gpu_memory_total_bytes": 80 * GIB, "gpu_devices": 2}
    put(folder, SAMPLES[0].replace(**gpu), replica=SECOND)
    return folder


def monitored(folder: RunFolder) -> MonitoredRun:
    return monitor_run(folder, Target("4"), NOW)


def test_a_table_has_whole_percents_and_gibibytes_with_one_decimal(home: Path) -> None:
    assert usage_frame([monitored(running_pair(home))], None).lines == [
        "ID          PROJECT  STATE    CPU %  MEM %  MEM Used / Total  GPU %  GPU-MEM %  GPU-MEM Used / Total",
        "4.worker.0  digits   RUNNING  200    25     2.0 / 8.0         N/A    N/A        N/A / N/A",
        "4.worker.1  digits   RUNNING  50     12     1.0 / 8.0         72     5          4.0 / 80.0",
        "4           digits   RUNNING  250    38     3.0 / 8.0         72     5          4.0 / 80.0",
    ]


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (100, "ID PROJECT STATE CPU % MEM % MEM Used / Total GPU % GPU-MEM % GPU-MEM Used / Total"),
        (95, "ID STATE CPU % MEM % MEM Used / Total GPU % GPU-MEM % GPU-MEM Used / Total"),
        (80, "ID STATE CPU % MEM % MEM Used / Total GPU % GPU-MEM Used / Total"),
        (76, "ID STATE CPU % MEM Used / Total GPU % GPU-MEM Used / Total"),
        (64, "ID CPU % MEM Used / Total GPU % GPU-MEM Used / Total"),
        (50, "ID CPU % MEM Used / Total GPU %"),
        (40, "ID CPU % MEM Used / Total"),
        (5, "ID CPU % MEM Used / Total"),
    ],
)
def test_a_narrow_terminal_leaves_out_the_least_important_columns(home: Path, width: int, headings: str) -> None:
    lines = usage_frame([monitored(running_pair(home))], width).lines
    assert lines[0].split() == headings.split()
    assert width < 38 or max(map(len, lines)) <= width


def test_a_narrow_terminal_leaves_out_empty_gpu_columns_first(home: Path) -> None:
    folder = write_run(home, 4, finished(), directory=Path.cwd())
    lines = usage_frame([monitored(folder)], 80).lines
    assert " ".join(lines[0].split()) == "ID PROJECT STATE CPU % MEM % MEM Used / Total"


def test_numbers_of_a_whole_gpu_are_marked_and_explained(home: Path) -> None:
    folder = running_pair(home)
    whole = SAMPLES[0].replace(
        gpu_share=0.9, gpu_memory_bytes=GIB, gpu_memory_total_bytes=2 * GIB, gpu_devices=1, gpu_is_whole=True
    )
    put(folder, whole, replica=SECOND)
    frame = usage_frame([monitored(folder)], None)
    assert frame.lines[2].split()[-5:] == ["90*", "50*", "1.0", "/", "2.0"]
    assert any("* of the whole GPU" in line for line in frame.messages)


def test_a_lost_supervisor_is_reported_and_known_samples_are_shown(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    running_pair(home)
    assert run(["monitor", "--once", "4.worker.0"]) == 0
    out, err = capfd.readouterr()
    assert "4.worker.0  digits   RUNNING  200    25     2.0 / 8.0" in out
    assert "run 4: supervisor gone; `drumline supervise 4` starts another" in err


def test_json_has_numbers(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running_pair(home)
    assert run(["monitor", "--once", "-o", "json"]) == 0  # without an id: what runs of this project
    (shown,) = json.loads(capfd.readouterr().out)
    assert (shown["id"], shown["project"], shown["state"], shown["supervisor_gone"]) == ("4", "digits", "RUNNING", True)
    first, second = shown["replicas"]
    assert first == {
        "id": "4.worker.0",
        "state": "RUNNING",
        "at": "2024-01-01T12:00:20Z",
        "seconds": 9.0,
        "cpu_percent": 200.0,
        "memory_bytes": 2 * GIB,
        "memory_total_bytes": 8 * GIB,
        "gpu_percent": None,
        "gpu_memory_bytes": None,
        "gpu_memory_total_bytes": None,
        "gpu_devices": [],
        "gpu_is_whole_device": False,
    }
    assert (second["gpu_percent"], second["gpu_devices"]) == (72.4, [1])
    assert shown["total"]["memory_bytes"] == 3 * GIB


def test_a_run_that_is_over_has_no_usage_and_a_hint_at_its_history(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put(write_run(home, 4, finished(), directory=Path.cwd()), *SAMPLES)
    assert run(["monitor", "4"]) == 0  # and monitor exits
    out, err = capfd.readouterr()
    assert "4.worker.0  digits   FINISHED  N/A    N/A    N/A / N/A" in out
    assert "run 4 is over: FINISHED; `drumline monitor 4 --history` shows its use" in err


def test_the_history_is_drawn_from_the_start_to_the_end(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    put(write_run(home, 4, finished(), directory=Path.cwd()), *SAMPLES)
    assert run(["monitor", "--history", "4"]) == 0
    title, _, heading, cpu, memory = capfd.readouterr().out.splitlines()
    assert title == "Run 4 (digits), FINISHED: 20s from 2024-01-01T12:00:10Z to 2024-01-01T12:00:30Z"
    assert heading.split() == ["ID", "MIN", "MEAN", "MAX"]
    assert cpu.split()[:6] == ["4.worker.0", "CPU", "%", "0", "92", "200"]
    bars = cpu.split()[6]
    assert (len(cpu), bars[0], bars[len(bars) // 4], bars[-1]) == (80, "▃", "█", "▁")
    assert memory.split()[:6] == ["4.worker.0", "MEM", "GiB", "1.0", "1.9", "2.0"]
    assert 18 <= len(memory.split()[6]) <= 24  # memory was not measured in the second half


def test_the_history_as_json(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    put(write_run(home, 4, finished(), directory=Path.cwd()), *SAMPLES)
    assert run(["monitor", "--history", "4.worker.0", "-o", "json"]) == 0
    ((shown,),) = ([each["replicas"] for each in json.loads(capfd.readouterr().out)],)
    (replica,) = shown
    assert (replica["id"], replica["seconds"], replica["cpu_seconds"]) == ("4.worker.0", 20.0, 18.5)
    assert replica["most_memory_bytes"] == 2 * GIB
    assert [sample["cpu_percent"] for sample in replica["samples"]] == [50.0, 200.0, 0.0]


def test_a_run_without_samples_has_no_history(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(home, 4, finished(), directory=Path.cwd())
    assert run(["monitor", "--history", "4"]) == 0
    assert capfd.readouterr() == ("", "run 4: its use was not recorded\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["monitor"], 0, "no run of this project is running: `drumline train` starts one"),
        (["monitor", "-a"], 0, "no run is running: `drumline train` starts one"),
        (["monitor", "9"], 4, "there is no run 9"),
        (["monitor", "4.ps.0"], 4, "run 4 has no ps.0"),
        (["monitor", "four"], 2, "`four` is not a run's id"),
        (["monitor", "--history"], 2, "--history needs the ID of a run"),
    ],
)
def test_a_request_that_monitor_cannot_show_is_refused(
    home: Path, capfd: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    write_run(home, 4, finished(), directory=Path.cwd())
    assert run(words) == code
    assert said in capfd.readouterr().err


def test_runs_of_other_projects_are_shown_with_the_option(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running_pair(home)
    accepted, started, _, ended = moments()
    over = (ended, ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot))
    events: list[tuple[Moment, Event]] = [(accepted, RunAccepted()), (started, ReplicaStarted(WORKER, 0))]
    write_run(home, 5, events, directory="/elsewhere")
    write_run(home, 6, [*events, over], directory=Path.cwd())
    assert run(["monitor", "--once", "-o", "json"]) == 0
    assert [each["id"] for each in json.loads(capfd.readouterr().out)] == ["4"]
    assert run(["monitor", "--once", "-a", "-o", "json"]) == 0
    assert {each["id"] for each in json.loads(capfd.readouterr().out)} >= {"4", "5"}
