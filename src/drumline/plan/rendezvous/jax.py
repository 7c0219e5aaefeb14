"""JAX: the address of the coordinator, the number of processes, and the rank of each process.

`jax.distributed.initialize()` without arguments reads the address from a variable of JAX, but the number of processes
and the rank from variables of Open MPI. Keras on JAX reads three other variables. Kubeflow's JAXJob sets four others,
with separate variables for host and port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drumline.plan.rendezvous.rank import rank_zero_place, ranks
from drumline.plan.types import Placement, Plan, ReplicaId

RESERVED = frozenset(
    {
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        "OMPI_MCA_orte_hnp_uri",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES",
        "KERAS_DISTRIBUTION_NUM_PROCESSES",
        "KERAS_DISTRIBUTION_PROCESS_ID",
        "COORDINATOR_ADDRESS",
        "COORDINATOR_PORT",
        "NUM_PROCESSES",
        "PROCESS_ID",
    }
)


def variables(plan: Plan, placement: Placement) -> Callable[[ReplicaId], Mapping[str, str]]:
    """Return the function that returns the variables of each replica; without variables for a single process."""
    rank_of, first = ranks(plan), rank_zero_place(plan, placement)
    if len(rank_of) == 1:
        return lambda _: {}

    def variables_of(me: ReplicaId) -> Mapping[str, str]:
        if me not in rank_of or first is None:
            return {}
        rank, size = str(rank_of[me]), str(len(rank_of))
        return {
            "JAX_COORDINATOR_ADDRESS": first.address,
            "JAX_NUM_PROCESSES": size,
            "JAX_PROCESS_ID": rank,
            "OMPI_MCA_orte_hnp_uri": "drumline",
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": first.address,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": size,
            "KERAS_DISTRIBUTION_PROCESS_ID": rank,
            "COORDINATOR_ADDRESS": first.host,
            "COORDINATOR_PORT": str(first.port),
            "NUM_PROCESSES": size,
            "PROCESS_ID": rank,
        }

    return variables_of
