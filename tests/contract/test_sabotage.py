"""What every engine promises whose replicas can be hurt: it looks as if it came from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.seat import Watcher, able, watch, worker
from contract.sites import LASTING, Deed, Site
from drumline.engine.abilities import Sabotable, Saboteur
from drumline.errors import EngineError
from drumline.plan.types import ReplicaId
from drumline.run.drill import Harm
from drumline.run.event import Exit
from drumline.run.traces import trace_dir


def saboteur_of(site: Site) -> Saboteur:
    return able(site.make_engine(), Sabotable).saboteur()


def traces(watcher: Watcher, replica: ReplicaId) -> Path:
    return watcher.run_dir / trace_dir(replica, 0)


@pytest.mark.parametrize(("harm", "exit_"), [(Harm.KILL, Exit(signal=9)), (Harm.TERM, Exit(signal=15))])
def test_who_is_killed_or_asked_to_leave_is_told_to_have_ended_so(
    site: Site, tmp_path: Path, harm: Harm, exit_: Exit
) -> None:
    saboteur = saboteur_of(site)
    watcher = watch(site, tmp_path, LASTING, LASTING)
    watcher.start()
    watcher.until_started()
    saboteur.hurt(traces(watcher, worker(1)), worker(1), harm)
    watcher.until(watcher.ends)
    assert watcher.exits() == {worker(1): exit_}
    with pytest.raises(EngineError, match="has no process"):
        saboteur.hurt(traces(watcher, worker(1)), worker(1), harm)
    saboteur.heal(traces(watcher, worker(1)), worker(1), harm)
    watcher.stop()
    watcher.until_ended()


def test_who_is_paused_goes_on_when_it_is_healed(site: Site, tmp_path: Path) -> None:
    saboteur = saboteur_of(site)
    watcher = watch(site, tmp_path, Deed(until=1), Deed(until=1))
    watcher.start()
    watcher.until_started()
    saboteur.hurt(traces(watcher, worker(1)), worker(1), Harm.PAUSE)
    site.open(1)
    watcher.until(watcher.ends)
    assert watcher.exits() == {worker(0): Exit(0)}
    saboteur.heal(traces(watcher, worker(1)), worker(1), Harm.PAUSE)
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(0), worker(1): Exit(0)}


def test_nobody_is_hurt_who_has_not_begun(site: Site, tmp_path: Path) -> None:
    saboteur = saboteur_of(site)
    with pytest.raises(EngineError, match="has no process"):
        saboteur.hurt(tmp_path, worker(0), Harm.KILL)


def test_a_network_that_others_use_is_not_cut(site: Site, tmp_path: Path) -> None:
    saboteur = saboteur_of(site)
    plan = watch(site, tmp_path, LASTING).plan
    assert "network" in (saboteur.objection(plan, Harm.CUT) or "")
    assert saboteur.objection(plan, Harm.KILL) is None
