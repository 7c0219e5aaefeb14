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
    export DRUMLINE_RUN=4
    export DRUMLINE_INDEX=0
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=chief.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
    export TITLE='it'"'"'s "5 o'"'"'clock" & $(date)'
    export LINES='one
two
'
    export LR_DECAY=1e-6
    export TITLE_2='it'"'"'s "5 o'"'"'clock" & $(date)'
}

case "${1-}" in
chief.0)
    common
    export OMP_NUM_THREADS=8
    export DRUMLINE_ROLE=chief
    exec /usr/bin/env SECONDS=30 python lead.py '--title=it'"'"'s "5 o'"'"'clock" & $(date)' '$HOME'
    ;;
worker.0)
    common
    export OMP_NUM_THREADS=8
    export DRUMLINE_ROLE=worker
    exec /usr/bin/env SECONDS=30 sh -c '# don'"'"'t stop at {{ title }}
for title in '"'"'it'"'"'"'"'"'"'"'"'s "5 o'"'"'"'"'"'"'"'"'clock" & $(date)'"'"' ""'"'"'it'"'"'"'"'"'"'"'"'s "5 o'"'"'"'"'"'"'"'"'clock" & $(date)'"'"'"" '"'"''"'"''"'"'it'"'"'"'"'"'"'"'"'s "5 o'"'"'"'"'"'"'"'"'clock" & $(date)'"'"''"'"''"'"'; do
    python train.py --title "$title" --lines='"'"'one
two
'"'"' --decay 1e-6 --name "run-1e-6"
done'
    ;;
evaluator.0)
    common
    export OMP_NUM_THREADS=4
    export DRUMLINE_ROLE=evaluator
    exec /usr/bin/env SECONDS=30 python evaluate.py --title 'it'"'"'s "5 o'"'"'clock" & $(date)' --decay 1e-6
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  chief.0 worker.0 evaluator.0" >&2
    exit 2
    ;;
esac
