"""Decide whether replicas wait for a warm process that is not ready, or start cold."""

from __future__ import annotations

# With two cores for each, replicas that import at the same time as the warm process do not slow each other down.
_CPUS_PER_REPLICA = 2.0
# The warm process imports with the garbage collector off: TensorFlow in 0.8 of the CPU time that a replica takes, which
# is half a second and more. PyTorch gains less: a quarter of a second (0.7 to 0.9 in three measurements).
_FASTER_WARM = frozenset({"tensorflow"})


def is_worth_waiting(framework: str, replicas: int, cpus: float) -> bool:
    """Return whether this number of replicas starts sooner if one process imports the framework for all of them."""
    return framework in _FASTER_WARM or cpus < _CPUS_PER_REPLICA * replicas
