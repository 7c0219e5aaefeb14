"""Each spec renders to the files beside it, one for each form."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drumline.engine.protocol import Capacity, Site
from drumline.engine.registry import open_engine
from drumline.load.engine import all_spec_problems, known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.spec.read import read_spec

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/drumline.yml"))
FORMS = {"shell": "local.sh", "json": "local.json", "yaml": "local.yaml"}

GPUS = {"issue": "01234567", "gpus": "012345"}


def site(case: str) -> Site:
    """Return a site that does not depend on the machine; `/` exists on every machine."""
    capacity = Capacity(cpus=8, memory_bytes=64 << 30, gpus=tuple(GPUS.get(case, "")))
    return Site(directory=Path("/"), home=Path("/home/me/.local/share/drumline"), cores=8, capacity=capacity)


def render(case: str, form: str) -> str:
    reading = read_spec((HERE / case / "drumline.yml").read_bytes(), "drumline.yml", known_spec_type())
    assert not reading.problems
    assert not [each for each in all_spec_problems(reading.spec) if each.fatal]
    engine = open_engine("local", site(case))
    plan = plan_spec(reading.spec, run="4")
    assert all(replica.port for replica in plan.replicas), "a port that is chosen would differ each time"
    return engine.render(plan, bind(plan, asyncio.run(engine.place(plan))), form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_a_spec_renders_to_the_file_beside_it(case: str, form: str, *, update: bool) -> None:
    expected = HERE / case / FORMS[form]
    rendered = render(case, form)
    if update:
        expected.write_text(rendered, "utf-8")
    assert rendered == expected.read_text("utf-8")


def test_every_file_belongs_to_a_case() -> None:
    beside = {path.name for case in CASES for path in (HERE / case).iterdir()}
    assert beside == {"drumline.yml", *FORMS.values()}
