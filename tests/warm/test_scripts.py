"""A script behaves the same when it is forked from a warm process and when it starts cold."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from drumline.engine.local.warm.pool import list_warm_processes
from drumline.plan.types import Plan
from drumline.run.event import Exit, ReplicaStarted
from scaffold.gangs import gang
from scaffold.supervised import SessionRecorder
from scaffold.testbeds import LocalTestBed, WarmTestBed
from scaffold.waiting import wait_until
from warm.scripts import SCRIPTS


class Outcome(NamedTuple):
    """The output of a script, its files, and its exit."""

    exit: Exit
    log: str
    files: list[tuple[str, bytes]]


# A shell that stays the parent, and one that becomes Python.
SHELLS = [("sh", "-c"), ("bash", "-ec")]


@pytest.mark.parametrize("shell", [(), *SHELLS], ids=" ".join)
def test_every_script_behaves_the_same_warm_and_cold(tmp_path: Path, shell: tuple[str, ...]) -> None:
    commands = {name: _in_shell(shell, f"{_stem(name)}.py", "--lr", "0.1") for name in SCRIPTS}
    cold, _ = _run_all(tmp_path, commands, warm=False)
    warm, notes = _run_all(tmp_path, commands, warm=True)
    assert {name: note for name, note in notes.items() if note != "warm"} == {
        "modules": "cold: see_modules.py uses sys.modules",
        "null": "cold: see_null.py is not text",
    }
    # The stack of a replica that dies by a signal has one frame more, at its bottom.
    bottom = re.compile(r'  File "[^"]*runtime/warm.py", line \d+ in <module>\n(?=(?:Aborted\n)?\Z)')
    warm["aborted"] = warm["aborted"]._replace(log=bottom.sub("", warm["aborted"].log))
    assert {name: outcome for name, outcome in warm.items() if outcome != cold[name]} == {
        name: outcome for name, outcome in cold.items() if outcome != warm[name]
    }


def test_every_form_of_a_command_behaves_the_same_warm_and_cold(tmp_path: Path) -> None:
    commands = {
        "dot": ("./see_path.py",),
        "below": ("./sub/../see_path.py", "a b"),
        "linked": ("link.py",),
        "unbuffered": ("-u", "see_path.py"),
        "optimised": ("-OO", "see_assert.py"),
        "warned": ("-W", "error", "see_warning.py"),
        "developing": ("-Xdev", "see_interpreter.py"),
        "module": ("-m", "see_path", "--lr", "1"),
        "module names": ("-m", "see_names"),
        "package": ("-m", "package", "x"),
        "submodule": ("-m", "package.sub"),
        "module fails": ("-m", "see_raises"),
        "no module": ("-m", "nothing"),
        "module of the library": ("-m", "json.tool", "--help"),
    }
    cold, _ = _run_all(tmp_path, commands, warm=False)
    warm, notes = _run_all(tmp_path, commands, warm=True)
    assert set(notes.values()) == {"warm"}
    assert warm == cold


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_command_that_only_starts_python_behaves_the_same_warm_and_cold(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    python = shlex.quote(sys.executable)
    look = ["see_path.py", "see_place.py", "see_environment.py", "see_order_of_variables.py", "see_parent.py"]
    lines = {
        "folder": f"cd sub && {python} ../SCRIPT",
        "link": f"cd linked && {python} $OLDPWD/SCRIPT",
        "up": f"cd linked/.. && {python} SCRIPT",
        "variable": f"A=1 HOME=/x {python} SCRIPT $A $HOME",
        "exported": f"export A='a b' B=$HOME/x; C=$A; {python} SCRIPT $A \"$A\" ${{B}} $C ${{NONE:-none}}",
        "lines": f"set -e\ncd sub\ncd ..\n{python} SCRIPT \\\n    --lr 0.1\n",
        "exec": f"cd sub && cd .. && A=1 exec {python} SCRIPT",
        "module": f"cd package && cd .. && {python} -u -m package",
        "found": f"PATH={os.path.dirname(python)}:/bin python SCRIPT",  # noqa: PTH120
        "glob": f"{python} SCRIPT packag[e]/s*.py ~/x",
        "arguments": f'{python} SCRIPT "$@" $0',
    }
    commands = {
        f"{name} {script}": (*shell, line.replace("SCRIPT", script), "zero", "a b", "c")
        for name, line in lines.items()
        for script in look
    }
    cold, _ = _run_all(tmp_path, commands, warm=False)
    warm, notes = _run_all(tmp_path, commands, warm=True)
    assert {name: note for name, note in notes.items() if note != "warm"} == {}
    assert {name: outcome for name, outcome in warm.items() if outcome != cold[name]} == {
        name: outcome for name, outcome in cold.items() if outcome != warm[name]
    }
    assert {outcome.exit for outcome in warm.values()} == {Exit(code=0)}


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("to_group", [True, False], ids=["group", "process"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGSEGV, signal.SIGRTMIN])
def test_a_signal_to_a_replica_in_a_shell_has_the_same_effect_warm_and_cold(
    tmp_path: Path, shell: tuple[str, ...], number: signal.Signals, *, to_group: bool
) -> None:
    scripts = {
        "signalled": f"""
            import os, signal
            signal.signal({number.value}, signal.SIG_DFL)
            os.{"killpg(os.getpgid(0)" if to_group else "kill(os.getpid()"}, {number.value})
            signal.pause()
        """
    }
    outcome = _same_in_shell(tmp_path, shell, "signalled", scripts)
    assert outcome.exit in (Exit(signal=number), Exit(code=128 + number))


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_script_in_a_shell_that_saves_on_term_does_so_warm_and_cold(tmp_path: Path, shell: tuple[str, ...]) -> None:
    scripts = {
        "saves": """
            import os, pathlib, signal
            def save(*_):
                pathlib.Path("saved.txt").write_text("all")
                os._exit(3)
            signal.signal(signal.SIGTERM, save)
            os.killpg(os.getpgid(0), signal.SIGTERM)
            signal.pause()
        """
    }
    assert _same_in_shell(tmp_path, shell, "saves", scripts).files == [("saved.txt", b"all")]


@pytest.mark.parametrize(
    ("command", "env", "reason"),
    [
        (("-c", "print(1)"), {}, "python -c"),
        (("-i", "see_path.py"), {}, "python -i"),
        (("missing.py",), {}, "missing.py is not a script"),
        (("package",), {}, "package is not a script"),
        (("sh", "-c", "cd missing && python see_path.py"), {}, 'sh prints "sh: 1: cd: can\'t cd to missing"'),
        (("sh", "-c", "python see_path.py | cat"), {}, "its command for sh has '|'"),
        (("sh", "-c", "python see_path.py; exit 3"), {}, "its command for sh has another command: python"),
        (("see_path.py",), {"PYTHONHASHSEED": "1"}, "PYTHONHASHSEED is set"),
        (("see_path.py",), {"PYTHONPATH": "sub"}, "PYTHONPATH has a relative folder"),
        (("see_path.py",), {"PYTHONPATH": "{own}"}, "there is a sitecustomize, {own}/sitecustomize.py"),
    ],
)
def test_a_command_that_would_behave_differently_starts_cold(
    tmp_path: Path, command: tuple[str, ...], env: dict[str, str], reason: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    env = {name: value.format(own=own) for name, value in env.items()}
    cold, _ = _run_all(tmp_path, {"it": command}, env, warm=False)
    warm, notes = _run_all(tmp_path, {"it": command}, env, warm=True)
    assert notes == {"it": f"cold: {reason.format(own=own)}"}
    assert warm == cold


def test_a_file_that_takes_the_place_of_a_loaded_module_is_imported_instead_of_it(tmp_path: Path) -> None:
    scripts = {"shadow": "import json; print(json.__file__)"}
    commands = {"shadow": ("see_shadow.py",)}
    extra = {"json.py": "ORIGIN = 'mine'"}
    cold, _ = _run_all(tmp_path, commands, warm=False, scripts=scripts, extra=extra)
    warm, notes = _run_all(tmp_path, commands, warm=True, scripts=scripts, extra=extra)
    assert notes == {"shadow": "cold: json.py beside the script shadows a module that is already loaded"}
    assert warm == cold
    assert "project/json.py" in warm["shadow"].log


def test_no_two_replicas_draw_the_same_random_numbers(tmp_path: Path) -> None:
    scripts = {f"draw-{number}": "import random, uuid; print(random.random(), uuid.uuid4())" for number in range(4)}
    warm, _ = _run_all(tmp_path, {name: (f"{_stem(name)}.py",) for name in scripts}, warm=True, scripts=scripts)
    assert len({outcome.log for outcome in warm.values()}) == 4


def test_a_warm_process_is_unchanged_after_a_hundred_replicas(tmp_path: Path) -> None:
    scripts = {"small": "print('here')"}
    with _seat(tmp_path, {"small": ("see_small.py",)}, {}, scripts=scripts) as recorder:
        for attempt in range(100):
            _start_and_wait(recorder, attempt)
            if attempt == 0:
                before = _state_at_rest(tmp_path)
        wait_until(lambda: _state_at_rest(tmp_path).descriptors <= before.descriptors)
        after = _state_at_rest(tmp_path)
    assert after.pid == before.pid
    assert after.private_pages <= before.private_pages + 64


class _State(NamedTuple):
    pid: int
    descriptors: int
    children: int
    private_pages: int


def _state_at_rest(folder: Path) -> _State:
    """Return the state of the warm process after the end of its replicas; it may need a moment to reap the last one."""
    found: list[_State] = []

    def is_at_rest() -> bool:
        found[:] = [_state_of(known.pid) for known in list_warm_processes(folder / "home")]
        return [state.children for state in found] == [0]

    wait_until(is_at_rest)
    return found[0]


def _state_of(pid: int) -> _State:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    anonymous = int(re.findall(r"Anonymous: +(\d+) kB", rollup)[0])
    return _State(pid, len(list(Path(f"/proc/{pid}/fd").iterdir())), len(children), anonymous // 4)


def _start_and_wait(recorder: SessionRecorder, attempt: int) -> None:
    recorder.start(attempt)
    recorder.until(lambda: len(recorder.ends(attempt)) == 1)
    assert recorder.exits(attempt)[recorder.plan.replicas[0].id] == Exit(code=0)


def _run_all(
    folder: Path,
    commands: Mapping[str, tuple[str, ...]],
    env: Mapping[str, str] = MappingProxyType({}),
    *,
    warm: bool,
    scripts: Mapping[str, str] = SCRIPTS,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Run these commands concurrently, each in its own folder; return the outcome of each, and how it was started."""
    with _seat(folder, commands, env, warm=warm, scripts=scripts, extra=extra) as recorder:
        recorder.start()
        recorder.until(lambda: len(recorder.ends()) == len(commands))
        notes = {event.replica: event.note for event in recorder.told if isinstance(event, ReplicaStarted)}
        exits = recorder.exits()
        found = {}
        for name, replica in zip(commands, recorder.plan.replicas, strict=True):
            project = _project(folder, replica.id.index)
            log = recorder.log(replica.id).replace(f"workspace-{replica.id.index}/", "workspace/")
            files = sorted((str(path.relative_to(project)), path.read_bytes()) for path in project.rglob("*.txt"))
            found[name] = Outcome(exits[replica.id], _without_addresses(log), files)
        names = {replica.id: name for name, replica in zip(commands, recorder.plan.replicas, strict=True)}
        return found, {names[replica]: note for replica, note in notes.items()}


