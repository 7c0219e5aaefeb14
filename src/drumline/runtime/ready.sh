# Prepare a pod before its replica starts: `sh ready.sh PARTS PROJECT RUNTIME` unpacks the project and the runtime, then
# waits until every name in DRUMLINE_PEERS resolves, or PARTS/begun exists. If the image has Python, `ready.py` does
# this: it needs neither tar nor gzip.
set -eu
parts=$1 project=$2 runtime=$3
trap 'exit 143' TERM INT

# Only `python`, which may be of version 2, is checked first: a check starts the interpreter twice.
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
    say "this image has neither python3 nor $tool, so nothing can be unpacked; set 'code: false', or add one"
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
    # ping need not be allowed to send: those of busybox and iputils first resolve the name, and print an error if that
    # fails.
    case $(ping -c 1 -W 1 "$1" 2>&1) in
      *"bad address"* | *"unknown host"* | *"not known"* | *"failure in name resolution"* | *"No address"*) return 1 ;;
    esac
  elif command -v nslookup >/dev/null 2>&1; then
    nslookup "$1" >/dev/null 2>&1
  else
    say "this image has no tool to resolve names (getent, ping, nslookup): continuing without waiting"
  fi
}

began=$(date +%s)
printed=$began
for name in $(printf '%s' "${DRUMLINE_PEERS:-}" | tr ',' ' '); do
  until known "$name" || [ -e "$parts/begun" ]; do
    now=$(date +%s)
    if [ $((now - printed)) -ge 5 ]; then
      printed=$now
      say "waiting for $name to resolve, for $((now - began)) s so far"
    fi
    sleep 1
  done
done
