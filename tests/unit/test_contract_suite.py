"""Every test of the contract runs on every engine, or is an exception that gives its reason."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from contract.suite import ELSEWHERE, UNTRIED, Exceptions, contract_tests
from drumline.engine.registry import engine_names
from scaffold.testbeds import EXCEPTIONS, TEST_BEDS


def unknown_exceptions(exceptions: Exceptions) -> list[str]:
    """The exceptions that name neither a module of the contract nor a test of it."""
    tests = contract_tests()
    known = tests.keys() | {each.__module__.rpartition(".")[2] for each in tests.values()}
    return [name for name in exceptions if name.partition("[")[0] not in known]


def test_every_engine_is_tried_somewhere() -> None:
    assert set(engine_names()) <= TEST_BEDS.keys() | ELSEWHERE.keys() | UNTRIED.keys()


def test_every_test_of_the_contract_asks_for_the_site_which_knows_the_exceptions() -> None:
    tests = contract_tests()
    assert tests
    assert [name for name, test in tests.items() if "testbed" not in inspect.signature(test).parameters] == []


@pytest.mark.parametrize("module", ELSEWHERE.values(), ids=ELSEWHERE)
def test_an_engine_with_a_world_of_its_own_collects_all_of_the_contract(module: str) -> None:
    there = vars(import_module(module))
    assert {name for name, test in contract_tests().items() if there.get(name) is not test} == set()
    assert unknown_exceptions(there["EXCEPTIONS"]) == []


def test_the_exceptions_of_the_sites_here_are_tests_of_the_contract() -> None:
    assert EXCEPTIONS.keys() <= TEST_BEDS.keys()
    assert [name for each in EXCEPTIONS.values() for name in unknown_exceptions(each)] == []
