"""Fifty hosts, each with a tiny replica: started, run, killed, and nothing is left on any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drumline.run.state import Phase
from hosts.world import World
from integration.local.runs import House, Run, wait_until

LONG_SECONDS = 900.0
NUMBER = 50


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(NUMBER, disk="64m", shared=True) as world:
        yield world


def test_fifty_hosts_start_a_line_and_are_killed_to_the_last(house: House, world: World) -> None:
    spec = f"run: echo on $(hostname); exec sleep 1000\nroles: {{worker: {NUMBER}}}\n"
    house.write_spec(f"{spec}engine: {{ssh: [{', '.join(world.names)}]}}\n")
    answer = house.run("train", "-d", seconds=LONG_SECONDS)  # they share the cores with other tests
    assert answer.code == 0, answer
    run = Run(house, answer.out.strip())
    run.wait_for(Phase.RUNNING, LONG_SECONDS)
    wait_until(lambda: all(run.log(f"worker.{n}") for n in range(NUMBER)), LONG_SECONDS)
    assert [run.log(f"worker.{n}") for n in range(NUMBER)] == [b"on %s\n" % name.encode() for name in world.names]
    wait_until(lambda: all(sleeping(world, name) for name in world.names), LONG_SECONDS)
    answer = house.run("kill", run.id, seconds=LONG_SECONDS)
    assert answer.code == 0, answer
    assert not any(sleeping(world, name) for name in world.names)
    assert run.state.phase is Phase.KILLED


def sleeping(world: World, name: str) -> bool:
    return any(each.argv[:1] == ("sleep",) for each in world.processes(name))
