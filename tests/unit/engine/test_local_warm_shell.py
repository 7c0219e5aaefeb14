"""The program that a shell command starts, compared with the shells of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumline.engine.local.warm.client import WarmSettings, make_warm_request
from drumline.engine.local.warm.command import NotWarm
from drumline.engine.local.warm.shell import GIVEN_LATER, Executed, resolve_shell
from drumline.plan.command import make_argv
from drumline.spec.types import Run
from scaffold.effort import examples

SHELLS = ["sh", "bash"]
TELL = """
import json, os, sys
variables = [(os.fsdecode(name), os.fsdecode(value)) for name, value in os.environb.items()]
json.dump([sys.orig_argv, variables, os.getcwd(), os.getpid() != os.getsid(0)], open(os.environ["ANSWER"], "w"))
"""

_plain = st.text("abc/.:=,@%+-*?[]{}~!^é", min_size=1, max_size=6)
_any = st.text("a \t\n$`\"'\\|&;<>()#*~é", max_size=6)
_parameter = st.sampled_from(
    ["$A", "${B}", "$EMPTY", "$NONE", "${NONE:-x.y}", "${A-x}", "$PWD", "$HOME", "$1", "$@", "$*"]
)
_piece = st.one_of(
    _plain,
    _parameter,
    _any.map(lambda text: "'" + text.replace("'", "") + "'"),
    st.lists(st.one_of(_parameter, _plain, st.sampled_from([" ", "\\$", "\\\\", '\\"', "'", ";", "\n"]))).map(
        lambda pieces: f'"{"".join(pieces)}"'
    ),
    st.sampled_from(["\\ ", "\\$", "\\'", "\\*", "\\;"]),
)
_word = st.lists(_piece, min_size=1, max_size=3).map("".join)
_assignment = st.builds("{}={}".format, st.sampled_from(["A", "B", "C", "HOME", "IFS", "PYTHONPATH"]), _word)
_blank = st.sampled_from([" ", "  ", "\t", " \\\n  "])
_preparation = st.one_of(
    st.sampled_from(["cd d", "cd 'd e'", 'cd "$A"', "cd d/..", "cd link", "cd link/..", "cd ..", "cd .", "cd /"]),
    _assignment.map("export {}".format),
    _assignment,
    st.sampled_from(["export A", "export NONE", "set -e", "set -eu", "set -u"]),
)
_separator = st.sampled_from([" && ", "&&", "; ", ";", "\n", " &&\n  "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw a shell command that only starts `python tell.py` with some words."""
    before = "".join(draw(_preparation) + draw(_separator) for _ in range(draw(st.integers(0, 3))))
    own = "".join(draw(_assignment) + draw(_blank) for _ in range(draw(st.integers(0, 2))))
    execute = draw(st.sampled_from(["", "", "exec "]))
    words = "".join(draw(_blank) + draw(_word) for _ in range(draw(st.integers(0, 3))))
    return f'{before}{own}{execute}python -IS "$TELL"{words}{draw(st.sampled_from(["", "", " ", ";", chr(10)]))}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a `python`, and with folders and files for `cd` and patterns."""
    folder = tmp_path_factory.mktemp("shell") / "deep" / "below"  # no line leaves it for where other tests write
    for name in ("bin", "work/d", "work/d e", "far/away", "answers"):
        (folder / name).mkdir(parents=True)
    (folder / "work/link").symlink_to("../far/away")
    for name in ("a", "b.c", "abc"):
        (folder / "work" / name).touch()
    (folder / "bin/python").symlink_to(os.path.realpath(sys.executable))
    (folder / "tell.py").write_text(TELL)
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "A": "d",
        "B": "a * b",
        "EMPTY": "",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "OLDPWD": "/nowhere",
        "PWD": "/elsewhere",
        "_": "/bin/before",
        "not a name": "1",
        "TELL": f"{folder}/tell.py",
        "ANSWER": f"{folder}/answers/last",
    }


