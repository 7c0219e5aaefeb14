"""The output of a run on hosts: fetched, copied, used by the next attempt, and removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drumline.run.traces import UNREACHED
from hosts.host_cluster import HOME, SHARED, HostCluster
from scaffold.waiting import wait_until

# Counts, and writes the count and its host to the output; a word in its host's file in the shared folder ends it. The
# word `fail` applies to the first attempt only.
TRAIN = f"""\
import os, pathlib, sys, time
output, host = pathlib.Path(os.environ["OUTPUT_DIR"]), os.uname().nodename
state, word = output / "state", pathlib.Path("{SHARED}", os.environ["WORDS"], host)
step = int(state.read_text().split()[0]) if state.exists() else 0
print("begins at", step, "on", host, flush=True)
written = -1000.0
def said():
    text = word.read_text() if word.exists() else ""
    return "" if text == "fail" and os.environ["DRUMLINE_ATTEMPT"] != "0" else text
while not said():
    if time.monotonic() - written > float(os.environ.get("PAUSE", "0.05")):
        step, written = step + 1, time.monotonic()
        (output / f"new-{{host}}").write_text(f"{{step}} {{host}}")
        (output / f"new-{{host}}").replace(state)
    time.sleep(0.05)
sys.exit(said() == "fail")
"""


class Project:
    """A project with runs on the hosts of a `HostCluster`."""

    def __init__(self, folder: Path, host_cluster: HostCluster, spec: str) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        self.home = folder / "home"
        self.host_cluster = host_cluster
        self.words = host_cluster.shared / folder.name
        self.words.mkdir()
        common = f"project: digits\nframework: plain\nrun: python3 train.py\nenv: {{WORDS: {folder.name}}}\n"
        (self.folder / "drumline.yml").write_text(f"{common}{spec}")
        (self.folder / "train.py").write_text(TRAIN)
        self.env = {**os.environ, **host_cluster.env, "DRUMLINE_HOME": str(self.home)}
        self.umask = -1  # the umask of the test

    def drumline(self, *words: str, code: int = 0) -> str:
        """Run a command; return its standard output and error."""
        argv = [sys.executable, "-m", "drumline", *words]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            umask=self.umask,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def say(self, word: str, *hosts: str) -> None:
        """Let replicas on these hosts finish or fail."""
        for host in hosts:
            (self.words / f"{host}.new").write_text(word)
            (self.words / f"{host}.new").replace(self.words / host)

    def status(self) -> dict[str, object]:
        """Return the status of run 1."""
        return dict(json.loads(self.drumline("status", "1", "-o", "json")))

    def here(self, name: str) -> Path:
        """Return the path of a fetched file of the output."""
        return self.home / "runs/1/output" / name

    def there(self, host: str, name: str) -> Path | None:
        """Return the path of an output file on a host; None if there is none."""
        runs = self.host_cluster.path(host, f"{HOME}/.local/share/drumline/runs")
        return next(iter(runs.glob(f"{self.unique}/{name}")), None)

    @property
    def unique(self) -> str:
        """Return the name of the run's folders on hosts."""
        return str(json.loads((self.home / "runs/1/plan.json").read_text())["options"]["unique"])

    def log(self, replica: str, attempt: int = 0) -> str:
        """Return the log of a replica."""
        path = self.home / f"runs/1/attempts/{attempt}/{replica}/log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def make(host_cluster: HostCluster, tmp_path: Path) -> Iterator[Callable[[str], Project]]:
    """Make projects; no run of them is left after the test."""
    made: list[Project] = []

    def make(spec: str) -> Project:
        made.append(Project(tmp_path, host_cluster, spec))
        return made[-1]

    yield make
    for each in made:
        if (each.home / "runs/1").exists():
            each.drumline("kill", "--force", "1")


TWO = "roles: {worker: 2}\nengine: {default: ssh, ssh: [h1, h2]}\n"