def _without_addresses(log: str) -> str:
    """Return the text without addresses, which differ in every process."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", log)


@contextmanager
def _seat(
    folder: Path,
    commands: Mapping[str, tuple[str, ...]],
    env: Mapping[str, str],
    *,
    warm: bool = True,
    scripts: Mapping[str, str] = SCRIPTS,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SessionRecorder]:
    run_dir = folder / ("warm" if warm else "cold")
    testbed = WarmTestBed(folder) if warm else LocalTestBed(folder)
    try:
        plan = _plan(commands, env)
        recorder = SessionRecorder(testbed, run_dir, testbed.of(plan) if warm else plan)
        for index in range(len(commands)):
            _furnish(_project(folder, index), scripts, extra)
        launches = recorder.launches

        def each_at_home(attempt: int = 0):  # type: ignore[no-untyped-def]
            return tuple(
                launch.replace(place=launch.place.replace(workdir=str(_project(folder, launch.replica.id.index))))
                for launch in launches(attempt)
            )

        recorder.launches = each_at_home  # type: ignore[method-assign]
        yield recorder
        recorder.loop.wait(recorder.session.release())
    finally:
        testbed.close()


def _same_in_shell(folder: Path, shell: tuple[str, ...], name: str, scripts: dict[str, str]) -> Outcome:
    """Run a script in a shell, cold and warm; check that both outcomes are the same, and return them."""
    commands = {name: _in_shell(shell, f"{_stem(name)}.py")}
    cold, _ = _run_all(folder, commands, warm=False, scripts=scripts)
    warm, notes = _run_all(folder, commands, warm=True, scripts=scripts)
    assert notes == {name: "warm"}
    assert warm == cold
    return warm[name]


def _in_shell(shell: tuple[str, ...], *words: str) -> tuple[str, ...]:
    """Return the command of a shell that starts Python with these arguments; without a shell, only the arguments."""
    return (*shell, shlex.join((sys.executable, *words))) if shell else words


def _stem(name: str) -> str:
    """Return the name of a script's file, which is not the name of a module."""
    return f"see_{name.replace(' ', '_')}"


