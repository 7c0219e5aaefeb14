"""What every engine promises of those who look whether a line gets on: pulses, sockets and stacks."""

from __future__ import annotations

from pathlib import Path

from contract.seat import Watcher, able, watch, worker
from contract.sites import LASTING, Deed, Site
from drumline.engine.abilities import Connected, Dumpable, Observable
from drumline.run.traces import STACKS, trace_dir


def take_stacks(watcher: Watcher, *, gently: bool) -> None:
    names = tuple(replica.id for replica in watcher.plan.replicas)
    watcher.loop.wait(able(watcher.engine, Dumpable).stacks(names, 0, gently=gently))


def test_everybody_who_goes_on_has_a_pulse_and_nobody_else(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=1), LASTING)
    assert list(watcher.loop.wait(able(watcher.engine, Observable).pulses())) == []
    watcher.start()
    watcher.until_started()
    first = {pulse.replica: pulse for pulse in watcher.loop.wait(able(watcher.engine, Observable).pulses())}
    assert sorted(first) == [worker(0), worker(1)]
    assert not any(pulse.is_stopped or pulse.attempt or pulse.incarnation for pulse in first.values())
    site.open(1)
    watcher.until(watcher.ends)
    (last,) = watcher.loop.wait(able(watcher.engine, Observable).pulses())
    assert last.replica == worker(1)
    assert last.cpu_seconds >= first[worker(1)].cpu_seconds >= 0
    watcher.stop()
    watcher.until_ended()
    assert list(watcher.loop.wait(able(watcher.engine, Observable).pulses())) == []


def test_everybody_who_goes_on_can_be_asked_for_its_sockets(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, LASTING, LASTING)
    able(watcher.engine, Connected)
    watcher.start()
    watcher.until_started()
    assert sorted(each.replica for each in watcher.loop.wait(able(watcher.engine, Connected).sockets())) == [
        worker(0),
        worker(1),
    ]
    watcher.stop()
    watcher.until_ended()
    assert list(watcher.loop.wait(able(watcher.engine, Connected).sockets())) == []


def test_a_gentle_look_at_stacks_harms_nobody(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=1, code=3), LASTING)
    able(watcher.engine, Dumpable)
    watcher.start()
    watcher.until_started()
    take_stacks(watcher, gently=True)
    watcher.let_somebody_pass()
    assert watcher.ends() == []
    site.open(1)
    watcher.until(watcher.ends)
    assert watcher.exits()[worker(0)].code == 3
    watcher.stop()
    watcher.until_ended()
    assert sorted(watcher.exits()) == [worker(0), worker(1)]


def test_stacks_are_taken_before_an_end_and_each_end_is_told_once(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, LASTING, LASTING)
    able(watcher.engine, Dumpable)
    watcher.start()
    watcher.until_started()
    take_stacks(watcher, gently=False)
    watcher.stop()
    watcher.until_ended()
    assert sorted(end.replica for end in watcher.ends()) == [worker(0), worker(1)]
    take_stacks(watcher, gently=False)  # of nobody
    saved = [watcher.run_dir / trace_dir(replica.id, 0) / STACKS for replica in watcher.plan.replicas]
    # py-spy says `Thread`, and Python itself of one that has no others `Current thread`.
    assert all("thread" in path.read_text().lower() for path in saved if path.exists())
