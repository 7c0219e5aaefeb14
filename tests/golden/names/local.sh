#!/bin/sh
# Recognition_of_handwritten_digits_in_the_archives_of_the_city, run 4: each replica with the environment that `drumline train` gives it.
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
}

case "${1-}" in
chief.0)
    common
    export DRUMLINE_ROLE=chief
    exec python train.py
    ;;
worker.0)
    common
    export DRUMLINE_ROLE=worker
    exec python train.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  chief.0 worker.0" >&2
    exit 2
    ;;
esac
