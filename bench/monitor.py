"""The cost of measuring replicas: the supervisor's share of a core, with and without `drumline monitor`.

Run as `python -m bench.monitor [REPLICAS...]` from the checkout. Replicas are interpreters that sleep. A supervisor
measures them every five seconds, and each second while `drumline monitor` runs. It also records the size of every log
four times a second; a supervisor that never measures does only this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, note

SECONDS = 10.0
DRUMLINE = (sys.executable, "-m", "drumline")
# The same command with a supervisor that never measures: it is a fork of this process.
UNMEASURED = (
    sys.executable,
    "-c",
    "import drumline.supervise.sample as sample; sample.UNWATCHED_SECONDS = 1e9; from drumline.cli import main; main()",
)


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]] or [8, 32, 128]
    print(f"{'replicas':<10}{'unmeasured':>12}{'unwatched':>12}{'watched':>12}   of a core, over {SECONDS:g} s")
    for number in numbers:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            measure(Path(scratch), number)


def measure(folder: Path, number: int) -> None:
    run = (sys.executable, "-S", "-c", "import time; time.sleep(1000)")
    spec = f"project: bench\nframework: plain\nroles: {{worker: {number}}}\nrun: {{argv: {list(run)}}}\n"
    (folder / "drumline.yml").write_text(spec)
    env = {**os.environ, "DRUMLINE_HOME": str(folder / "home")}
    unmeasured, run_id = (start(folder, env, program) for program in (UNMEASURED, DRUMLINE))
    try:
        time.sleep(6)  # the first measurement is an exact one
        without, unwatched = shares_of(folder, unmeasured, run_id)
        with subprocess.Popen(
            (*DRUMLINE, "monitor", run_id), cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as monitor:
            time.sleep(2)
            (watched,) = shares_of(folder, run_id)
            monitor.terminate()
        print(f"{number:<10}{without:>12.2%}{unwatched:>12.2%}{watched:>12.2%}")
        title, peer = f"supervisor of {number} replicas, with `monitor`", "without `monitor`"
        note(Figure(title, watched * 100, unwatched * 100, peer, None, "python -m bench.monitor", "%"))
    finally:
        kill = (*DRUMLINE, "kill", "--force", unmeasured, run_id)
        subprocess.run(kill, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)


def start(folder: Path, env: dict[str, str], program: tuple[str, ...]) -> str:
    done = subprocess.run(
        (*program, "train", "-d"), cwd=folder, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return done.stdout.decode().strip()


def shares_of(folder: Path, *runs: str) -> list[float]:
    """Measure the share of a core that each of these supervisors uses from now on."""
    pids = [int((folder / "home" / "runs" / run / "supervisor.lock").read_text()) for run in runs]
    before, began = [busy_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(SECONDS)
    passed = time.monotonic() - began
    return [(busy_seconds(pid) - earlier) / passed for pid, earlier in zip(pids, before, strict=True)]


def busy_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
