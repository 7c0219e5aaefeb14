"""Collects cascades: real lines of real frameworks of which one replica falls, and what the others say and do then.

    PYTHONPATH=src:tests .venv/bin/python -m cascades.collect [NAME...]

All of them, or those whose names begin so; half an hour, and three more in which TensorFlow waits for who is absent.

Each becomes a JSON file here: the line, who fell and how, each end with its time, and the end of each log. A line is
started by hand, from what `drumline render` prints, so that nobody is stopped and everybody falls by itself; who never
would is killed in the end. A few are runs of drumline: those that need its limits, and those in which a stopped process
is woken to be told to end. Paths of this machine are replaced.
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

from cascades.catalogue import SIGNALS, STORIES, Story
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
    """The processes of a story, their logs, and how each ended when."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story, self.folder = story, folder
        self.replicas = [f"{role}.{index}" for role, number in story.roles.items() for index in range(number)]
        self.logs: Path | None = None  # of a run
        self.pids: dict[str, int] = {}
        self.ends: list[dict[str, Any]] = []
        self.python = find_python(story.framework)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DRUMLINE_HOME": str(folder / "home"),
            "DRUMLINE_TENSORBOARD": "/nowhere",
            "PYTHONPATH": f"{ROOT / 'src'}:{SCRIPTS}",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "JAX_PLATFORMS": "cpu",
            "FALL": "" if story.how in (*SIGNALS, "cut") else f"{story.who} {story.how}",
        }

    def drumline(self, *words: str, check: bool = True, seconds: float = 60) -> str:
        argv = [str(self.python), "-m", "drumline", *words]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, text=True, stdout=subprocess.PIPE, check=check, timeout=seconds
        )
        return done.stdout

    def write_spec(self, port: int) -> None:
        story = self.story
        example = ROOT / "examples" / story.script.removesuffix(".py") / story.script
        script = SCRIPTS / story.script if (SCRIPTS / story.script).exists() else example
        epochs = " --epochs 100" if script == example else ""
        roles = ", ".join(f"{role}: {number}" for role, number in story.roles.items())
        (self.folder / "drumline.yml").write_text(
            f"project: cascade\nframework: {story.framework}\nroles: {{{roles}}}\nport: {port}\ntensorboard: false\n"
            f"run: python {script}{epochs}\nenv: {{FALL: '{self.env['FALL']}'}}\n{story.spec}\n"
        )

    def start(self) -> None:
        """Start everybody, each a session of its own, as in a terminal."""
        script = self.folder / "line.sh"
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

    def hurt(self) -> None:
        """Fall from outside, if that is how, when it is time."""
        how = SIGNALS.get(self.story.how)
        if how is None:
            return
        who, text = self.story.when[0] or self.story.who, self.story.when[1]
        deadline = time.monotonic() + 90
        while f"\n{text}" not in f"\n{self.log(who)}":
            if time.monotonic() > deadline or self.ends:
                raise SystemExit(f"{self.story.name}: {who} never wrote `{text}`: {self.log(who)[-2000:]}")
            time.sleep(0.05)
        pid = read_trace(self.logs / self.story.who / "keeper").pid if self.logs else self.pids[self.story.who]
        assert pid
        os.kill(pid, how)

    def finish(self) -> None:
        """Wait until only those are left who never end, and kill them."""
        serving = ("ps", "worker") if "ps" in self.story.roles else ()
        deadline = time.monotonic() + self.story.patience_seconds + (60 if self.story.how not in SIGNALS else 0)
        while time.monotonic() < deadline:
            gone = {str(end["replica"]) for end in self.ends}
            left = [replica for replica in self.replicas if replica not in gone]
            if not [each for each in left if each != self.story.who and not each.startswith(serving or "?")]:
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


def by_hand(story: Story, folder: Path) -> dict[str, Any]:
    """Start a story's line without a supervisor, and see what becomes of it."""
    with claimed_ports(8) as port:
        line = RenderedGang(story, folder)
        line.write_spec(port)
        line.start()
        try:
            line.hurt()
        finally:
            line.finish()
        return written(story, folder, port, line.ends, {each: line.log(each) for each in line.replicas})


def by_drumline(story: Story, folder: Path) -> dict[str, Any]:
    """Have drumline run a story, and read what it wrote down."""
    with claimed_ports(8) as port:
        line = RenderedGang(story, folder)
        line.write_spec(port)
        run = line.drumline("train", "-d", "--no-warm").strip()
        line.logs = folder / "home" / "runs" / run / "attempts" / "0"
        if story.how in SIGNALS:
            line.hurt()
        elif story.how == "cut":
            words = ("drill", run, "--net-cut", story.who, "--at-step", "5", "--yes")
            line.drumline(*words, check=False, seconds=120)
        try:
            line.drumline("wait", run, check=False, seconds=story.patience_seconds + 60)
        finally:
            line.drumline("kill", "--force", run, check=False)
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
        return written(story, folder, port, ends, {each: line.log(each) for each in line.replicas})


def written(story: Story, folder: Path, port: int, ends: list[Any], logs: Mapping[str, str]) -> dict[str, Any]:
    """A story as data, in which nothing is of this machine."""
    ends.sort(key=lambda end: end["seconds"])
    first = ends[0]["seconds"]
    return {
        "framework": story.framework,
        "roles": dict(story.roles),
        "port": port,
        "who": story.who,
        "how": story.how,
        "is_run": story.is_run,
        "ends": [{**end, "seconds": round(end["seconds"] - first, 3)} for end in ends],
        "logs": {replica: trimmed(clean(text, folder)).split("\n") for replica, text in logs.items()},
    }


def clean(text: str, folder: Path) -> str:
    """The text without the paths of this machine."""
    environments = find_python("torch").parents[2]
    text = text.replace(str(folder), "/project").replace(str(ROOT), "/drumline")
    text = re.sub(rf"{re.escape(str(environments))}/[\w-]+", "/env", text)
    return re.sub(r"/(?:usr|opt|root|home)(?:/[\w.-]+)*/lib/python3", "/usr/lib/python3", text)


def trimmed(text: str) -> str:
    """The end of a log, from the beginning of a line on."""
    return text if len(text) <= KEPT_BYTES else text[-KEPT_BYTES:].partition("\n")[2]


def main() -> None:
    wanted = tuple(sys.argv[1:]) or ("",)
    for story in STORIES:
        if not story.name.startswith(wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = (by_drumline if story.is_run else by_hand)(story, Path(folder))
        (HERE / f"{story.name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        ends = [f"{end['replica']} {end.get('code', end.get('signal'))} {end['seconds']}" for end in found["ends"]]
        print(f"{story.name}: {', '.join(ends)}", flush=True)


if __name__ == "__main__":
    main()
