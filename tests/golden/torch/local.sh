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
    export DRUMLINE_ROLE=worker
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=worker.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
    export MASTER_ADDR=127.0.0.1
    export MASTER_PORT=29500
    export WORLD_SIZE=2
    export LOCAL_RANK=0
    export LOCAL_WORLD_SIZE=1
    export GROUP_WORLD_SIZE=2
    export ROLE_NAME=worker
    export ROLE_WORLD_SIZE=2
    export TORCHELASTIC_RUN_ID=4
    export TORCHELASTIC_RESTART_COUNT=0
    export TORCHELASTIC_MAX_RESTARTS=0
}

case "${1-}" in
worker.0)
    common
    export DRUMLINE_INDEX=0
    export RANK=0
    export GROUP_RANK=0
    export NODE_RANK=0
    export ROLE_RANK=0
    exec python train.py --backend gloo
    ;;
worker.1)
    common
    export DRUMLINE_INDEX=1
    export RANK=1
    export GROUP_RANK=1
    export NODE_RANK=1
    export ROLE_RANK=1
    exec python train.py --backend gloo
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  worker.0 worker.1" >&2
    exit 2
    ;;
esac
