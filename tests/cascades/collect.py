"""Collect cascades: real gangs of real frameworks with one faulty replica, with the logs and exits of all replicas.

    PYTHONPATH=src:tests .venv/bin/python -m cascades.collect [NAME...]

Collects all of them, or those with names that begin so. Takes half an hour, and three hours more in which TensorFlow
waits for absent replicas.

Each is written to a JSON file in this folder: the gang, the faulty replica and its fault, each exit with its time, and
the end of each log. A gang is started from what `drumline render` prints, without a supervisor, so that no replica is
stopped and each fails by itself; those that never end are killed at the end. A few are runs of drumline: those with
a memory limit, and those in which a stopped process is continued to be terminated. Paths of this machine are replaced.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascades.catalogue import CASCADES, SIGNALS, Cascade
from drumline.engine.local.trace import read_trace
from drumline.record import to_dict
from drumline.run.event import ReplicaExited
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import claimed_ports

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
KEPT_BYTES = 8192  # of a log


class RenderedGang:
    """The processes of a cascade, their logs, and the time and status of each exit."""

    def __init__(self, cascade: Cascade, folder: Path) -> None:
        self.cascade, self.folder = cascade, folder
        self.replicas = [f"{role}.{index}" for role, number in cascade.roles.items() for index in range(number)]
        self.logs: Path | None = None  # of a run
        self.pids: dict[str, int] = {}
        self.ends: list[dict[str, Any]] = []
        self.python = find_python(cascade.framework)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DRUMLINE_HOME": str(folder / "home"),
            "DRUMLINE_TENSORBOARD": "/nowhere",
            "PYTHONPATH": f"{ROOT / 'src'}:{SCRIPTS}",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "JAX_PLATFORMS": "cpu",
            "FALL": "" if cascade.how in (*SIGNALS, "cut") else f"{cascade.faulty} {cascade.how}",
        }

    def drumline(self, *words: str, check: bool = True, seconds: float = 60) -> str:
        argv = [str(self.python), "-m", "drumline", *words]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, text=True, stdout=subprocess.PIPE, check=check, timeout=seconds
        )
        return done.stdout

    def write_spec(self, port: int) -> None:
        cascade = self.cascade
        example = ROOT / "examples" / cascade.script.removesuffix(".py") / cascade.script
        script = SCRIPTS / cascade.script if (SCRIPTS / cascade.script).exists() else example
        epochs = " --epochs 100" if script == example else ""
        roles = ", ".join(f"{role}: {number}" for role, number in cascade.roles.items())
        (self.folder / "drumline.yml").write_text(
            f"project: cascade\nframework: {cascade.framework}\nroles: {{{roles}}}\nport: {port}\ntensorboard: false\n"
            f"run: python {script}{epochs}\nenv: {{FALL: '{self.env['FALL']}'}}\n{cascade.spec}\n"
        )

    def start(self) -> None:
        """Start all replicas, each in a session of its own, as in a terminal."""
        script = self.folder / "gang.sh"
        script.write_text(self.drumline("render"))
        waits = []
        for replica in self.replicas:
            with (self.folder / replica).open("wb") as log:
                process = subprocess.Popen(
                    ["sh", str(script), replica], stdout=log, stderr=log, env=self.env, start_new_session=True
                )
            self.pids[replica] = process.pid
            waits.append(threading.Thread(target=self.wait, args=(replica, process)))
        for wait in waits:
            wait.start()

    def wait(self, replica: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        end = {"code": code} if code >= 0 else {"signal": -code}
        self.ends.append({"replica": replica, "seconds": time.monotonic(), **end})

    def log(self, replica: str) -> str:
        path = self.logs / replica / "log" if self.logs else self.folder / replica
        return path.read_text(errors="replace") if path.exists() else ""

    def inject_fault(self) -> None:
        """Send the signal of the cascade, if it has one, when the log has the line that it waits for."""
        how = SIGNALS.get(self.cascade.how)
        if how is None:
            return
        writer, text = self.cascade.when[0] or self.cascade.faulty, self.cascade.when[1]
        deadline = time.monotonic() + 90
        while f"\n{text}" not in f"\n{self.log(writer)}":
            if time.monotonic() > deadline or self.ends:
                raise SystemExit(f"{self.cascade.name}: {writer} never wrote `{text}`: {self.log(writer)[-2000:]}")
            time.sleep(0.05)
        faulty = self.cascade.faulty
        pid = read_trace(self.logs / faulty / "keeper").pid if self.logs else self.pids[faulty]
        assert pid
        os.kill(pid, how)

    def finish(self) -> None:
        """Wait until only replicas are left that never end, and kill them."""
        serving = ("ps", "worker") if "ps" in self.cascade.roles else ()
        deadline = time.monotonic() + self.cascade.patience_seconds + (60 if self.cascade.how not in SIGNALS else 0)
        while time.monotonic() < deadline:
            gone = {str(end["replica"]) for end in self.ends}
            left = [replica for replica in self.replicas if replica not in gone]
            if not [each for each in left if each != self.cascade.faulty and not each.startswith(serving or "?")]:
                break
            time.sleep(0.1)
        time.sleep(1.0)
        stopped = [replica for replica in self.replicas if replica not in {end["replica"] for end in self.ends}]
        for replica in stopped:
            os.killpg(self.pids[replica], signal.SIGKILL)
        while len(self.ends) < len(self.replicas):
            time.sleep(0.05)
        for end in self.ends:
            if end["replica"] in stopped:
                end["stopped"] = True


def run_rendered(cascade: Cascade, folder: Path) -> dict[str, Any]:
    """Run a cascade without a supervisor."""
    with claimed_ports(8) as port:
        gang = RenderedGang(cascade, folder)
        gang.write_spec(port)
        gang.start()
        try:
            gang.inject_fault()
        finally:
            gang.finish()
        return to_json(cascade, folder, port, gang.ends, {each: gang.log(each) for each in gang.replicas})


def run_with_drumline(cascade: Cascade, folder: Path) -> dict[str, Any]:
    """Run a cascade with drumline, and read its journal."""
    with claimed_ports(8) as port:
        gang = RenderedGang(cascade, folder)
        gang.write_spec(port)
        run = gang.drumline("train", "-d", "--no-warm").strip()
        gang.logs = folder / "home" / "runs" / run / "attempts" / "0"
        if cascade.how in SIGNALS:
            gang.inject_fault()
        elif cascade.how == "cut":
            words = ("drill", run, "--net-cut", cascade.faulty, "--at-step", "5", "--yes")
            gang.drumline(*words, check=False, seconds=120)
        try:
            gang.drumline("wait", run, check=False, seconds=cascade.patience_seconds + 60)
        finally:
            gang.drumline("kill", "--force", run, check=False)
        path = folder / "home" / "runs" / run
        ends = []
        for record in read_journal(path / "events.jsonl", RunFolder(path).plan()):
            event = record.event
            if isinstance(event, ReplicaExited) and event.attempt == 0:
                known = {name: value for name, value in to_dict(event.exit).items() if value not in (None, "", False)}
                ends.append({"replica": str(event.replica), "seconds": event.at_seconds, **known})
        ends.sort(key=lambda end: end["seconds"])
        for end in ends[1:]:
            if "signal" in end and not end.get("out_of_memory"):
                end["stopped"] = True
        return to_json(cascade, folder, port, ends, {each: gang.log(each) for each in gang.replicas})


def to_json(cascade: Cascade, folder: Path, port: int, ends: list[Any], logs: Mapping[str, str]) -> dict[str, Any]:
    """Return a cascade as data, without paths of this machine."""
    ends.sort(key=lambda end: end["seconds"])
    first = ends[0]["seconds"]
    return {
        "framework": cascade.framework,
        "roles": dict(cascade.roles),
        "port": port,
        "faulty": cascade.faulty,
        "how": cascade.how,
        "is_run": cascade.is_run,
        "ends": [{**end, "seconds": round(end["seconds"] - first, 3)} for end in ends],
        "logs": {replica: trimmed(clean(text, folder)).split("\n") for replica, text in logs.items()},
    }


def clean(text: str, folder: Path) -> str:
    """Return the text without the paths of this machine."""
    environments = find_python("torch").parents[2]
    text = text.replace(str(folder), "/project").replace(str(ROOT), "/drumline")
    text = re.sub(rf"{re.escape(str(environments))}/[\w-]+", "/env", text)
    return re.sub(r"/(?:usr|opt|root|home)(?:/[\w.-]+)*/lib/python3", "/usr/lib/python3", text)


def trimmed(text: str) -> str:
    """Return the end of a log, from the beginning of a line on."""
    return text if len(text) <= KEPT_BYTES else text[-KEPT_BYTES:].partition("\n")[2]


def main() -> None:
    wanted = tuple(sys.argv[1:]) or ("",)
    for cascade in CASCADES:
        if not cascade.name.startswith(wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = (run_with_drumline if cascade.is_run else run_rendered)(cascade, Path(folder))
        (HERE / f"{cascade.name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        ends = [f"{end['replica']} {end.get('code', end.get('signal'))} {end['seconds']}" for end in found["ends"]]
        print(f"{cascade.name}: {', '.join(ends)}", flush=True)


if __name__ == "__main__":
    main()
