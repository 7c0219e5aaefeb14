"""Reseed the random number generators of a fork of a warm process.

A new interpreter seeds some generators from the system, and packages seed others with a constant while they are
imported. A fork must renew the first and leave the second. Both are found once, in the warm process, before it forks:
a search in every fork would copy the memory that they share.

`_KINDS` lists the types of generators that are searched for. docs/warm.md has a table of all sources of randomness,
also of those that need no reseeding.

This module is one file and imports the standard library only: a warm process loads it by its path.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

_WORDS = 624  # of the state of a Mersenne Twister
_MOST_TWISTS = 1000  # more numbers than any package draws while it is imported
_MOST_CHANGES = 16  # of a state, that are undone: as after 10,000 draws of a package from its own generator
_LONGEST_PERIOD = 300  # words of a constant seed; a seed from the system has as many words as the state
_TORCH_DEFAULT_SEED = 67280421310721  # of a torch.Generator without a seed
_LARGEST_CONSTANT_OF_TORCH = 1 << 32
_LARGEST_CONSTANT_OF_NUMPY = 1 << 64  # a seed from the system has 128 bits

_MASK = 0xFFFFFFFF
_TOP = 0x80000000


class Generators(NamedTuple):
    """How a fork reseeds its generators, so that it is as random as a new interpreter."""

    renewals: Sequence[Callable[[], object]]
    problem: str = ""  # why they cannot be reseeded; empty if they can


def seed_random() -> tuple[Any, ...]:
    """Seed `random` from the system, and return its state; `find_generators` compares it."""
    random.seed()
    return random.getstate()


def find_generators(before: tuple[Any, ...]) -> Generators:
    """Find every generator that exists; `before` is the state that `seed_random` returned before any import."""
    renewals: list[Callable[[], object]] = []
    after = random.getstate()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return Generators((), "importing it starts CUDA")
    kinds = _kinds()
    found = {id(each): each for each in _objects(tuple(kinds)) if each is not getattr(random, "_inst", None)}
    names = getattr(sys.modules.get("tempfile"), "_RandomNameSequence", None)
    for each in _objects((names,)) if names else ():  # objects of `tempfile` and `multiprocessing`
        found.pop(id(getattr(each, "_rng", None)), None)  # such an object creates a new generator in every process
    for each in found.values():
        kind = next(kind for kind in kinds if isinstance(each, kind))
        try:
            renewal = kinds[kind](each)
        except _CannotTellError:
            return Generators((), f"importing it leaves a {type(each).__name__} with an unknown seed")
        if renewal:
            renewals.append(renewal)
    if not _is_drawn_from(before, after):
        renewals.append(lambda: random.setstate(after))  # a package seeded `random`; Python reseeds it at every fork
    try:
        reseed(Generators(renewals))
    except Exception as error:  # noqa: BLE001 - whatever a package may raise; it would in every fork
        return Generators((), f"its randomness cannot be renewed: {type(error).__name__}: {error}"[:200])
    return Generators(renewals)


def reseed(sources: Generators) -> None:
    """Reseed this process, a fork of the one that called `find_generators`."""
    for renewal in sources.renewals:
        renewal()
    uuid: Any = sys.modules.get("uuid")
    if uuid is not None:
        uuid.__dict__["_node"] = None  # random if the machine has no network address


class _CannotTellError(Exception):
    """Whether a generator was seeded with a constant is unknown."""


_Renewal = Callable[[], object] | None


def _kinds() -> dict[type, Callable[[Any], _Renewal]]:
    """Return the loaded types of generators, each with a function that returns how to reseed a generator, or None."""
    loaded = {getattr(sys.modules.get(module), name, None): renewal for (module, name), renewal in _KINDS.items()}
    return {kind: renewal for kind, renewal in loaded.items() if isinstance(kind, type)}


def _objects(kinds: tuple[type, ...]) -> Iterable[object]:
    """Yield all objects of these types; objects of torch are found only through objects that refer to them."""
    tracked = gc.get_objects()
    yield from (each for each in tracked if issubclass(type(each), kinds))
    if any(kind.__module__.startswith("torch") for kind in kinds):
        referents = gc.get_referents(*tracked)
        yield from (each for each in referents if issubclass(type(each), kinds))
        untracked = [each for each in referents if type(each) in (dict, tuple) and not gc.is_tracked(each)]
        yield from (each for each in gc.get_referents(*untracked) if issubclass(type(each), kinds))


def _of_python(generator: random.Random) -> _Renewal:
    if isinstance(generator, random.SystemRandom):
        return None
    if type(generator).seed is not random.Random.seed:
        raise _CannotTellError
    return None if _is_constant(generator.getstate()) else generator.seed


def _of_torch(generator: Any) -> _Renewal:
    seed = generator.initial_seed()
    return None if seed < _LARGEST_CONSTANT_OF_TORCH or seed == _TORCH_DEFAULT_SEED else generator.seed


def _of_numpy_seed(sequence: Any) -> _Renewal:
    return sequence.__init__ if _is_from_system(sequence) else None


def _of_numpy(generator: Any) -> _Renewal:
    # A RandomState with a seed of the caller has no sequence; before numpy 1.25 the attribute was private.
    sequence = getattr(generator, "seed_seq", None) or getattr(generator, "_seed_seq", None)
    if sequence is None or not _is_from_system(sequence):
        return None
    if not type(generator).__module__.startswith("numpy."):
        raise _CannotTellError
    return generator.__init__  # type: ignore[no-any-return]


def _of_numpy_cache(state: Any) -> _Renewal:
    """Return how to clear the normal number that a RandomState has drawn in advance: it belongs to the old seed."""
    generator = getattr(state, "_bit_generator", None)
    if generator is None or _of_numpy(generator) is None:
        return None
    return lambda: state.set_state({**state.get_state(legacy=False), "has_gauss": 0, "gauss": 0.0})


def _of_keras(initializer: Any) -> _Renewal:
    if getattr(initializer, "_init_seed", 0) is not None:
        return None
    return lambda: setattr(initializer, "seed", random.randint(1, int(1e9)))  # as `make_default_seed` does


_KINDS: dict[tuple[str, str], Callable[[Any], _Renewal]] = {
    ("random", "Random"): _of_python,
    ("torch", "Generator"): _of_torch,
    ("numpy.random", "SeedSequence"): _of_numpy_seed,
    ("numpy.random", "BitGenerator"): _of_numpy,
    ("numpy.random", "RandomState"): _of_numpy_cache,
    ("keras.src.initializers.random_initializers", "RandomInitializer"): _of_keras,
}


def _is_from_system(sequence: Any) -> bool:
    entropy = getattr(sequence, "entropy", None)
    return isinstance(entropy, int) and entropy >= _LARGEST_CONSTANT_OF_NUMPY


def _is_drawn_from(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Return whether only draws of numbers lead from one state of a generator to the other."""
    copy = random.Random()
    copy.setstate(before)
    if before[1] == after[1]:
        return True
    drawn = (after[1][-1] - before[1][-1]) % _WORDS
    for _ in range(drawn or _WORDS):
        copy.getrandbits(32)
    for _ in range(_MOST_TWISTS):
        if copy.getstate()[1] == after[1]:
            return True
        copy.getrandbits(32 * _WORDS)
    return False


