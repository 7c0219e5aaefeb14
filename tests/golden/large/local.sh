#!/bin/sh
# digits, run 4: each replica with the environment that `drumline train` gives it.
# Start every replica in a terminal of its own: sh THIS-FILE REPLICA
set -eu

cd /
DRUMLINE_CLUSTER='{"worker": ["127.0.0.1:2222", "127.0.0.1:2223", "127.0.0.1:2224", "127.0.0.1:2225", "127.0.0.1:2226", "127.0.0.1:2227", "127.0.0.1:2228", "127.0.0.1:2229", "127.0.0.1:2230", "127.0.0.1:2231", "127.0.0.1:2232", "127.0.0.1:2233", "127.0.0.1:2234", "127.0.0.1:2235", "127.0.0.1:2236", "127.0.0.1:2237", "127.0.0.1:2238", "127.0.0.1:2239", "127.0.0.1:2240", "127.0.0.1:2241", "127.0.0.1:2242", "127.0.0.1:2243", "127.0.0.1:2244", "127.0.0.1:2245", "127.0.0.1:2246", "127.0.0.1:2247", "127.0.0.1:2248", "127.0.0.1:2249", "127.0.0.1:2250", "127.0.0.1:2251", "127.0.0.1:2252", "127.0.0.1:2253", "127.0.0.1:2254", "127.0.0.1:2255", "127.0.0.1:2256", "127.0.0.1:2257", "127.0.0.1:2258", "127.0.0.1:2259", "127.0.0.1:2260", "127.0.0.1:2261", "127.0.0.1:2262", "127.0.0.1:2263", "127.0.0.1:2264", "127.0.0.1:2265", "127.0.0.1:2266", "127.0.0.1:2267", "127.0.0.1:2268", "127.0.0.1:2269", "127.0.0.1:2270", "127.0.0.1:2271", "127.0.0.1:2272", "127.0.0.1:2273", "127.0.0.1:2274", "127.0.0.1:2275", "127.0.0.1:2276", "127.0.0.1:2277", "127.0.0.1:2278", "127.0.0.1:2279", "127.0.0.1:2280", "127.0.0.1:2281"]}'
DRUMLINE_EVALUATOR_CLUSTER='{"worker": ["127.0.0.1:2222", "127.0.0.1:2223", "127.0.0.1:2224", "127.0.0.1:2225", "127.0.0.1:2226", "127.0.0.1:2227", "127.0.0.1:2228", "127.0.0.1:2229", "127.0.0.1:2230", "127.0.0.1:2231", "127.0.0.1:2232", "127.0.0.1:2233", "127.0.0.1:2234", "127.0.0.1:2235", "127.0.0.1:2236", "127.0.0.1:2237", "127.0.0.1:2238", "127.0.0.1:2239", "127.0.0.1:2240", "127.0.0.1:2241", "127.0.0.1:2242", "127.0.0.1:2243", "127.0.0.1:2244", "127.0.0.1:2245", "127.0.0.1:2246", "127.0.0.1:2247", "127.0.0.1:2248", "127.0.0.1:2249", "127.0.0.1:2250", "127.0.0.1:2251", "127.0.0.1:2252", "127.0.0.1:2253", "127.0.0.1:2254", "127.0.0.1:2255", "127.0.0.1:2256", "127.0.0.1:2257", "127.0.0.1:2258", "127.0.0.1:2259", "127.0.0.1:2260", "127.0.0.1:2261", "127.0.0.1:2262", "127.0.0.1:2263", "127.0.0.1:2264", "127.0.0.1:2265", "127.0.0.1:2266", "127.0.0.1:2267", "127.0.0.1:2268", "127.0.0.1:2269", "127.0.0.1:2270", "127.0.0.1:2271", "127.0.0.1:2272", "127.0.0.1:2273", "127.0.0.1:2274", "127.0.0.1:2275", "127.0.0.1:2276", "127.0.0.1:2277", "127.0.0.1:2278", "127.0.0.1:2279", "127.0.0.1:2280", "127.0.0.1:2281"], "evaluator": ["127.0.0.1:2282"]}'

common() {
    mkdir -p /home/me/.local/share/drumline/runs/4/output /home/me/.local/share/drumline/runs/4/output/checkpoint
    export PYTHONUNBUFFERED=1
    export PYTHONFAULTHANDLER=1
    export no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}${NO_PROXY:+,$NO_PROXY}"
    export OMP_NUM_THREADS=1
    export TF_NUM_INTRAOP_THREADS=1
    export DRUMLINE_RUN=4
    export DRUMLINE_ATTEMPT=0
    export DRUMLINE_CHIEF=worker.0
    export OUTPUT_DIR=/home/me/.local/share/drumline/runs/4/output
    export CHECKPOINT_DIR=/home/me/.local/share/drumline/runs/4/output/checkpoint
}

case "${1-}" in
worker.0)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=0
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 0}}'
    exec python train.py
    ;;
worker.1)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=1
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 1}}'
    exec python train.py
    ;;
worker.2)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=2
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 2}}'
    exec python train.py
    ;;
worker.3)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=3
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 3}}'
    exec python train.py
    ;;
worker.4)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=4
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 4}}'
    exec python train.py
    ;;
worker.5)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=5
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 5}}'
    exec python train.py
    ;;
worker.6)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=6
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 6}}'
    exec python train.py
    ;;
