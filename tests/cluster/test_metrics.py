"""What a real pod uses, as the metrics API and as its kubelet say it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from cluster.conftest import Kubectl
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.metrics import Reading, Source
from drumline.engine.kubernetes.refusal import RefusedError

IMAGE = "python:local"
LONG_SECONDS = 90.0
SCRIPT = """
import time
held = bytearray(60 << 20)
while True:
    until = time.time() + 0.05
    while time.time() < until:
        pass
    time.sleep(0.2)
"""


class WithoutMetrics:
    """A cluster without the metrics API: else as it is."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.namespace = api.namespace

    async def raw_get(self, path: str, **params: str) -> Any:
        if path.startswith("/apis/metrics"):
            raise RefusedError("no such path", status=404)
        return await self._api.raw_get(path, **params)


async def until_read(source: Source, pods: dict[str, str]) -> Reading:
    """The first reading in which all is known that the source knows."""
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        for reading in await source.read(pods):
            if reading.memory_bytes and reading.cpus:  # of the first moments a kubelet says that it did nothing
                return reading
        await asyncio.sleep(1.0)
    raise AssertionError("nobody says what it uses")


def test_both_say_what_a_pod_uses(kubectl: Kubectl) -> None:
    container = {"name": "replica", "image": IMAGE, "command": ["python3", "-c", SCRIPT]}
    metadata = {"name": "burns", "labels": {"drumline.dev/run": "burns"}}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    kubectl("create", "-f", "-", given=json.dumps(pod))
    kubectl("wait", "pod/burns", "--for=condition=Ready", "--timeout=60s")
    (found,) = kubectl.items("pods")
    pods = {"burns": found["spec"]["nodeName"]}

    async def read() -> tuple[Reading, Reading]:
        async with open_api(namespace=kubectl.namespace) as api:
            without: Any = WithoutMetrics(api)
            selector = "drumline.dev/run=burns"
            return await until_read(Source(api, selector), pods), await until_read(Source(without, selector), pods)

    for reading in asyncio.run(read()):
        assert 60 << 20 <= (reading.memory_bytes or 0) < 200 << 20
        assert 0.02 < (reading.cpus or 0.0) < 1.0
        assert abs(reading.at - time.time()) < LONG_SECONDS
