"""A fork renews generators of `random` that the system seeded, and keeps those that a package seeded."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from drumline.runtime import randomness


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ...]]:
    """Return the state of `random` before imports, and restore it later; hide all generators but those of the test."""
    state = random.getstate()
    others, get_objects = gc.get_objects(), gc.get_objects
    known = {id(each) for each in others}
    monkeypatch.setattr(gc, "get_objects", lambda: [each for each in get_objects() if id(each) not in known])
    yield randomness.seed_random()
    random.setstate(state)


@pytest.mark.parametrize("constant", [0, 1, 7, 2**40, -5, 2**500, "text", "x" * 400, b"bytes", 3.5])
def test_a_generator_with_a_constant_seed_is_left_as_it_is(before: tuple[Any, ...], constant: Any) -> None:
    generator = random.Random(constant)
    randomness.reseed(randomness.find_generators(before))
    assert generator.random() == random.Random(constant).random()


def test_a_generator_that_the_system_seeded_is_renewed_each_time(before: tuple[Any, ...]) -> None:
    generators = [random.Random() for _ in range(20)]
    sources = randomness.find_generators(before)
    assert sources.problem == ""
    states = set()
    for _ in range(3):
        randomness.reseed(sources)
        states |= {generator.getstate() for generator in generators}
    assert len(states) == 60


@pytest.mark.parametrize("draws", [1, 2, 623, 624, 625, 9_000])
@pytest.mark.parametrize("constant", [0, 2**500, "text"])
def test_a_generator_with_a_constant_seed_is_left_as_it_is_after_draws(
    before: tuple[Any, ...], constant: Any, draws: int
) -> None:
    generator, same = random.Random(constant), random.Random(constant)
    for _ in range(draws):
        generator.getrandbits(32)
        same.getrandbits(32)
    sources = randomness.find_generators(before)
    assert sources.problem == ""
    randomness.reseed(sources)
    assert generator.getstate() == same.getstate()


@pytest.mark.parametrize("draws", [1, 624, 625, 9_000])
def test_a_generator_that_the_system_seeded_is_renewed_after_draws(before: tuple[Any, ...], draws: int) -> None:
    generator = random.Random()
    for _ in range(draws):
        generator.getrandbits(32)
    sources = randomness.find_generators(before)
    assert sources.problem == ""
    states = set()
    for _ in range(3):
        randomness.reseed(sources)
        states.add(generator.getstate())
    assert len(states) == 3


def test_the_seed_of_a_generator_with_another_seed_method_is_unknown(before: tuple[Any, ...]) -> None:
    class Own(random.Random):
        def seed(self, *_: Any) -> None:
            super().seed(7)

    generator = Own()
    assert randomness.find_generators(before).problem == "importing it leaves a Own with an unknown seed"
    del generator


def test_the_generator_of_temporary_names_is_not_renewed(before: tuple[Any, ...]) -> None:
    names = tempfile._RandomNameSequence()  # type: ignore[attr-defined]  # `multiprocessing` has its own
    next(names)
    assert randomness.find_generators(before).problem == ""


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 625, 50_000])
def test_draws_of_a_package_from_random_do_not_make_its_seed_constant(before: tuple[Any, ...], draws: int) -> None:
    for _ in range(draws):
        random.getrandbits(32)
    sources = randomness.find_generators(before)
    random.seed(3)  # as Python does at a fork
    randomness.reseed(sources)
    assert random.random() == random.Random(3).random()


def test_a_seed_that_a_package_gave_random_is_kept(before: tuple[Any, ...]) -> None:
    random.seed(7)
    sources = randomness.find_generators(before)
    random.seed()  # as Python does at a fork
    randomness.reseed(sources)
    assert random.random() == random.Random(7).random()
