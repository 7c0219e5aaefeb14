"""Numbers of all workers, compared before they train."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def all_gather(made: Any, numbers: list[int]) -> list[list[int]]:
    """What every replica of a strategy has for these numbers, in the order of the replicas."""

    @tf.function  # type: ignore[untyped-decorator]
    def everywhere() -> Any:
        return made.run(lambda: tf.distribute.get_replica_context().all_gather(tf.constant([numbers]), axis=0))

    return [list(row) for row in made.experimental_local_results(everywhere())[0].numpy().tolist()]
