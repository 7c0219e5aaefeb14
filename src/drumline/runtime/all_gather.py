"""Exchange numbers between all workers of a strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def all_gather(strategy: Any, numbers: list[int]) -> list[list[int]]:
    """Return the numbers that every replica of a strategy has passed, in the order of the replicas."""

    @tf.function  # type: ignore[untyped-decorator]
    def on_all() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(tf.constant([numbers]), axis=0))

    return [list(row) for row in strategy.experimental_local_results(on_all())[0].numpy().tolist()]
