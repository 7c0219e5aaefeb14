"""GPU usage by replica, and the poller that reads it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drumline.engine.local.gpu_poller import GpuPoller, parse_devices
from drumline.engine.local.gpu_usage import Device, GpuReplica, attribute_usage, sees_any, visible_devices
from drumline.engine.local.nvml import _Reader
from drumline.engine.local.proc import read_stats
from drumline.record import to_dict
from drumline.run.usage import GpuUsage
from scaffold.loops import SteppedLoop

GIB = 1 << 30


def device(number: int = 0, **known: Any) -> Device:
    fields: dict[str, Any] = {"memory": {}, "shares": {}, **known}
    return Device(number, f"GPU-{number}aaa", 80 * GIB, 10 * GIB, 0.9, **fields)


def usages(
    devices: list[Device], *replicas: GpuReplica, pids: Collection[int] = (), is_initial: bool = False
) -> list[GpuUsage | None]:
    return attribute_usage(devices, replicas, pids=pids, is_initial=is_initial)


FIRST, SECOND = GpuReplica(frozenset({10, 11}), None), GpuReplica(frozenset({20}), None)


def test_replicas_that_share_a_gpu_have_the_usage_of_their_own_processes() -> None:
    shared = device(memory={10: GIB, 11: GIB, 20: 3 * GIB}, shares={10: 0.2, 20: 0.7})
    assert usages([shared], FIRST, SECOND) == [
        GpuUsage(0.2, 2 * GIB, 80 * GIB, 1),
        GpuUsage(0.7, 3 * GIB, 80 * GIB, 1),
    ]


def test_over_several_gpus_memory_adds_up_and_shares_are_averaged() -> None:
    both = [device(0, memory={10: GIB}, shares={10: 1.0}), device(1, memory={11: 2 * GIB}, shares={11: 0.5})]
    assert usages(both, FIRST) == [GpuUsage(0.75, 3 * GIB, 160 * GIB, 0b11)]


def test_a_replica_has_only_the_gpus_that_it_can_see() -> None:
    both = [device(0, memory={10: GIB}), device(1, memory={20: GIB})]
    first, second = usages(both, FIRST.replace(visible="0"), SECOND.replace(visible="GPU-1"))
    assert first == GpuUsage(0.0, GIB, 80 * GIB, 0b01)
    assert second == GpuUsage(0.0, GIB, 80 * GIB, 0b10)
    assert usages(both, FIRST.replace(visible="")) == [None]
    assert usages([], FIRST) == [None]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1, 2", [1, 2]),
        ("GPU-1", [1]),
        ("GPU-1aaa,0", [1, 0]),
        ("0,7,1", [0]),
        ("-1", []),
        ("", []),
        ("GPU-", []),
        ("MIG-0aaa", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices_end_before_the_first_that_does_not_exist(visible: str | None, numbers: list[int]) -> None:
    three = [device(0), device(1), device(2)]
    assert [each.number for each in visible_devices(three, visible)] == numbers
    assert sees_any(visible) or not numbers


@pytest.mark.parametrize("memory", [None, {}, {70001: GIB}], ids=["not counted", "none named", "other numbers"])
def test_without_usage_by_process_a_replica_alone_on_a_gpu_has_the_usage_of_the_gpu(
    memory: dict[int, int] | None,
) -> None:
    unclear = device(memory=memory, shares=None)
    assert usages([unclear], FIRST) == [GpuUsage(0.9, 10 * GIB, 80 * GIB, 1, is_whole=True)]
    assert usages([unclear], FIRST, SECOND) == [GpuUsage(None, None, 80 * GIB, 1)] * 2


def test_no_use_of_a_gpu_is_reported_in_the_initial_pid_namespace() -> None:
    idle = device(memory={}, shares={})
    assert usages([idle], FIRST, SECOND, is_initial=True) == [GpuUsage(0.0, 0, 80 * GIB, 1)] * 2
    taken = device(memory={30: GIB}, shares={30: 1.0})  # by another visible process
    assert usages([taken], FIRST, SECOND, pids={10, 20, 30}) == [GpuUsage(0.0, 0, 80 * GIB, 1)] * 2


def test_a_gpu_without_busy_time_by_process_reports_its_total_busy_time() -> None:
    old = device(memory={10: GIB}, shares=None)
    assert usages([old], FIRST) == [GpuUsage(0.9, GIB, 80 * GIB, 1, is_whole=True)]
    assert usages([old], FIRST, SECOND, pids={10, 20}) == [
        GpuUsage(None, GIB, 80 * GIB, 1),
        GpuUsage(None, 0, 80 * GIB, 1),
    ]


# A module for the child, which reads devices: the first is used by the child itself.
MADE_UP = """
import os
from drumline.engine.local.gpu_usage import Device
GIB = 1 << 30
def device(number, memory, shares):
    return Device(number, f"GPU-{number}aaa", 80 * GIB, 10 * GIB, 0.9, memory=memory, shares=shares)
