"""What every engine promises before anything starts: place, render, objections, close."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from contract.seat import watch, worker, workers
from contract.sites import Deed, Site
from drumline.errors import EngineError
from drumline.plan.bind import bind


def test_every_replica_has_an_address_of_its_own(site: Site, tmp_path: Path) -> None:
    plan = workers(site, *(Deed() for _ in range(5)))
    engine = site.make_engine()
    placement = asyncio.run(engine.place(plan))
    engine.close()
    assert list(placement) == [replica.id for replica in plan.replicas]
    assert len({place.address for place in placement.values()}) == 5


def test_an_attempt_under_way_is_placed_where_it_is(site: Site, tmp_path: Path) -> None:
    plan = workers(site, *(Deed() for _ in range(5)))
    first, second = site.make_engine(), site.make_engine()
    addresses = [place.address for place in asyncio.run(first.place(plan)).values()]
    first.close()
    kept = asyncio.run(second.place(plan, keep=addresses))
    assert [place.address for place in kept.values()] == addresses
    assert asyncio.run(second.place(plan, keep=addresses)) == kept


def test_what_is_rendered_is_what_starts(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, *[Deed(("$DRUMLINE_ROLE $DRUMLINE_INDEX of $DRUMLINE_RUN", "$TF_CONFIG"))] * 2)
    launches = watcher.launches()
    rendered = site.rendered(watcher.engine, watcher.plan, launches)
    watcher.loop.wait(watcher.engine.start(launches))
    watcher.until_ended()
    for replica in watcher.plan.replicas:
        argv, env = rendered[replica.id]
        assert argv == replica.argv
        assert watcher.log(replica.id) == f"worker {replica.id.index} of 4\n{env.get('TF_CONFIG', '$TF_CONFIG')}\n"


def test_an_engine_writes_every_form_that_it_lists_and_each_the_same_twice(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed())
    launches = watcher.launches()
    for form in watcher.engine.capabilities.forms:
        text = watcher.engine.render(watcher.plan, launches, form)
        assert text.endswith("\n")
        assert watcher.engine.render(watcher.plan, launches, form) == text
    watcher.engine.close()


def test_what_an_engine_objects_to_it_does_not_start(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(), Deed())
    before = _descriptors()
    launches = watcher.launches()
    assert list(watcher.engine.objections(launches)) == []
    first, second = launches
    launches = (first, second.replace(replica=second.replica.replace(argv=site.refused)))
    (objection,) = watcher.engine.objections(launches)
    assert "worker.1" in objection
    with pytest.raises(EngineError, match=r"worker\.1"):
        watcher.loop.wait(watcher.engine.start(launches))
    watcher.stop()
    watcher.until_ended()
    assert not watcher.starts()
    assert not any(end.exit.seen for end in watcher.ends())
    site.rest(watcher.engine)
    watcher.until(lambda: _descriptors() <= before)


def test_a_line_that_was_only_looked_at_holds_nothing(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, *[Deed()] * 5)
    before = _descriptors()
    watcher.launches()
    watcher.engine.close()
    watcher.engine.close()
    assert _descriptors() <= before


def test_a_line_that_has_ended_holds_nothing(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, *[Deed()] * 5)
    before = _descriptors()
    watcher.start()
    watcher.until_ended()
    site.rest(watcher.engine)
    watcher.until(lambda: _descriptors() <= before)


def test_nothing_is_started_or_stopped_before_somebody_watches(site: Site, tmp_path: Path) -> None:
    plan = workers(site, Deed())
    engine = site.make_engine()
    launches = bind(plan, asyncio.run(engine.place(plan)))
    with pytest.raises(AssertionError, match="watched before"):
        asyncio.run(engine.start(launches))
    with pytest.raises(AssertionError, match="watched before"):
        asyncio.run(engine.stop([worker(0)], 0, grace_seconds=1))
    engine.close()


def _descriptors() -> set[tuple[str, str]]:
    """What this process has open; what an earlier test left to the garbage collector may go at any time."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that this very look had open
            found.add((link.name, str(link.readlink())))
    return found