def test_the_output_of_a_run_on_hosts_is_used_fetched_and_removed(
    make: Callable[[str], Project], tmp_path: Path
) -> None:
    project = make(TWO)
    project.drumline("train", "--detach")
    wait_until(lambda: project.there("h1", "output/state") and project.there("h2", "output/state"))

    # During the run, commands use the chief's output.
    project.drumline("cp", "1:state", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text().endswith(" h1")
    assert project.drumline("inspect", "1", "sh", "-c", "hostname; ls; exit 7", code=7).split()[:1] == ["h1"]
    (tmp_path / "given").write_text("given")
    project.drumline("cp", str(tmp_path / "given"), "1:hint")
    assert project.drumline("inspect", "1", "cat", "hint") == "given"
    assert "has no" in project.drumline("cp", "1:nothing", str(tmp_path), code=4)
    assert f"{HOME}/.local/share/drumline/runs/{project.unique}/output on h1" in project.drumline("status", "1")

    # At the end of the run its output is on this machine.
    project.say("done", "h1", "h2")
    said = project.drumline("logs", "-f", "1")
    assert " to 2 hosts... done" in said
    assert project.here("state").read_text().endswith(" h1")
    assert project.here("hint").read_text() == "given"
    assert f"{project.here('').parent / 'output'}, fetched from h1" in project.drumline("status", "1")
    assert project.drumline("inspect", "1", "cat", "hint") == "given"

    # `rm` removes it from the hosts, too.
    gone = [
        project.host_cluster.path(host, f"{HOME}/.local/share/drumline/runs/{project.unique}") for host in ("h1", "h2")
    ]
    assert all(each.exists() for each in gone)
    project.drumline("rm", "1")
    assert not any(each.exists() for each in gone)


def test_the_next_attempt_starts_from_the_chief_s_output_on_every_host(make: Callable[[str], Project]) -> None:
    project = make(f"{TWO}restart: 1\n")
    project.drumline("train", "--detach")
    wait_until(lambda: project.there("h1", "output/state") and project.there("h2", "output/state"))
    project.say("fail", "h1")
    wait_until(lambda: "begins" in project.log("worker.0", 1) and "begins" in project.log("worker.1", 1))
    begun = {name: project.log(name, 1).split()[2] for name in ("worker.0", "worker.1")}
    assert int(begun["worker.0"]) > 0
    assert begun["worker.0"] == begun["worker.1"]
    project.say("done", "h1", "h2")
    wait_until(lambda: project.status()["state"] == "FINISHED")


def test_a_chief_on_a_lost_host_continues_on_another_from_the_fetched_output(make: Callable[[str], Project]) -> None:
    project = make(
        "roles: {worker: 1}\nrestart: {lost: 1}\nparameters: {pause: 1000}\n"
        "engine: {default: ssh, ssh: {hosts: [h1, h2], lost: 8s, lease: 16s}}\n"
    )
    project.drumline("train", "--detach")
    wait_until(lambda: project.here("state").exists())
    project.host_cluster.link("h1", up=False)
    try:
        wait_until(lambda: "begins" in project.log("worker.0", 1))
        assert int(project.log("worker.0", 1).split()[2]) > 0
        assert "on h2" in project.log("worker.0", 1)
    finally:
        project.host_cluster.link("h1", up=True)
    wait_until(
        lambda: not (project.home / "runs/1" / UNREACHED).exists()
    )  # otherwise it is not known what is left on h1
    wait_until(lambda: (state := project.there("h2", "output/state")) and state.read_text().endswith(" h2"))
    project.say("done", "h2")
    wait_until(lambda: project.status()["state"] == "FINISHED")
    assert project.here("state").read_text().endswith(" h2")


def test_a_folder_that_hosts_share_is_used_and_not_fetched(make: Callable[[str], Project], tmp_path: Path) -> None:
    project = make(f"roles: {{worker: 2}}\nengine: {{default: ssh, ssh: {{hosts: [h1, h2], shared: {SHARED}}}}}\n")
    project.drumline("train", "--detach")
    output = project.host_cluster.shared / "runs" / project.unique / "output"
    wait_until((output / "state").exists)
    project.say("done", "h1", "h2")
    wait_until(lambda: project.status()["state"] == "FINISHED")
    assert not project.here("state").exists()
    assert f"{SHARED}/runs/{project.unique}/output on h1, which the hosts share" in project.drumline("status", "1")
    project.drumline("cp", "1:", str(tmp_path / "copy"))
    assert (tmp_path / "copy/state").exists()
    assert f"its output stays in {SHARED}/runs" in project.drumline("rm", "1")
    assert (output / "state").exists()


def test_data_is_prepared_once_on_every_host_and_an_environment_built_there(make: Callable[[str], Project]) -> None:
    project = make(f"{TWO}data: {{path: sets, prepare: 'sh prepare.sh'}}\nenvironment: {{}}\n")
    (project.folder / "prepare.sh").write_text('hostname > "$DATA_DIR/made"; echo made; printf "no end"')
    (project.folder / "train.py").write_text(
        "import os, pathlib, sys; print(sys.prefix, (pathlib.Path(os.environ['DATA_DIR']) / 'made').read_text())"
    )
    project.drumline("train")
    made = (project.home / "runs/1/attempts/0/prepare/log").read_text()
    own = [[line for line in made.splitlines() if line.startswith(host)] for host in ("h1", "h2")]
    assert [lines[0] for lines in own] == ["h1: made", "h2: made"]
    assert [lines[1].partition("/")[0] for lines in own] == [
        "h1: no enddrumline: prepared ",
        "h2: no enddrumline: prepared ",
    ]
    said = {name: project.log(name).split() for name in ("worker.0", "worker.1")}
    assert [words[1] for words in said.values()] == ["h1", "h2"]
    assert all("/.local/share/drumline/cache/environments/" in words[0] for words in said.values())


def test_a_failed_preparation_on_one_host_names_the_host(make: Callable[[str], Project]) -> None:
    project = make(f"{TWO}data: {{path: others, prepare: 'sh prepare.sh'}}\n")
    (project.folder / "prepare.sh").write_text('[ "$(hostname)" != h2 ] || exit 3; exec sleep 1000')
    said = project.drumline("train", code=1)
    assert "1.prepare: exit code 3; on h2" in said
    assert not [each for each in project.host_cluster.processes("h1") if "sleep" in each.argv]


def test_a_helper_is_killed_on_every_host(make: Callable[[str], Project]) -> None:
    project = make(f"{TWO}data: {{path: slow, prepare: 'echo begins; exec sleep 1000'}}\n")
    project.drumline("train", "--detach")
    wait_until(lambda: project.log("prepare").count("begins") == 2)
    assert "none of its processes is left" in project.drumline("kill", "1")
    left = [each.argv for host in ("h1", "h2") for each in project.host_cluster.processes(host)]
    assert not [argv for argv in left if "sleep" in argv]


def test_a_host_with_a_full_disk_is_named_and_not_used(tmp_path: Path) -> None:
    with HostCluster(2, shared=True, disk="20m") as host_cluster:
        project = Project(
            tmp_path, host_cluster, "roles: {worker: 1}\nengine: {default: ssh, ssh: {hosts: [h1, h2], lost: 8s}}\n"
        )
        project.say("done", "h1", "h2")
        project.drumline("train")  # sends drumline itself
        host_cluster.fill_disk("h1")
        said = project.drumline("train")
        assert re.search(r"the disk of h1 is full: /\S+ cannot be written; the run starts without h1", said)
        host_cluster.empty_disk("h1")
        (project.folder / "large").write_bytes(os.urandom(15_000_000))
        assert "h1 has too little disk space for the project: 30.0 MB are needed in " in project.drumline(
            "train", code=1
        )


# A malicious Python of a host: as the output it lists links that lead out of the folder, or folders and files beneath
# such a link. All other requests are answered correctly.
LIAR = """\
#!/usr/bin/env python3
import os, sys
words, last = sys.argv[1:], "from drumline.engine.agent.main import main\\n"
lie = '''
import json
from drumline.engine.agent import verbs
def offer(request, data):
    if "parts" in request:
        return {"lengths": [4] * len(request["parts"])}, b"evil" * len(request["parts"])
    return {"absent": False, "path": "/", "entries": json.load(open("ENTRIES"))}, b""
verbs.FILE_VERBS["offer"] = offer
'''
os.execvp("python3", ["python3", *(each.replace(last, last + lie) for each in words)])
"""
FOLDER, LINK, FILE = (["folder", 0, 1, False], ["link", 0, 1, False], ["file", 4, 1, False])
CLIMBING = [["d", *FOLDER, "", False], ["d/up", *LINK, "..", False], ["out", *LINK, "d/up/../../../..", False]]
BEHIND = [["out", *FOLDER, "", False], ["out/.ssh", *FOLDER, "", False], ["out/.ssh/authorized_keys", *FILE, "", False]]
DEEP = [["/".join("a" * depth), *FOLDER, "", False] for depth in range(1, 1000)]


@pytest.mark.parametrize(
    ("entries", "warning", "fetched"),
    [
        (CLIMBING, "the output is fetched, but one of its files is left out", {"d", "d/up"}),
        ([*CLIMBING, *BEHIND], "the output was not fetched: h1 sent a list of files that cannot be used", set()),
        (BEHIND, "", {"out", "out/.ssh", "out/.ssh/authorized_keys"}),
        (DEEP, "the output was not fetched: h1 sent a list of files that cannot be used", set()),
    ],
    ids=["links", "links and files", "files", "deep"],
)
def test_a_host_with_a_forged_output_list_writes_nothing_outside_of_the_output(
    make: Callable[[str], Project], entries: list[object], warning: str, fetched: set[str]
) -> None:
    project = make(
        f"roles: {{worker: 1}}\nengine: {{default: ssh, ssh: {{hosts: [h1], python: {HOME}/liar-{os.getpid()}}}}}\n"
    )
    liar = project.host_cluster.path("h1", f"{HOME}/liar-{os.getpid()}")
    listed = f"{HOME}/entries-{os.getpid()}"
    project.host_cluster.path("h1", listed).write_text(json.dumps(entries))
    liar.write_text(LIAR.replace("ENTRIES", listed))
    liar.chmod(0o755)
    before = sorted(path.name for path in project.home.parent.iterdir())
    project.say("done", "h1")
    said = project.drumline("train")
    assert warning in said
    output = project.here("")
    assert {str(path.relative_to(output)) for path in output.rglob("*")} == fetched
    assert sorted({*(path.name for path in project.home.parent.iterdir())} - {"home"}) == before
    assert project.status()["state"] == "FINISHED"


def test_files_of_a_run_on_hosts_are_private_on_all_machines_with_any_umask(
    make: Callable[[str], Project],
) -> None:
    project = make(f"{TWO}restart: 1\n")
    project.umask = 0
    project.drumline("train", "--detach")
    wait_until(lambda: project.there("h1", "output/state") and project.there("h2", "output/state"))
    project.say("fail", "h1")
    wait_until(lambda: "begins" in project.log("worker.0", 1))
    project.say("done", "h1", "h2")
    wait_until(lambda: project.status()["state"] == "FINISHED")
    project.drumline("events", "1")
    assert _open_to_others(project.home) == []
    assert _open_to_others(project.host_cluster.path("h1", f"{HOME}/.local/share/drumline/runs/{project.unique}")) == []


def _open_to_others(folder: Path) -> list[str]:
    """Return what other users may access, without the output and the project, which have their own modes."""
    found = []
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("output", "project")]
        found += [str(Path(at, name)) for name in (*folders, *files) if Path(at, name).lstat().st_mode & 0o077]
    return found


def test_an_output_in_the_project_folder_is_refused_on_several_hosts(make: Callable[[str], Project]) -> None:
    project = make(f"{TWO}output: .\n")
    said = project.drumline("train", code=2)
    assert "output: . cannot be used on several hosts: one host could replace the code that runs on the others" in said
