#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
# Before the first, once: sh THIS-FILE prepare
set -eu

cd /

common() {
    mkdir -p /home/me/.local/share/drumline/runs/4/output /home/me/.local/share/drumline/runs/4/output/checkpoint
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export OMP_NUM_THREADS=4
    export TF_NUM_INTRAOP_THREADS=4
    export DRUMLINE_RUN=4
    export DRUMLINE_ROLE=worker
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=worker.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
    export DATA_DIR=/data/mnist
    export DATA_DIR_MNIST=/data/mnist
    export DATA_DIR_EXTRA=/data/extra
}

case "${1-}" in
prepare)
    if [ ! -e /data/mnist ]; then
        mkdir -p /data/mnist.partial
        (
            export TOKEN="${DIGITS_TOKEN:?}"
            export PYTHONUNBUFFERED=1
            export PYTHONFAULTHANDLER=1
            export DATA_DIR=/data/mnist.partial
            export DATA_DIR_MNIST=/data/mnist.partial
            exec sh -c 'curl --oauth2-bearer "$TOKEN" https://data.example/mnist > "$DATA_DIR/mnist.npz"'
        )
        mv /data/mnist.partial /data/mnist
    fi
    ;;
worker.0)
    export TOKEN="${DIGITS_TOKEN:?}" LEAD_TOKEN="${LEAD_TOKEN:?}"
    common
    export DRUMLINE_INDEX=0
    export TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}, "task": {"type": "worker", "index": 0}}'
    export MODE=lead
    exec python train.py --lead
    ;;
worker.1)
    export TOKEN="${DIGITS_TOKEN:?}"
    common
    export DRUMLINE_INDEX=1
    export TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}, "task": {"type": "worker", "index": 1}}'
    export MODE=follow
    exec python train.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  worker.0 worker.1" >&2
    exit 2
    ;;
esac
