#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
# The addresses are those of the private network that `drumline train` makes. This script makes none:
# to start replicas by hand, leave out `network: private`.
set -eu

cd /

common() {
    mkdir -p /home/me/.local/share/drumline/runs/4/output /home/me/.local/share/drumline/runs/4/output/checkpoint
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1,10.77.0.1,10.77.0.2,10.77.0.3"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export OMP_NUM_THREADS=2
    export TF_NUM_INTRAOP_THREADS=2
    export DRUMLINE_RUN=4
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=chief.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
}

case "${1-}" in
chief.0)
    common
    export DRUMLINE_ROLE=chief
    export DRUMLINE_INDEX=0
    export TF_CONFIG='{"cluster": {"chief": ["10.77.0.1:2222"], "worker": ["10.77.0.2:3333", "10.77.0.3:3333"]}, "task": {"type": "chief", "index": 0}}'
    exec python train.py
    ;;
worker.0)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=0
    export TF_CONFIG='{"cluster": {"chief": ["10.77.0.1:2222"], "worker": ["10.77.0.2:3333", "10.77.0.3:3333"]}, "task": {"type": "worker", "index": 0}}'
    exec python train.py
    ;;
worker.1)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=1
    export TF_CONFIG='{"cluster": {"chief": ["10.77.0.1:2222"], "worker": ["10.77.0.2:3333", "10.77.0.3:3333"]}, "task": {"type": "worker", "index": 1}}'
    exec python train.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  chief.0 worker.0 worker.1" >&2
    exit 2
    ;;
esac
