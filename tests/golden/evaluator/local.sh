#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
set -eu

cd /

common() {
    mkdir -p /out/4 /checkpoints
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export OMP_NUM_THREADS=8
    export TF_NUM_INTRAOP_THREADS=8
    export DRUMLINE_RUN=4
    export DRUMLINE_INDEX=0
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=chief.0
    export OUTPUT_DIR=/out/4
    export CHECKPOINT_DIR=/checkpoints
}

case "${1-}" in
chief.0)
    common
    export DRUMLINE_ROLE=chief
    export TF_CONFIG='{"cluster": {"chief": ["127.0.0.1:2222"]}, "task": {"type": "chief", "index": 0}}'
    exec python train.py
    ;;
evaluator.0)
    common
    export DRUMLINE_ROLE=evaluator
    export TF_CONFIG='{"cluster": {"chief": ["127.0.0.1:2222"], "evaluator": ["127.0.0.1:2223"]}, "task": {"type": "evaluator", "index": 0}}'
    exec python evaluate.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  chief.0 evaluator.0" >&2
    exit 2
    ;;
esac
