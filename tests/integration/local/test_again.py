"""The same launch once more: the same run, with nothing read that makes a plan."""

from __future__ import annotations

import json
import signal
import sys
from typing import NamedTuple

import pytest

from drumline.run.state import Phase
from drumline.store.launch import ASKED, read_facts
from integration.local.runs import PATIENCE_SECONDS, House, Run, wait_until
from integration.local.test_terminal import WAITING, Terminal

pytestmark = pytest.mark.cold("whoever makes other plans reads every spec")

READERS = {"yaml", "msgspec", "drumline.cli.load", "drumline.spec.read", "drumline.plan.make"}
BOTH = "roles: {chief: {run: echo first}, worker: {run: echo second}}"


class Seen(NamedTuple):
    """What a launch said, what it loaded, and what it started."""

    code: int
    out: str
    said: str
    loaded: set[str]
    run: Run


def launch(house: House, *words: str, env: dict[str, str] | None = None) -> Seen:
    """Launch and see what is imported for it."""
    program = (sys.executable, "-X", "importtime", "-m", "drumline")
    command = house.command("train", *words, program=program, env=env or {})
    out, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in err
    lines = err.splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    said = "\n".join(line for line in lines if not line.startswith("import time:"))
    return Seen(command.returncode, out, said, loaded, house.runs()[-1])


def test_the_same_launch_reads_no_spec_and_is_the_same_run(house: House) -> None:
    house.write_spec(BOTH)
    first, second, third = launch(house), launch(house), launch(house)
    assert (first.code, second.code, third.code) == (0, 0, 0)
    assert first.loaded >= READERS
    assert not second.loaded & READERS
    assert not third.loaded & READERS
    assert (
        second.said
        == first.said.replace("run 1", "run 2")
        == "drumline: run 2 (bad-day): 1 chief and 1 worker on local"
    )
    assert _lines(second, "2") == _lines(first, "1")
    for seen in (second, third):
        number = seen.run.id
        plan = first.run.folder.plan_file.read_text().replace("bad-day-1-", f"bad-day-{number}-")
        assert json.loads(seen.run.folder.plan_file.read_text()) == {**json.loads(plan), "run": number}
        assert seen.run.folder.spec_file.read_bytes() == first.run.folder.spec_file.read_bytes()
        assert read_facts(seen.run.folder)["directory"] == str(house.project)


def test_in_the_background_it_prints_its_number(house: House) -> None:
    house.write_spec(BOTH)
    launch(house, "-d").run.wait_for(Phase.FINISHED)
    again = launch(house, "-d")
    assert (again.code, again.out) == (0, "2\n")
    assert not again.loaded & READERS
    again.run.wait_for(Phase.FINISHED)


def test_what_failed_fails_again_and_says_why(house: House) -> None:
    house.write_spec("run: echo broken >&2; exit 3")
    first, again = launch(house), launch(house)
    assert (first.code, again.code) == (1, 1)
    assert not again.loaded & READERS
    assert "broken" in again.out
    assert "Run 2 failed. First to fall: 2.worker.0, exit code 3" in again.out


@pytest.mark.parametrize("where", ["output", "checkpoint"])
def test_where_the_number_has_a_part_in_the_plan_every_run_gets_one_of_its_own(house: House, where: str) -> None:
    house.write_spec(f"{where}: 'at-{{{{ run }}}}'\nrun: echo here")
    first, again = launch(house), launch(house)
    assert again.loaded >= READERS
    assert ASKED not in read_facts(first.run.folder)
    assert getattr(again.run.folder.plan(), where) == "at-2"


def test_what_is_changed_is_read(house: House) -> None:
    house.write_spec("run: echo one")
    launch(house)
    house.write_spec("run: echo two")
    changed = launch(house)
    assert changed.loaded >= READERS
    assert changed.run.log("worker.0") == b"two\n"
    assert launch(house, "--name", "other").loaded >= READERS
    assert launch(house, "drumline.yml").loaded >= READERS
    assert not launch(house, "drumline.yml").loaded & READERS


def test_what_is_refused_is_refused_in_the_same_words(house: House) -> None:
    house.write_spec("run: echo here\nenv: {TOKEN: {from: TOKEN}}")
    assert launch(house, env={"TOKEN": "a"}).code == 0
    assert not launch(house, env={"TOKEN": "b"}).loaded & READERS
    refused = launch(house)
    assert refused.code == 2
    assert "needs the secret TOKEN from the variable TOKEN, which is not set" in refused.said
    assert len(house.runs()) == 2


def test_what_a_changed_script_does_is_said(house: House) -> None:
    house.write("task.py", "")
    house.write_spec("framework: tensorflow\ntensorboard: false\nroles: {worker: {replicas: 2, run: cat task.py}}")
    assert "TF_CONFIG" not in launch(house, "--no-warm").said
    house.write("task.py", "import os\nos.environ['TF_CONFIG'] = '{}'\n")
    again = launch(house, "--no-warm")
    assert not again.loaded & READERS
    assert "task.py:2: sets TF_CONFIG itself" in again.said


def test_a_home_that_cannot_be_written_is_one_clear_error(house: House) -> None:
    house.write_spec("run: echo here")
    launch(house)
    (house.home / "last-run").unlink()
    (house.home / "last-run").mkdir()
    again = launch(house)
    assert again.code == 3
    assert again.said == (
        f"error: cannot keep runs in {house.home}: Is a directory\n"
        "hint: set DRUMLINE_HOME to a folder that you may write to"
    )
    (house.home / "last-run").rmdir()


def test_ctrl_c_leaves_it_alone_and_says_how_to_come_back(house: House) -> None:
    house.write("go", "")
    house.write_spec(WAITING)
    assert launch(house).code == 0
    (house.project / "go").unlink()
    terminal = Terminal(house, "train")
    try:
        terminal.wait_for("here I am")
        terminal.press_ctrl_c()
        terminal.wait_for("run 2 goes on")
        assert terminal.wait() == 130
    finally:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()
    house.write("go", "")
    Run(house, "2").wait_for(Phase.FINISHED)


def test_an_interrupt_that_comes_before_anybody_could_answer_is_answered(house: House) -> None:
    """From the moment that there is a run it is held back, until the command has been loaded that can say so."""
    house.write("go", "")
    house.write_spec(WAITING)
    assert launch(house).code == 0
    (house.project / "go").unlink()
    slow = house.write("slow.py", _SLOW)
    command = house.command("train", program=(sys.executable, str(slow)))
    wait_until(lambda: house.exists("begun"))
    command.send_signal(signal.SIGINT)
    house.write("interrupted", "")
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 130
    assert "run 2 goes on" in err
    house.write("go", "")
    Run(house, "2").wait_for(Phase.FINISHED)


# The command line, whose run has begun and who does not come further until somebody has pressed Ctrl-C.
_SLOW = """
import os, sys, time
from drumline.__main__ import main
from drumline.supervise import launch

begin = launch.launch_again

def slowly(*arguments):
    assert begin(*arguments)
    open("begun", "w").close()
    while not os.path.exists("interrupted"):
        time.sleep(0.01)
    return True

launch.launch_again = slowly
main()
"""


def _lines(seen: Seen, number: str) -> set[str]:
    """What was shown of replicas, without when and in which order."""
    split = (line.partition("[") for line in seen.out.splitlines() if line.startswith(f"{number}."))
    return {f"{who.removeprefix(number)}{rest.partition('] ')[2]}" for who, _, rest in split}
