"""The CPU and memory that pods use: from the metrics API, else from the kubelets of their nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from drumline.engine.kubernetes.answer_fields import integer, mapping, mappings, name, seconds_of
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.paths import path_of
from drumline.engine.kubernetes.pod_status import main_container
from drumline.errors import DrumlineError
from drumline.record import Record
from drumline.spec.quantity import parse_quantity

_ANSWER_SECONDS = 10.0
_MOST_CPUS = 1e6
_MOST_MEMORY_BYTES = 1 << 60


class UsageSample(Record):
    """The resources that a pod's main container uses at a time; None is unknown."""

    pod: str
    at: float  # UTC
    cpus: float | None = None  # how many cores it keeps busy
    cpu_seconds: float | None = None  # since its start
    memory_bytes: int | None = None


class MetricsSource:
    """Reads usage from the source that answered last, else from the other."""

    def __init__(self, api: Api, selector: str) -> None:
        self._api = api
        self._selector = selector
        self._asks_kubelets = False

    async def read(self, pods: Mapping[str, str]) -> list[UsageSample]:
        """Return the usage of these pods, a mapping from pod to node; empty if no source answers."""
        for _ in range(2):
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await (self._ask_kubelets(pods) if self._asks_kubelets else self._ask_api(pods))
            except (DrumlineError, TimeoutError):  # missing, forbidden or broken
                self._asks_kubelets = not self._asks_kubelets
        return []

    async def _ask_api(self, pods: Collection[str]) -> list[UsageSample]:
        path = path_of("PodMetrics", self._api.namespace)
        answer = await self._api.raw_get(path, labelSelector=self._selector)
        return [each for each in read_metrics(answer) if each.pod in pods]

    async def _ask_kubelets(self, pods: Mapping[str, str]) -> list[UsageSample]:
        found: list[UsageSample] = []
        for node in sorted(set(pods.values())):
            path = f"{path_of('Node', '', name=node)}/proxy/stats/summary"
            answer = await self._api.raw_get(path, only_cpu_and_memory="true")
            found += (each for each in read_summary(answer, self._api.namespace) if pods.get(each.pod) == node)
        return found


def read_metrics(answer: Mapping[str, Any]) -> Iterator[UsageSample]:
    """Yield the samples in an answer of the metrics API."""
    for item in mappings(answer.get("items")):
        usage = mapping(_main(item).get("usage"))
        pod_name, at = name(mapping(item.get("metadata")).get("name")), seconds_of(item.get("timestamp"))
        if pod_name and at is not None:
            cpus, memory = parse_quantity(usage.get("cpu")), parse_quantity(usage.get("memory"))
            yield UsageSample(
                pod_name, at, _cpus(cpus), memory_bytes=_memory(None if memory is None else round(memory))
            )


def read_summary(answer: Mapping[str, Any], namespace: str) -> Iterator[UsageSample]:
    """Yield the samples of a namespace in an answer of a kubelet."""
    for pod in mappings(answer.get("pods")):
        about = mapping(pod.get("podRef"))
        if about.get("namespace") != namespace:
            continue
        usage = _main(pod)
        cpu, memory = mapping(usage.get("cpu")), mapping(usage.get("memory"))
        pod_name, at = name(about.get("name")), seconds_of(cpu.get("time")) or seconds_of(memory.get("time"))
        if pod_name and at is not None:
            nanos, total_nanos = integer(cpu.get("usageNanoCores")), integer(cpu.get("usageCoreNanoSeconds"))
            yield UsageSample(
                pod_name,
                at,
                _cpus(None if nanos is None else nanos / 1e9),
                None if total_nanos is None or total_nanos < 0 else total_nanos / 1e9,
                _memory(integer(memory.get("workingSetBytes"))),
            )


def _main(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of the container that runs the replica's command."""
    containers = {str(each.get("name")): each for each in mappings(item.get("containers"))}
    return containers.get(main_container({"spec": {"containers": [{"name": each} for each in containers]}}), {})


def _cpus(cpus: float | None) -> float | None:
    return cpus if cpus is not None and 0.0 <= cpus <= _MOST_CPUS else None


def _memory(amount_bytes: int | None) -> int | None:
    return amount_bytes if amount_bytes is not None and 0 <= amount_bytes <= _MOST_MEMORY_BYTES else None