def _project(folder: Path, index: int) -> Path:
    return folder / f"workspace-{index}" / "project"


def _plan(commands: Mapping[str, tuple[str, ...]], env: Mapping[str, str]) -> Plan:
    plan = gang(f"worker*{len(commands)} framework=plain")
    return plan.replace(
        replicas=tuple(
            replica.replace(argv=words if words[0] in ("sh", "bash") else (sys.executable, *words), env=env)
            for replica, words in zip(plan.replicas, commands.values(), strict=True)
        )
    )


def _furnish(project: Path, scripts: Mapping[str, str], extra: Mapping[str, str]) -> None:
    """Write the scripts again, so that cold and warm runs find the same files."""
    (project / "package").mkdir(parents=True, exist_ok=True)
    (project / "sub").mkdir(exist_ok=True)
    (project.parent / "far" / "away").mkdir(parents=True, exist_ok=True)
    if not (project / "linked").is_symlink():
        (project / "linked").symlink_to("../far/away")
    for name, text in scripts.items():
        encoding = "latin-1" if "latin-1" in text else "utf-8"
        (project / f"{_stem(name)}.py").write_text(textwrap.dedent(text), encoding=encoding)
    for name, text in {
        "neighbour.py": "ORIGIN = 'beside the script'",
        "package/__init__.py": "",
        "package/__main__.py": "import sys; print(__name__, __package__, __spec__.name, sys.argv, sys.path[0])",
        "package/sub.py": "from . import __name__ as parent; print(__name__, parent, __file__)",
        **extra,
    }.items():
        (project / name).write_text(text)
    for path in project.rglob("*.txt"):
        path.unlink()
    if not (project / "link.py").is_symlink():
        (project / "link.py").symlink_to("see_path.py")