def execute(argv: Sequence[str], env: dict[str, str], workdir: Path) -> tuple[list[object] | None, str]:
    """Run a command; return what the started Python has written, None if none was started, and the output."""
    answer = Path(env["ANSWER"])
    answer.unlink(missing_ok=True)
    started = {**env, **dict.fromkeys(GIVEN_LATER, "")}
    done = subprocess.run(
        argv,
        cwd=workdir,
        env=started,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    return json.loads(answer.read_text()) if answer.exists() else None, said


def compare(folder: Path, argv: Sequence[str]) -> bool:
    """Compare the resolved program of a command with the started one; return False if it cannot be resolved."""
    env = environment(folder)
    found, said = execute(argv, env, folder / "work")
    try:
        executed = asyncio.run(resolve_shell(argv, env, str(folder / "work")))
    except NotWarm as problem:
        reason = str(problem)
    else:
        expected = [list(executed.argv), [[*item] for item in executed.env.items()], executed.workdir]
        assert found == [*expected, bool(executed.parent)]
        return True
    # The shell printed an error, or it is bash, which stays the parent of Python for a line with `;` and then `&&`.
    assert found is None or said or (reason == "bash stays its parent" and found[3])
    return False


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_command_resolves_to_what_the_shell_starts(folder: Path, shell: str) -> None:
    known = []

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(lines())
    def check(line: str) -> None:
        known.append(compare(folder, [shell, "-c", line, "zero", "d", "e f"]))

    check()
    assert known.count(True) > len(known) / 4


_INSERTED = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        [
            *";&|({<>`! \n\\#",
            "&&",
            "||",
            "$(",
            "${",
            "<(",
            "\\\n",
            "';",
            '";',
            "$'\\'';",
            "eval ",
            "time ",
            "if ",
            "exec ",
        ]
    ),
    st.sampled_from(["program", "program", "$B", "$1"]),
    st.sampled_from([*" ;&|)}`'\"\n#", "", "&&", "; then ", "() { "]),
)


@pytest.mark.parametrize("shell", SHELLS)
def test_only_the_shell_runs_to_find_what_a_command_starts(folder: Path, shell: str) -> None:
    program = folder / "bin/program"
    program.write_text(f"#!/bin/sh\n: > {folder}/answers/run\n")
    program.chmod(0o755)
    env = {**environment(folder), "B": "program", "A": "d; program"}

    @settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
    @given(lines(), _INSERTED, st.integers(0, 60))
    def check(line: str, inserted: str, at: int) -> None:
        with suppress(NotWarm):
            argv = [shell, "-c", f"{line[:at]}{inserted}{line[at:]}", "zero", "program"]
            asyncio.run(resolve_shell(argv, env, str(folder / "work")))
        assert not (folder / "answers/run").exists()

    check()


@pytest.mark.parametrize("options", [["-c"], ["-e", "-c"], ["-ec"], ["-ce"], ["-euc"], ["-eu", "-o", "errexit", "-c"]])
@pytest.mark.parametrize("shell", ["/bin/sh", "sh", "bash", "/bin/bash"])
def test_a_shell_may_have_any_path_and_options(folder: Path, shell: str, options: list[str]) -> None:
    assert compare(folder, [shell, *options, 'cd d && python -IS "$TELL" --x 1'])


