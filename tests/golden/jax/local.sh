#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
set -eu

cd /

common() {
    mkdir -p /home/me/.local/share/drumline/runs/4/output /home/me/.local/share/drumline/runs/4/output/checkpoint
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export OMP_NUM_THREADS=4
    export DRUMLINE_RUN=4
    export DRUMLINE_INDEX=0
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=chief.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
    export JAX_COORDINATOR_ADDRESS=127.0.0.1:2222
    export JAX_NUM_PROCESSES=2
    export OMPI_MCA_orte_hnp_uri=drumline
    export OMPI_COMM_WORLD_SIZE=2
    export OMPI_COMM_WORLD_LOCAL_RANK=0
    export KERAS_DISTRIBUTION_JOB_ADDRESSES=127.0.0.1:2222
    export KERAS_DISTRIBUTION_NUM_PROCESSES=2
    export COORDINATOR_ADDRESS=127.0.0.1
    export COORDINATOR_PORT=2222
    export NUM_PROCESSES=2
}

case "${1-}" in
chief.0)
    common
    export DRUMLINE_ROLE=chief
    export JAX_PROCESS_ID=0
    export OMPI_COMM_WORLD_RANK=0
    export KERAS_DISTRIBUTION_PROCESS_ID=0
    export PROCESS_ID=0
    exec python train.py
    ;;
worker.0)
    common
    export DRUMLINE_ROLE=worker
    export JAX_PROCESS_ID=1
    export OMPI_COMM_WORLD_RANK=1
    export KERAS_DISTRIBUTION_PROCESS_ID=1
    export PROCESS_ID=1
    exec python train.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  chief.0 worker.0" >&2
    exit 2
    ;;
esac
