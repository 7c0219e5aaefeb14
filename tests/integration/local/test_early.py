"""A launch that begins before there is a command line: the same run, in the same words, as one that waits for it."""

from __future__ import annotations

import json
import signal
import sys
from typing import NamedTuple

import pytest

from drumline.run.state import Phase
from drumline.store.launch import read_facts
from integration.local.runs import PATIENCE_SECONDS, House, Run, wait_until
from integration.local.test_terminal import WAITING, Terminal

pytestmark = pytest.mark.cold("whoever makes other plans makes them in another way")

BOTH = "roles: {chief: {run: echo first}, worker: {run: echo second}}"
EARLY: tuple[str, ...] = ()
LATE = ("--on", "local")  # which is left to click
WAYS = pytest.mark.parametrize("way", [EARLY, LATE], ids=["early", "late"])


class Seen(NamedTuple):
    """What a launch said, what it loaded, and the newest run, which it may have started."""

    code: int
    out: str
    said: str
    loaded: list[str]
    run: Run

    @property
    def is_early(self) -> bool:
        """Whether its supervisor made the run: the command itself has no use for an engine then."""
        return "drumline.engine.local.place" not in self.loaded


def launch(house: House, *words: str, env: dict[str, str] | None = None) -> Seen:
    """Launch and see what is imported for it, in this order."""
    program = (sys.executable, "-X", "importtime", "-m", "drumline")
    command = house.command("train", *words, program=program, env=env or {})
    out, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in err
    lines = err.splitlines()
    loaded = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
    said = "\n".join(line for line in lines if not line.startswith("import time:"))
    return Seen(command.returncode, out, said, loaded, house.runs()[-1] if house.runs() else Run(house, "0"))


def test_it_is_the_same_run_whenever_it_begins(house: House) -> None:
    house.write_spec(BOTH)
    early, late = launch(house, *EARLY), launch(house, *LATE)
    assert (early.is_early, late.is_early) == (True, False)
    assert (early.code, late.code) == (0, 0)
    assert (
        late.said == early.said.replace("run 1", "run 2") == "drumline: run 2 (bad-day): 1 chief and 1 worker on local"
    )
    assert _lines(late, "2") == _lines(early, "1")
    plan = early.run.folder.plan_file.read_text().replace("bad-day-1-", "bad-day-2-")
    assert json.loads(late.run.folder.plan_file.read_text()) == {**json.loads(plan), "run": "2"}
    for seen in (early, late):
        assert seen.run.folder.spec_file.read_bytes() == (house.project / "drumline.yml").read_bytes()
        assert read_facts(seen.run.folder)["directory"] == str(house.project)


def test_next_to_nothing_is_loaded_before_there_is_a_supervisor(house: House) -> None:
    """It is forked from that, and lives long; and every page of it is copied."""
    house.write_spec(BOTH)
    loaded = launch(house).loaded
    before = loaded[: loaded.index("drumline.supervise.spare")]
    assert not {"json", "pathlib", "typing", "yaml", "msgspec", "click", "drumline.plan"}.intersection(before)


@WAYS
def test_in_the_background_it_prints_its_number(house: House, way: tuple[str, ...]) -> None:
    house.write_spec(BOTH)
    seen = launch(house, "-d", *way)
    assert (seen.code, seen.out) == (0, "1\n")
    seen.run.wait_for(Phase.FINISHED)


@WAYS
def test_what_fails_says_why(house: House, way: tuple[str, ...]) -> None:
    house.write_spec("run: echo broken >&2; exit 3")
    seen = launch(house, *way)
    assert seen.code == 1
    assert "Run 1 failed. First to fall: 1.worker.0, exit code 3" in seen.out


@WAYS
def test_what_is_typed_has_its_part_in_the_plan(house: House, way: tuple[str, ...]) -> None:
    house.write("other.yml", "project: other\nframework: torch\nrun: echo {{ lr }}\nparameters: {lr: 1, seed: 2}\n")
    words = ("-p", "lr=0.5", "--parameter", "seed=7", "--name", "mine", "--no-warm", "--oversubscribe", "other.yml")
    seen = launch(house, *words, *way)
    assert seen.is_early == (way == EARLY)
    plan = seen.run.folder.plan()
    assert (plan.name, plan.parameters, plan.warm, plan.oversubscribe) == (
        "mine",
        {"lr": "0.5", "seed": "7"},
        None,
        True,
    )
    assert seen.run.log("worker.0") == b"0.5\n"


@WAYS
@pytest.mark.parametrize("where", ["output", "checkpoint"])
def test_where_the_number_has_a_part_in_the_plan_every_run_gets_one_of_its_own(
    house: House, where: str, way: tuple[str, ...]
) -> None:
    house.write_spec(f"{where}: 'at-{{{{ run }}}}'\nrun: echo here")
    launch(house, *way)
    again = launch(house, *way)
    assert getattr(again.run.folder.plan(), where) == "at-2"


