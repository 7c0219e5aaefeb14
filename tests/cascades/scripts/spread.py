"""Run JAX on several processes; every step needs a sum over all of them."""

import fall
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

fall.begin()
jax.distributed.initialize(heartbeat_timeout_seconds=10, initialization_timeout=15, shutdown_timeout_seconds=15)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), np.ones((8, 100), "float32"))


@jax.jit
def train_step(weights, rows):
    return weights - 0.001 * jnp.mean(rows @ weights, axis=0)


weights = jnp.ones((100,), "float32")
for step in range(1_000_000):
    weights = train_step(weights, rows)
    weights.block_until_ready()
    fall.at(step)