worker.7)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=7
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 7}}'
    exec python train.py
    ;;
worker.8)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=8
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 8}}'
    exec python train.py
    ;;
worker.9)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=9
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 9}}'
    exec python train.py
    ;;
worker.10)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=10
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 10}}'
    exec python train.py
    ;;
worker.11)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=11
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 11}}'
    exec python train.py
    ;;
worker.12)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=12
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 12}}'
    exec python train.py
    ;;
worker.13)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=13
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 13}}'
    exec python train.py
    ;;
worker.14)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=14
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 14}}'
    exec python train.py
    ;;
worker.15)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=15
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 15}}'
    exec python train.py
    ;;
worker.16)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=16
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 16}}'
    exec python train.py
    ;;
worker.17)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=17
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 17}}'
    exec python train.py
    ;;
worker.18)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=18
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 18}}'
    exec python train.py
    ;;
worker.19)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=19
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 19}}'
    exec python train.py
    ;;
worker.20)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=20
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 20}}'
    exec python train.py
    ;;
worker.21)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=21
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 21}}'
    exec python train.py
    ;;
worker.22)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=22
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 22}}'
    exec python train.py
    ;;
worker.23)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=23
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 23}}'
    exec python train.py
    ;;
worker.24)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=24
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 24}}'
    exec python train.py
    ;;
worker.25)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=25
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 25}}'
    exec python train.py
    ;;
worker.26)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=26
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 26}}'
    exec python train.py
    ;;
worker.27)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=27
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 27}}'
    exec python train.py
    ;;
worker.28)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=28
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 28}}'
    exec python train.py
    ;;
worker.29)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=29
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 29}}'
    exec python train.py
    ;;
worker.30)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=30
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 30}}'
    exec python train.py
    ;;
worker.31)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=31
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 31}}'
    exec python train.py
    ;;
worker.32)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=32
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 32}}'
    exec python train.py
    ;;
worker.33)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=33
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 33}}'
    exec python train.py
    ;;
worker.34)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=34
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 34}}'
    exec python train.py
    ;;
worker.35)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=35
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 35}}'
    exec python train.py
    ;;
worker.36)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=36
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 36}}'
    exec python train.py
    ;;
worker.37)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=37
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 37}}'
    exec python train.py
    ;;
worker.38)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=38
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 38}}'
    exec python train.py
    ;;
worker.39)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=39
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 39}}'
    exec python train.py
    ;;
worker.40)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=40
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 40}}'
    exec python train.py
    ;;
worker.41)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=41
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 41}}'
    exec python train.py
    ;;
worker.42)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=42
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 42}}'
    exec python train.py
    ;;
worker.43)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=43
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 43}}'
    exec python train.py
    ;;
worker.44)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=44
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 44}}'
    exec python train.py
    ;;
worker.45)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=45
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 45}}'
    exec python train.py
    ;;
worker.46)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=46
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 46}}'
    exec python train.py
    ;;
worker.47)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=47
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 47}}'
    exec python train.py
    ;;
worker.48)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=48
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 48}}'
    exec python train.py
    ;;
worker.49)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=49
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 49}}'
    exec python train.py
    ;;
worker.50)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=50
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 50}}'
    exec python train.py
    ;;
worker.51)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=51
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 51}}'
    exec python train.py
    ;;
worker.52)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=52
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 52}}'
    exec python train.py
    ;;
worker.53)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=53
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 53}}'
    exec python train.py
    ;;
worker.54)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=54
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 54}}'
    exec python train.py
    ;;
worker.55)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=55
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 55}}'
    exec python train.py
    ;;
worker.56)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=56
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 56}}'
    exec python train.py
    ;;
worker.57)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=57
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 57}}'
    exec python train.py
    ;;
worker.58)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=58
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 58}}'
    exec python train.py
    ;;
worker.59)
    common
    export DRUMLINE_ROLE=worker
    export DRUMLINE_INDEX=59
    export TF_CONFIG='{"cluster": '"$DRUMLINE_CLUSTER"', "task": {"type": "worker", "index": 59}}'
    exec python train.py
    ;;
evaluator.0)
    common
    export DRUMLINE_ROLE=evaluator
    export DRUMLINE_INDEX=0
    export TF_CONFIG='{"cluster": '"$DRUMLINE_EVALUATOR_CLUSTER"', "task": {"type": "evaluator", "index": 0}}'
    exec python train.py
    ;;
*)
    echo "usage: sh $0 REPLICA, one of:" >&2
    echo "  worker.0 worker.1 worker.2 worker.3 worker.4 worker.5 worker.6 worker.7 worker.8 worker.9 worker.10" >&2
    echo "  worker.11 worker.12 worker.13 worker.14 worker.15 worker.16 worker.17 worker.18 worker.19 worker.20" >&2
    echo "  worker.21 worker.22 worker.23 worker.24 worker.25 worker.26 worker.27 worker.28 worker.29 worker.30" >&2
    echo "  worker.31 worker.32 worker.33 worker.34 worker.35 worker.36 worker.37 worker.38 worker.39 worker.40" >&2
    echo "  worker.41 worker.42 worker.43 worker.44 worker.45 worker.46 worker.47 worker.48 worker.49 worker.50" >&2
    echo "  worker.51 worker.52 worker.53 worker.54 worker.55 worker.56 worker.57 worker.58 worker.59" >&2
    echo "  evaluator.0" >&2
    exit 2
    ;;
esac