@WAYS
def test_a_spec_that_is_wrong_is_refused_with_its_lines(house: House, way: tuple[str, ...]) -> None:
    house.write_spec("run: echo here\nrolls: 3")
    seen = launch(house, *way)
    assert seen.code == 2
    assert seen.said.startswith("drumline.yml:4: rolls: ")
    assert seen.said.splitlines()[1] == "error: one problem, nothing was done"
    assert not house.runs()


@WAYS
def test_a_spec_that_is_not_there_is_refused(house: House, way: tuple[str, ...]) -> None:
    seen = launch(house, *way)
    assert (seen.code, seen.said.splitlines()[0]) == (2, "error: there is no drumline.yml here")


@WAYS
def test_what_the_machine_does_not_have_is_refused_behind_what_is_unwise(house: House, way: tuple[str, ...]) -> None:
    house.write("task.py", "import os\nos.environ['TF_CONFIG'] = '{}'\n")
    house.write_spec(
        "framework: tensorflow\nresources: {cpus: 4000}\nroles: {worker: {replicas: 2, run: python task.py}}"
    )
    seen = launch(house, *way)
    assert seen.code == 2
    warning, error, hint = seen.said.splitlines()
    assert warning.startswith("warning: task.py:2: sets TF_CONFIG itself")
    assert error.startswith("error: ")
    assert "8000" in error
    assert hint == "hint: ask for less, or insist with `--oversubscribe`"
    assert not house.runs()


@WAYS
def test_a_secret_that_is_missing_is_named(house: House, way: tuple[str, ...]) -> None:
    house.write_spec("run: echo here\nenv: {TOKEN: {from: TOKEN}}")
    seen = launch(house, *way)
    assert seen.code == 2
    assert "needs the secret TOKEN from the variable TOKEN, which is not set" in seen.said
    assert not house.runs()


@WAYS
def test_a_home_that_cannot_be_written_is_one_clear_error(house: House, way: tuple[str, ...]) -> None:
    house.write_spec("run: echo here")
    launch(house)
    (house.home / "last-run").unlink()
    (house.home / "last-run").mkdir()
    again = launch(house, *way)
    assert again.code == 3
    assert again.said == (
        f"error: cannot keep runs in {house.home}: Is a directory\n"
        "hint: set DRUMLINE_HOME to a folder that you may write to"
    )
    (house.home / "last-run").rmdir()


def test_a_supervisor_that_is_killed_before_it_has_a_run_is_one_clear_error(house: House) -> None:
    house.write_spec("run: echo here")
    murder = house.write("murder.py", _MURDER)
    command = house.command("train", program=(sys.executable, str(murder)))
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 3
    assert err == "error: the supervisor of a new run could not start: it was killed\n"
    assert not house.runs()


# The command line, whose supervisor does not live to hear its order.
_MURDER = """
import os, signal
from drumline.__main__ import main

fork = os.fork

def murderous():
    pid = fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return pid

os.fork = murderous
main()
"""


def test_ctrl_c_leaves_it_alone_and_says_how_to_come_back(house: House) -> None:
    house.write_spec(WAITING)
    terminal = Terminal(house, "train")
    try:
        terminal.wait_for("here I am")
        terminal.press_ctrl_c()
        terminal.wait_for("run 1 goes on")
        assert terminal.wait() == 130
    finally:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()
    house.write("go", "")
    Run(house, "1").wait_for(Phase.FINISHED)


def test_an_interrupt_that_comes_before_anybody_could_answer_is_answered(house: House) -> None:
    """From the moment that there is a run it is held back, until the command has been loaded that can say so."""
    house.write_spec(WAITING)
    slow = house.write("slow.py", _SLOW)
    command = house.command("train", program=(sys.executable, str(slow)))
    wait_until(lambda: house.exists("begun"))
    command.send_signal(signal.SIGINT)
    house.write("interrupted", "")
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 130
    assert "run 1 goes on" in err
    house.write("go", "")
    Run(house, "1").wait_for(Phase.FINISHED)


# The command line, whose run has begun and who does not come further until somebody has pressed Ctrl-C.
_SLOW = """
import os, time
from drumline import early
from drumline.__main__ import main

begin = early.begin

def slowly(*asked):
    far = begin(*asked)
    assert far.begun
    open("begun", "w").close()
    while not os.path.exists("interrupted"):
        time.sleep(0.01)
    return far

early.begin = slowly
main()
"""


def _lines(seen: Seen, number: str) -> set[str]:
    """What was shown of replicas, without when and in which order."""
    split = (line.partition("[") for line in seen.out.splitlines() if line.startswith(f"{number}."))
    return {f"{who.removeprefix(number)}{rest.partition('] ')[2]}" for who, _, rest in split}
