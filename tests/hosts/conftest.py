"""Hosts with real sshd's: `make test-hosts`. A module that is content with three shares them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.world import World
from integration.local.runs import House


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.exit("hosts with addresses of their own need root", returncode=2)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Three hosts that share a folder, for a whole module: whoever breaks something there mends it."""
    with World(3, shared=True) as world:
        yield world


@pytest.fixture
def reached(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """The same, and this process reaches them, from a folder and with a home of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    return world


@pytest.fixture
def house(world: World, tmp_path: Path) -> Iterator[House]:
    """A home and a project from which the hosts are reached; when the test has ended, nothing runs here or there."""
    made = House(tmp_path / "house")
    made.env |= world.env
    try:
        yield made
        made.leave()
        for name in world.names:
            world.wait_idle(name)
    finally:
        made.clear()
        for name in world.names:
            world.link(name, up=True)
