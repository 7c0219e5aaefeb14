"""Each spec below `cluster` renders to the objects in the files beside it, for every engine in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.engine.kubernetes.manifests import objects, render
from drumline.engine.kubernetes.place import place
from drumline.engine.kubernetes.plan_options import cluster_of, with_cluster
from drumline.engine.kubernetes.validate import find_problems
from drumline.load.engine import all_spec_problems, known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.spec.read import read_spec

HERE = Path(__file__).parent / "cluster"
CASES: dict[str, tuple[str, ...]] = {
    path.parent.name: ("kubernetes", "jobset", "tfjob") for path in sorted(HERE.glob("*/drumline.yml"))
}
# A TFJob cannot express another framework, nor replicas of a role that differ.
CASES |= {"torch": ("kubernetes", "jobset"), "indexed": ("kubernetes", "jobset")}


class PackedProject(NamedTuple):
    """A packed project, in two parts."""

    contents: tuple[Mapping[str, bytes], ...] = ({"ready.sh": b"exit 0\n"}, {"project-000": b"\x1f\x8b"})


def rendered(case: str, engine: str) -> str:
    reading = read_spec((HERE / case / "drumline.yml").read_bytes(), "drumline.yml", known_spec_type())
    assert not reading.problems
    assert not [each for each in all_spec_problems(reading.spec) if each.fatal]
    plan = plan_spec(reading.spec, run="4", on=engine)
    plan = with_cluster(plan, cluster_of(plan).replace(user="me"))
    launches = bind(plan, place(plan))
    assert not list(find_problems(plan, launches))
    return render(objects(plan, launches, PackedProject().contents), "yaml")


@pytest.mark.parametrize(("case", "engine"), [(case, engine) for case, engines in CASES.items() for engine in engines])
def test_a_spec_renders_to_the_objects_beside_it(case: str, engine: str, *, update: bool) -> None:
    expected = HERE / case / f"{engine}.yaml"
    text = rendered(case, engine)
    if update:
        expected.write_text(text, "utf-8")
    assert text == expected.read_text("utf-8")


def test_every_file_belongs_to_a_case() -> None:
    beside = {path.relative_to(HERE).as_posix() for path in HERE.glob("*/*")}
    own = {f"{case}/{engine}.yaml" for case, engines in CASES.items() for engine in engines}
    assert beside == own | {f"{case}/drumline.yml" for case in CASES}
