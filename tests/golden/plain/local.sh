#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
set -eu

cd /usr

common() {
    mkdir -p /home/me/.local/share/drumline/runs/4/output /home/me/.local/share/drumline/runs/4/output/checkpoint
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export DRUMLINE_RUN=4
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=0
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=worker.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
}

case "${1-}" in
worker.0)
    common
    exec sh -c 'for command do eval "$command"; case $? in 0) ;; *) exit ;; esac; done' sh 'cd share' 'export MODE=fast' 'python train.py | tee "$OUTPUT_DIR/log"'
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  worker.0" >&2
    exit 2
    ;;
esac
