"""What pods use, as the cluster's metrics API says, else the kubelets of their nodes; else nothing is known."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.pods import main_container, seconds_of
from drumline.engine.kubernetes.quantity import parse_quantity
from drumline.errors import DrumlineError

_METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces"
_PATIENCE_SECONDS = 10.0


class Reading(NamedTuple):
    """What a pod's main container uses at a moment; None is not known."""

    pod: str
    at: float  # UTC
    cpus: float | None = None  # how many cores it keeps busy
    cpu_seconds: float | None = None  # since its start
    memory_bytes: int | None = None


class Source:
    """Asks whoever knows; the one that answered last is asked first."""

    def __init__(self, api: Api, selector: str) -> None:
        self._api = api
        self._selector = selector
        self._asks_kubelets = False

    async def read(self, pods: Mapping[str, str]) -> list[Reading]:
        """What these pods use, each with the name of its node; nothing where nobody says."""
        for _ in range(2):
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    return await (self._ask_kubelets(pods) if self._asks_kubelets else self._ask_api(pods))
            except (DrumlineError, TimeoutError):  # not there, not allowed, or out of order
                self._asks_kubelets = not self._asks_kubelets
        return []

    async def _ask_api(self, pods: Collection[str]) -> list[Reading]:
        path = f"{_METRICS}/{self._api.namespace}/pods"
        answer = await self._api.raw_get(path, labelSelector=self._selector)
        return [each for each in read_metrics(answer) if each.pod in pods]

    async def _ask_kubelets(self, pods: Mapping[str, str]) -> list[Reading]:
        found: list[Reading] = []
        for node in sorted(set(pods.values())):
            path = f"/api/v1/nodes/{node}/proxy/stats/summary"
            answer = await self._api.raw_get(path, only_cpu_and_memory="true")
            found += (each for each in read_summary(answer, self._api.namespace) if pods.get(each.pod) == node)
        return found


def read_metrics(answer: Mapping[str, Any]) -> Iterator[Reading]:
    """What the metrics API says of pods."""
    for item in answer.get("items") or ():
        containers = {str(each.get("name")): each.get("usage") or {} for each in item.get("containers") or ()}
        usage = containers.get(main_container({"spec": {"containers": [{"name": name} for name in containers]}}), {})
        at, memory = seconds_of(item.get("timestamp")), parse_quantity(usage.get("memory"))
        if at is not None:
            used = None if memory is None else round(memory)
            yield Reading(str(item["metadata"]["name"]), at, parse_quantity(usage.get("cpu")), memory_bytes=used)


def read_summary(answer: Mapping[str, Any], namespace: str) -> Iterator[Reading]:
    """What a kubelet says of the pods of a namespace."""
    for pod in answer.get("pods") or ():
        about = pod.get("podRef") or {}
        if about.get("namespace") != namespace:
            continue
        containers = {str(each.get("name")): each for each in pod.get("containers") or ()}
        usage = containers.get(main_container({"spec": {"containers": [{"name": name} for name in containers]}}), {})
        cpu, memory = usage.get("cpu") or {}, usage.get("memory") or {}
        at = seconds_of(cpu.get("time")) or seconds_of(memory.get("time"))
        if at is not None:
            yield Reading(
                str(about.get("name")),
                at,
                _scaled(cpu.get("usageNanoCores")),
                _scaled(cpu.get("usageCoreNanoSeconds")),
                memory.get("workingSetBytes"),
            )


def _scaled(nanos: int | None) -> float | None:
    return None if nanos is None else nanos / 1e9
