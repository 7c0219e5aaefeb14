"""The time to submit a run to a cluster: by drumline, and by `kubectl apply` of the same objects.

Run as `scripts/cluster/run .venv/bin/python -m bench.submit [REPLICAS...]` from the checkout, or with KUBECONFIG. The
server checks every object and keeps none (`dryRun: All`), so that both submit the same, and no pod
is created. The numbers are medians of interleaved repetitions, as ratios to kubectl's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import Figure, note
from drumline.engine.kubernetes.api import open_api
from drumline.engine.kubernetes.manifests import objects
from drumline.engine.kubernetes.paths import path_of
from drumline.engine.kubernetes.place import place
from drumline.load.engine import known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.spec.read import read_spec

REPLICAS = (10, 100, 1000)
REPETITIONS = {10: 5, 100: 3, 1000: 1}
SPEC = "project: bench\nrun: python train.py\nroles: {{worker: {count}}}\nengine: {{kubernetes: {{image: python}}}}\n"


def main() -> None:
    print(f"{'replicas':>9}{'objects':>9}{'kubectl':>10}{'drumline':>10}{'ratio':>8}")
    for count in map(int, sys.argv[1:] or REPLICAS):
        made = rendered(count)
        pairs = [(by_kubectl(made), by_drumline(made)) for _ in range(REPETITIONS.get(count, 3))]
        kubectl, ours = (statistics.median(each) for each in zip(*pairs, strict=True))
        print(f"{count:>9}{len(made):>9}{kubectl:>10.2f}{ours:>10.2f}{ours / kubectl:>8.2f}", flush=True)
        title, command = f"{count:,} replicas submitted to a cluster", "python -m bench.submit"
        note(Figure(title, ours, kubectl, "kubectl", None, command))


def rendered(count: int) -> list[dict[str, Any]]:
    plan = plan_spec(
        read_spec(SPEC.format(count=count).encode(), "bench", known_spec_type()).spec, run="1", on="kubernetes"
    )
    return objects(plan, bind(plan, place(plan)))


def by_kubectl(made: list[dict[str, Any]]) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "objects.json")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
        began = time.monotonic()
        subprocess.run(["kubectl", "apply", "--dry-run=server", "-f", file], stdout=subprocess.DEVNULL, check=True)
        return time.monotonic() - began


def by_drumline(made: list[dict[str, Any]]) -> float:
    async def submit() -> None:
        async with open_api() as api:
            paths = [path_of(each["kind"], api.namespace, version=each["apiVersion"]) for each in made]
            asked = zip(paths, made, strict=True)
            dry = {"dryRun": "All"}
            await asyncio.gather(*(api.requests.send("POST", path, "", params=dry, body=each) for path, each in asked))

    began = time.monotonic()
    asyncio.run(submit())
    return time.monotonic() - began


if __name__ == "__main__":
    main()
