"""The only module that imports NVML, NVIDIA's library about its GPUs; loaded in a child, see `gpu_poller.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from drumline.engine.local.gpu_usage import Device

CONTROL = "/dev/nvidiactl"  # exists only where NVIDIA's driver is loaded
_RECENT_MICROSECONDS = 2_500_000  # NVML samples each process about once a second


def has_gpus() -> bool:
    """Return whether this machine has NVIDIA's driver."""
    return os.path.exists(CONTROL)  # noqa: PTH110


def open_reader() -> Callable[[], list[Device]]:
    """Open NVML and return a function that reads all devices; raise what NVML raises if it cannot be opened."""
    import pynvml  # noqa: PLC0415 - 35 MB and a thread of its own

    pynvml.nvmlInit()
    return _Reader(pynvml).read


class _Reader:
    """Reads all devices."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        self._uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in self._handles]

    def read(self) -> list[Device]:
        """Return the current state of every device; leave out those with an error."""
        found = []
        for index, handle in enumerate(self._handles):
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
            if memory is None:
                continue
            rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
            device = Device(
                index,
                self._uuids[index],
                total_bytes=memory.total,
                used_bytes=memory.used,
                busy=None if rates is None else rates.gpu / 100,
                memory=self._memory(handle),
                shares=self._shares(handle),
            )
            found.append(device)
        return found

    def _memory(self, handle: object) -> dict[int, int | None] | None:
        computing = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if computing is None:
            return None
        drawing = self._ask("nvmlDeviceGetGraphicsRunningProcesses", handle) or []
        return {process.pid: process.usedGpuMemory for process in (*drawing, *computing)}

    def _shares(self, handle: object) -> dict[int, float] | None:
        """Return the recent share of the device's time for each process; None if the device does not report it."""
        since = time.time_ns() // 1000 - _RECENT_MICROSECONDS
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError as error:
            # Not found: no process has used the device since then.
            return {} if error.value == self._nvml.NVML_ERROR_NOT_FOUND else None
        by_process: dict[int, list[int]] = {}
        for sample in samples:
            by_process.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: sum(shares) / len(shares) / 100 for pid, shares in by_process.items()}

    def _ask(self, question: str, handle: object) -> Any | None:
        try:
            return getattr(self._nvml, question)(handle)
        except self._nvml.NVMLError:
            return None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
