"""The contract of all engines, on real hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.suite import Exceptions, assert_none_left, contract_tests, skip_exception
from hosts.host_cluster import HostCluster
from hosts.testbed import SshTestBed
from scaffold.testbeds import EngineTestBed

EXCEPTIONS: Exceptions = {
    "test_build": "environments are built on the hosts, and none is there beforehand; test_output.py tries it",
    "test_serve": "TensorBoard runs on this machine, where the output is not",
    "test_a_gang_that_was_only_checked_claims_nothing": "the connections to the hosts are descriptors",
}

globals().update(contract_tests())


@pytest.fixture
def testbed(request: pytest.FixtureRequest, host_cluster: HostCluster, tmp_path: Path) -> Iterator[EngineTestBed]:
    """Yield a testbed of the engine."""
    skip_exception(request, EXCEPTIONS)
    yield from assert_none_left(SshTestBed(tmp_path, host_cluster))
