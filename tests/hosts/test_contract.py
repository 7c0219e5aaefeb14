"""The contract that every engine keeps, on real hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.sites import Site
from contract.suite import Exceptions, contract_tests, excuse, occupy
from hosts.site import SshSite
from hosts.world import World

EXCEPTIONS: Exceptions = {
    "test_build": "environments are built on the hosts, and none is there beforehand; test_output.py tries it",
    "test_serve": "TensorBoard runs on this machine, where the output is not",
    "test_a_line_that_was_only_looked_at_holds_nothing": "the connections to the hosts are descriptors",
}

globals().update(contract_tests())


@pytest.fixture
def site(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Site]:
    """A place to try the engine."""
    excuse(request, EXCEPTIONS)
    yield from occupy(SshSite(tmp_path, world))