def _is_constant(state: tuple[Any, ...]) -> bool:
    """Return whether the state of a generator shows that it was seeded with a number or a text.

    `random` mixes the words of a seed into the state, and repeats a short seed until all words of the state are mixed.
    When the mixing is undone, a short seed appears as a period. A seed from the system is as long as the state, and has
    no period. The state changes as a whole with the first number that is drawn and with every 624th after that; these
    changes are undone first.
    """
    words = list(state[1][:_WORDS])
    if state[1][-1] == _WORDS and _is_mixed_from_constant(words):
        return True
    for _ in range(_MOST_CHANGES):
        words = _before_change(words)
        if _is_mixed_from_constant(words):
            return True
    return False


def _is_mixed_from_constant(words: list[int]) -> bool:
    """Return whether a state from which no number was drawn yet was made from a seed with a period."""
    mixed = [words[-1], *words[1:]]
    for at in (1, *range(_WORDS - 1, 1, -1)):
        mixed[at] = (mixed[at] + at & _MASK) ^ _mix(mixed[at - 1], 1566083941)
    fresh = [19650218]
    for at in range(1, _WORDS):
        fresh.append(_mix(fresh[-1], 1812433253) + at & _MASK)
    seed = [mixed[at] - (fresh[at] ^ _mix(mixed[at - 1], 1664525)) & _MASK for at in range(3, _WORDS)]
    return any(seed[period:] == seed[:-period] for period in range(1, _LONGEST_PERIOD))


def _before_change(words: list[int]) -> list[int]:
    """Return the words of a state before the Mersenne Twister last changed them; of the first, one bit is known."""
    words = list(words)
    for at in reversed(range(_WORDS)):
        here = words[at] ^ words[(at + 397) % _WORDS]
        previous = words[at - 1] ^ words[(at + 396) % _WORDS]
        words[at] = (_unshift(here) & _TOP) | (_unshift(previous) & ~_TOP)
    return words


def _unshift(word: int) -> int:
    """Undo the shift by one bit of the Mersenne Twister; the top bit is the bit that was shifted out."""
    odd = word >> 31
    return (word ^ 0x9908B0DF * odd) << 1 & _MASK | odd


def _mix(word: int, factor: int) -> int:
    return (word ^ (word >> 30)) * factor & _MASK