def open_reader():
    return lambda: [device(0, {os.getpid(): GIB, 5: None}, {os.getpid(): 0.5}), device(1, None, {})]
"""
NONE = "raise ImportError('no pynvml')"
HANGING = """
from pathlib import Path
from made_up import device
def open_reader():
    return lambda: [device(1 if (Path(__file__).parent / "never").read_bytes() else 0, {}, {})]
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put modules that replace NVML where the child process imports them."""
    for name, text in (("made_up", MADE_UP), ("no_nvml", NONE), ("hanging", HANGING)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


def ask_until(poller: GpuPoller, loop: SteppedLoop) -> list[Device]:
    while not (found := poller.poll()):
        loop.turn()
    return found


def children(besides: set[int]) -> set[int]:
    return {stat.pid for stat in read_stats().values() if stat.parent == os.getpid()} - besides


@pytest.mark.usefixtures("modules")
def test_a_child_reads_the_gpus_and_ends_when_its_connection_is_closed() -> None:
    before = children(set())
    loop = SteppedLoop()
    poller = GpuPoller(loop, "made_up")
    (child,) = children(before)
    assert poller.poll() == []  # nothing was read yet, and `poll` does not wait
    first, second = ask_until(poller, loop)
    assert first == device(0, memory={child: GIB, 5: None}, shares={child: 0.5})
    assert second == device(1, memory=None)
    poller.close()
    assert os.waitpid(child, 0) == (child, 0)
    assert poller.poll() == [first, second]
    loop.close()


@pytest.mark.usefixtures("modules")
def test_without_nvml_there_is_no_usage_and_no_child_process() -> None:
    before = children(set())
    loop = SteppedLoop()
    poller = GpuPoller(loop, "no_nvml")
    (child,) = children(before)
    poller.poll()
    os.waitpid(child, 0)
    loop.turn()
    assert poller.poll() == []
    loop.close()


@pytest.mark.usefixtures("modules")
def test_a_hung_nvml_blocks_nothing(tmp_path: Path) -> None:
    before = children(set())
    os.mkfifo(tmp_path / "never")
    loop = SteppedLoop()
    poller = GpuPoller(loop, "hanging")
    (child,) = children(before)
    assert [poller.poll() for _ in range(100)] == [[]] * 100
    with (tmp_path / "never").open("wb"):
        pass  # it goes on
    assert ask_until(poller, loop) == [device(0)]  # and hangs again
    poller.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loop.close()


def test_devices_are_unchanged_after_they_were_sent_and_read() -> None:
    sent = device(0, memory={7: 5}, shares=None)
    assert parse_devices(json.dumps([to_dict(sent)]).encode()) == [sent]


class MadeUpError(Exception):
    """As NVML's."""

    def __init__(self, value: int) -> None:
        self.value = value


class MadeUpNvml:
    """Two devices: one that supports all values, and one that supports almost none."""

    NVMLError = MadeUpError
    NVML_ERROR_NOT_FOUND = 6

    def __init__(self, samples: Callable[[], list[SimpleNamespace]]) -> None:
        self._samples = samples

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:  # noqa: N802
        return ("GPU-0aaa", b"GPU-1aaa")[handle]

    def nvmlDeviceGetMemoryInfo(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=80 * GIB, used=10 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        self._refuse(handle)
        return SimpleNamespace(gpu=90)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        self._refuse(handle)
        return [SimpleNamespace(pid=7, usedGpuMemory=GIB)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        self._refuse(handle)
        return [SimpleNamespace(pid=8, usedGpuMemory=None)]

    def nvmlDeviceGetProcessUtilization(self, handle: int, _: int) -> list[SimpleNamespace]:  # noqa: N802
        self._refuse(handle)
        return self._samples()

    @staticmethod
    def _refuse(handle: int) -> None:
        if handle:
            raise MadeUpError(3)  # not supported


def test_values_that_a_device_does_not_support_are_left_out() -> None:
    nvml = MadeUpNvml(lambda: [SimpleNamespace(pid=7, smUtil=share) for share in (20, 40)])
    first, second = _Reader(nvml).read()
    assert first == device(0, memory={7: GIB, 8: None}, shares={7: 0.3})
    assert second == Device(1, "GPU-1aaa", 80 * GIB, 10 * GIB, None)


def test_a_device_without_recent_work_reports_zero_use() -> None:
    def no_samples() -> list[SimpleNamespace]:
        raise MadeUpError(MadeUpNvml.NVML_ERROR_NOT_FOUND)

    assert _Reader(MadeUpNvml(no_samples)).read()[0].shares == {}