@pytest.mark.skipif(os.path.realpath("/bin/sh") != os.path.realpath("/bin/dash"), reason="`sh` is not dash here")
def test_a_list_of_commands_starts_what_its_shell_starts(folder: Path) -> None:
    run = Run(shell=("cd d", "export C='x y' A=1", 'python -IS "$TELL" $A "$C"'))
    assert compare(folder, make_argv(run, {}))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("python x.py | tee log", "has '|'"),
        ("python x.py || true", "has '||'"),
        ("python x.py > log", "has '>'"),
        ("python x.py 2>&1", "has '>&'"),
        ("python x.py < data", "has '<'"),
        ("python x.py &", "has '&'"),
        ("python x.py $(date)", r"has '\$\('"),
        ('python x.py "$(date)"', "has '\"\\$'"),
        ("python x.py `date`", "has '`d'"),
        ('python x.py "`date`"', "has '\"`'"),
        ("python x.py $((1 + 1))", r"has '\$\('"),
        ("python x.py ${A%b}", r"has '\$\{'"),
        ("python x.py ${A:=b}", r"has '\$\{'"),
        ("python x.py $'a'", 'has "\\$\'"'),
        ("python x.py $$", r"has '\$\$'"),
        ("python x.py $RANDOM", r"has \$RANDOM"),
        ("python x.py ${BASHPID}", r"has \$BASHPID"),
        ("python x.py $DRUMLINE_TRACE", r"has \$DRUMLINE_TRACE"),
        ("python x.py # now", "has '#'"),
        ("(python x.py)", r"has '\(p'"),
        ("{ python x.py; }", "has another command: {"),
        ("python x.py 'open", 'has "\'o"'),
        ("pip install x && python x.py", "has another command: pip"),
        (". venv/bin/activate && python x.py", r"has another command: \."),
        ("python x.py; exit 3", "has another command: python"),
        ("cd && python x.py", "has another command: cd"),
        ("cd -P d && python x.py", "has another command: cd"),
        ("export -p && python x.py", "has another command: export"),
        ("set -x; python x.py", "has another command: set"),
        ("umask 0; python x.py", "has another command: umask"),
        ("./train.sh", "runs ./train.sh, not Python"),
        ("time python x.py", "runs time, not Python"),
        ("A+=1 python x.py", r"runs A\+=1, not Python"),
        ("cd d", "runs cd, not Python"),
        ("", "runs nothing, not Python"),
    ],
)
def test_a_shell_command_that_does_anything_else_is_never_run(folder: Path, line: str, reason: str) -> None:
    with pytest.raises(NotWarm, match=f"^its command for bash {reason}$"):
        asyncio.run(resolve_shell(["bash", "-c", line], environment(folder), str(folder)))


@pytest.mark.parametrize(
    ("argv", "env", "reason"),
    [
        (["bash", "-lc", "python x.py"], {}, "bash -lc"),
        (["bash", "--login", "-c", "python x.py"], {}, "bash --login"),
        (["bash", "-c", "-x", "python x.py"], {}, "bash -x"),
        (["bash", "-o", "posix", "-c", "python x.py"], {}, "bash -o"),
        (["sh", "train.sh"], {}, "sh train.sh"),
        (["sh", "-e", "python"], {}, "sh python"),
        (["sh", "-c"], {}, "sh without a command"),
        (["sh"], {}, "sh without a command"),
        (["bash", "-c", "python x.py"], {"BASH_ENV": "x"}, "BASH_ENV is set"),
        (["sh", "-c", "python x.py"], {"ENV": "x"}, "ENV is set"),
        (["bash", "-c", "python x.py"], {"BASH_FUNC_cd%%": "() { :; }"}, "BASH_FUNC_cd%% is set"),
        (["bash", "-c", "python x.py"], {"SSH_CLIENT": "1"}, "bash may read ~/.bashrc"),
        (["bash", "-c", "python x.py"], {"SHELLOPTS": "xtrace"}, r"bash prints '\+ .*'"),
        (["sh", "-c", "cd nothing && python x.py"], {}, "sh prints .*nothing.*"),
        (["sh", "-c", "cd work && python x.py"], {"CDPATH": "{folder}"}, "sh prints '{folder}/work'"),
        (["bash", "-c", "python x.py"], {"PATH": "bin:/bin"}, "PATH has a relative folder"),
        (["sh", "-c", "PATH= python x.py"], {}, "PATH is not set"),
        (["bash", "-c", "PATH=/bin: python x.py"], {}, "PATH has a relative folder"),
        (
            ["bash", "-c", "cd d && python x.py"],
            {"PATH": "{folder}/other:/bin"},
            "bash is cat, which is not a known shell",
        ),
    ],
)
def test_a_shell_that_does_more_than_its_command_starts_cold(
    folder: Path, argv: list[str], env: dict[str, str], reason: str
) -> None:
    other = folder / "other"
    other.mkdir(exist_ok=True)
    if not (other / "bash").exists():
        (other / "bash").symlink_to(str(shutil.which("cat")))
    env = {name: value.replace("{folder}", str(folder)) for name, value in env.items()}
    with pytest.raises(NotWarm, match=f"^{reason.replace('{folder}', str(folder))}$"):
        asyncio.run(resolve_shell(argv, {**environment(folder), **env}, str(folder)))


