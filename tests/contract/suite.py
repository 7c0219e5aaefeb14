"""The complete tests of the contract, for every engine.

An engine that needs only this machine is one line in `scaffold.testbeds.TEST_BEDS`. One that needs hosts or a
cluster has a module there, with a fixture `testbed` and `globals().update(contract_tests())`. Either may list
exceptions, by the name of a module, of a test, or of a test with its parameters, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scaffold.testbeds import EngineTestBed
from scaffold.waiting import wait_until

Exceptions = Mapping[str, str]  # tests that are not run, and the reason

# The modules that collect the contract for engines with a separate environment.
ELSEWHERE = {
    "ssh": "hosts.test_contract",
    "kubernetes": "cluster.test_contract",
    "jobset": "cluster.test_operators",
}
UNTRIED: Exceptions = {
    "tfjob": "all replicas of a role have one command, and the contract's differ; cluster/test_engine.py tries it",
}


def contract_tests(pattern: str = "test_*") -> dict[str, Callable[..., Any]]:
    """Return every test of the contract by its name; only those of modules with names that match the pattern."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(Path(__file__).parent.glob(f"{pattern}.py")):
        module = import_module(f"contract.{path.stem}")
        own = module_tests(module)
        assert not own.keys() & found.keys(), "two tests of the contract have one name, and one of them would not run"
        found |= own
    return found


def skip_exception(request: pytest.FixtureRequest, exceptions: Exceptions) -> None:
    """Skip a test that is one of these exceptions, with its reason."""
    for name in (request.function.__module__.rpartition(".")[2], request.function.__name__, request.node.name):
        if name in exceptions:
            pytest.skip(exceptions[name])


def assert_none_left(testbed: EngineTestBed, describe_left: Callable[[], str] | None = None) -> Iterator[EngineTestBed]:
    """Yield a testbed; after the test, assert that no process of it is left."""
    try:
        yield testbed
        try:
            wait_until(lambda: not testbed.left())
        except AssertionError:
            raise AssertionError(f"left: {describe_left() if describe_left else testbed.left()}") from None
    finally:
        testbed.close()


def module_tests(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the tests that a module defines, by their names."""
    own = {name: each for name, each in vars(module).items() if name.startswith("test_") and callable(each)}
    return {name: each for name, each in own.items() if each.__module__ == module.__name__}
