"""Hosts with real sshd's: `make test-hosts`. A module that is content with three shares them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.world import World


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
