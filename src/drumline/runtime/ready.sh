# Runs in a pod before its replica: `sh ready.sh PARTS PROJECT RUNTIME` unpacks what drumline carried there, then waits
# until every name in DRUMLINE_PEERS is known, or the line has begun without us (PARTS/begun). Python does that, where the
# image has one: it needs neither tar nor gzip.
set -eu
parts=$1 project=$2 runtime=$3
trap 'exit 143' TERM INT

# Asked first whether it will do, an interpreter would be started twice; only one that may be of version 2 is.
if [ "${DRUMLINE_PYTHON:-}" != none ]; then
  if command -v python3 >/dev/null 2>&1; then
    exec python3 -IS "$parts/ready.py" "$@"
  elif python -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
    exec python -IS "$parts/ready.py" "$@"
  fi
fi

say() { printf 'drumline: %s\n' "$*"; }
for tool in tar gzip; do
  command -v "$tool" >/dev/null 2>&1 || {
    say "this image has neither python3 nor $tool, so that nothing can be unpacked here; set 'code: false', or add one"
    exit 1
  }
done

mkdir -p "$runtime"
gzip -dc "$parts/runtime.tar.gz" | tar -xof - -C "$runtime"
set -- "$parts"/project-*
if [ -e "$1" ]; then
  mkdir -p "$project"
  cat "$@" | gzip -dc | tar -xof - -C "$project"
fi

known() {
  if command -v getent >/dev/null 2>&1; then
    getent ahosts "$1" >/dev/null 2>&1 || getent hosts "$1" >/dev/null 2>&1
  elif command -v ping >/dev/null 2>&1; then
    # Whether it may send does not matter: busybox and iputils look the name up first, and say so if nobody knows it.
    case $(ping -c 1 -W 1 "$1" 2>&1) in
      *"bad address"* | *"unknown host"* | *"not known"* | *"failure in name resolution"* | *"No address"*) return 1 ;;
    esac
  elif command -v nslookup >/dev/null 2>&1; then
    nslookup "$1" >/dev/null 2>&1
  else
    say "this image can look no name up (getent, ping, nslookup): going on without waiting"
  fi
}

began=$(date +%s)
told=$began
for name in $(printf '%s' "${DRUMLINE_PEERS:-}" | tr ',' ' '); do
  until known "$name" || [ -e "$parts/begun" ]; do
    now=$(date +%s)
    if [ $((now - told)) -ge 5 ]; then
      told=$now
      say "waiting for $name to be known, for $((now - began)) s so far"
    fi
    sleep 1
  done
done
