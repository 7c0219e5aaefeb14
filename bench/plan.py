"""Plans of 100, 1,000 and 10,000 replicas: made, placed, bound and written.

Run as `python -m bench.plan` from the checkout. Seconds are CPU time, the least of several repetitions in one
run. `per replica` is the cost of a replica relative to one of 100 replicas: 1.0 means linear. `naive` is the same with
the cluster repeated in each replica's TF_CONFIG, which drumline has only once.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.figures import Figure, note
from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.load.engine import known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.plan.types import Shared
from drumline.spec.read import read_spec

SIZES = (100, 1_000, 10_000)
FORMS = ("shell", "json")
SPEC = """
project: digits
run: python train.py --layers {{ layers }} --lr {{ lr }}
parameters: {layers: 2, lr: 0.001}
port: 2222
roles: {chief: 1, worker: %d}
resources: {cpus: 2, memory: 4GiB}
"""

T = TypeVar("T")


class Figures(NamedTuple):
    """The costs of a gang of one size."""

    seconds: dict[str, float]
    written_bytes: dict[str, int]


def main() -> None:
    measured = {size: measure(size) for size in SIZES}
    few, *_, many = ((size, measured[size].seconds["all"] / size * 1e6) for size in SIZES)
    title, peer = f"a plan of {many[0]:,} replicas, each of them", f"each of {few[0]}"
    note(Figure(title, many[1], few[1], peer, None, "python -m bench.plan", "µs"))
    for title, index, form in (("seconds", 0, "14.4f"), ("bytes", 1, "14,")):
        print(f"{title:<12}" + "".join(f"{size:14,}" for size in SIZES) + "    per replica")
        for name in measured[SIZES[0]][index]:
            values = [measured[size][index][name] for size in SIZES]
            print(f"{name:<12}" + "".join(format(value, form) for value in values) + "    " + per_replica(values))
        print()


def measure(size: int) -> Figures:
    """Plan, place, bind and render a gang of so many replicas; return the costs."""
    spec = read_spec((SPEC % (size - 1)).encode(), "drumline.yml", known_spec_type()).spec
    engine = open_engine("local", Site(Path("/"), Path("/home/me"), 8))
    repetitions = max(5, 10_000 // size)
    seconds, written = {}, {}
    seconds["make"], plan = least(partial(plan_spec, spec, run="4"), repetitions)
    seconds["place"], placement = least(lambda: asyncio.run(engine.place(plan)), repetitions)
    seconds["bind"], launches = least(partial(bind, plan, placement), repetitions)
    for form in FORMS:
        seconds[form], text = least(partial(engine.render, plan, launches, form), repetitions)
        written[form] = len(text)
    seconds["all"] = sum(seconds.values())
    configs = [launch.env["TF_CONFIG"] for launch in launches]
    repeated = sum(len(config.text) for config in configs if isinstance(config, Shared))
    for form in FORMS:
        written[f"naive {form}"] = written[form] + repeated
    return Figures(seconds, written)


def least(call: Callable[[], T], repetitions: int) -> tuple[float, T]:
    """Return the shortest CPU time of several calls, and the result."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(repetitions):
        before = time.process_time()
        result = call()
        times.append(time.process_time() - before)
    gc.enable()
    return min(times), result


def per_replica(values: Sequence[float]) -> str:
    one = values[0] / SIZES[0]
    return " ".join(f"{value / size / one:6.2f}" for value, size in zip(values, SIZES, strict=True))


if __name__ == "__main__":
    main()