def test_a_bash_that_ssh_did_not_start_reads_no_file(folder: Path) -> None:
    env = {**environment(folder), "SSH_CLIENT": "1", "SHLVL": "1"}
    assert asyncio.run(resolve_shell(["bash", "-c", "python x.py"], env, str(folder))).argv == ("python", "x.py")


def test_the_loop_continues_while_a_shell_runs(folder: Path) -> None:
    async def ask() -> bool:
        asked = asyncio.ensure_future(resolve_shell(["sh", "-c", "python x.py"], environment(folder), str(folder)))
        await asyncio.sleep(0)
        is_done = asked.done()
        assert (await asked).argv == ("python", "x.py")
        return is_done

    assert not asyncio.run(ask())


def test_a_command_without_a_shell_is_what_it_executes(tmp_path: Path) -> None:
    executed = asyncio.run(resolve_shell(["python", "x.py"], {"A": "1"}, str(tmp_path)))
    assert executed == Executed(("python", "x.py"), {"A": "1"}, str(tmp_path))


def warm_variables(folder: Path, line: str, *, secrets: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the variables that the warm process for this line would have."""
    (folder / "work/x.py").write_text("import torch\n")
    kind = WarmSettings("torch", (), 600.0, frozenset({"RANK"}), secrets)
    (folder / "work/link1").mkdir(exist_ok=True)
    env = {**environment(folder), "LINK": "link", "RANK": "1", "MY_TOKEN": "secret", "OTHER": "secret"}
    return dict(asyncio.run(make_warm_request(kind, ["sh", "-c", line], env, str(folder / "work"))).env)


def test_a_variable_that_a_shell_command_sets_is_set_when_the_framework_is_imported(folder: Path) -> None:
    env = warm_variables(folder, "export PYTHONPATH=$PWD/d:$HOME; OMP_NUM_THREADS=3 python x.py")
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["PYTHONPATH"].split(":") == [str(folder / "work" / "d"), str(folder)]


def test_a_value_of_one_replica_or_a_secret_under_another_name_is_in_no_warm_process(folder: Path) -> None:
    line = "export C=$MY_TOKEN && D=x$C E=$RANK F=${OTHER} G=$A python x.py"
    env = warm_variables(folder, line, secrets=frozenset({"OTHER"}))
    assert {"C", "D", "E", "F", "MY_TOKEN", "OTHER", "RANK"}.isdisjoint(env)
    assert env["G"] == "d"
    assert "secret" not in str(env)


def test_a_value_of_one_replica_that_an_import_reads_starts_cold(folder: Path) -> None:
    with pytest.raises(NotWarm, match=r"^PYTHONPATH comes from PWD, and may be read when torch is imported$"):
        warm_variables(folder, "cd $LINK$RANK/.. && PYTHONPATH=$PWD python x.py")
    with pytest.raises(NotWarm, match=r"^OMP_NUM_THREADS comes from RANK, and may be read when torch is imported$"):
        warm_variables(folder, "OMP_NUM_THREADS=$RANK python x.py")
    assert "CUDA_VISIBLE_DEVICES" not in warm_variables(folder, "CUDA_VISIBLE_DEVICES=$RANK python x.py")
