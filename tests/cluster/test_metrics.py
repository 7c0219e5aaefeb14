"""The usage of a real pod, from the metrics API and from its kubelet."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from cluster.conftest import Kubectl
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.api_errors import RefusedError
from drumline.engine.kubernetes.metrics import MetricsSource, UsageSample

IMAGE = "python:local"
LONG_SECONDS = 900.0
OLD_SECONDS = 120.0
HELD_BYTES = 60 << 20
LEAST_CPUS = 0.02
SCRIPT = f"""
import time
held = bytearray({HELD_BYTES})
while True:
    until = time.time() + 0.05
    while time.time() < until:
        pass
    time.sleep(0.2)
"""


class WithoutMetrics:
    """A cluster without the metrics API, otherwise unchanged."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.namespace = api.namespace

    async def raw_get(self, path: str, **params: str) -> Any:
        if path.startswith("/apis/metrics"):
            raise RefusedError("no such path", status=404)
        return await self._api.raw_get(path, **params)


async def until_read(source: MetricsSource, pods: dict[str, str]) -> UsageSample:
    """Return the first reading with the script's usage; a kubelet first reports readings without usage."""
    last: UsageSample | None = None
    try:
        async with asyncio.timeout(LONG_SECONDS):
            while True:
                for reading in await source.read(pods):
                    last = reading
                    if (reading.memory_bytes or 0) >= HELD_BYTES and (reading.cpus or 0.0) > LEAST_CPUS:
                        assert abs(reading.at - time.time()) < OLD_SECONDS
                        return reading
                await asyncio.sleep(0.5)  # sources do not notify of new readings
    except TimeoutError:
        raise AssertionError(f"no reading has its usage; the last reading: {last}") from None


def test_the_metrics_api_and_the_kubelet_report_the_usage_of_a_pod(kubectl: Kubectl) -> None:
    # Without a CPU request, a pod gets no CPU time while others are busy.
    asks = {"requests": {"cpu": "500m"}}
    container = {"name": "replica", "image": IMAGE, "command": ["python3", "-c", SCRIPT], "resources": asks}
    metadata = {"name": "burns", "labels": {"drumline.dev/run": "burns"}}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    kubectl("create", "-f", "-", given=json.dumps(pod))
    kubectl("wait", "pod/burns", "--for=condition=Ready", f"--timeout={LONG_SECONDS:.0f}s")
    (found,) = kubectl.items("pods")
    pods = {"burns": found["spec"]["nodeName"]}

    async def read() -> tuple[UsageSample, UsageSample]:
        async with open_api(namespace=kubectl.namespace) as api:
            without: Any = WithoutMetrics(api)
            selector = "drumline.dev/run=burns"
            return await until_read(MetricsSource(api, selector), pods), await until_read(
                MetricsSource(without, selector), pods
            )

    for reading in asyncio.run(read()):
        assert HELD_BYTES <= (reading.memory_bytes or 0) < 200 << 20
        assert LEAST_CPUS < (reading.cpus or 0.0) < 1.0
