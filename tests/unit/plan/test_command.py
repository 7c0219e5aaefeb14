"""The arguments of a process for a `run`: with and without a shell, a command has the same effect."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumline.plan.command import commands, format_argv, make_argv, mistaken_words, texts
from drumline.spec.types import Run
from scaffold.effort import examples

SHELLS = list({str(Path(path).resolve()): path for name in ("bash", "dash", "sh") if (path := shutil.which(name))})


def perform(argv: tuple[str, ...], shell: str = "sh", cwd: Path | None = None) -> tuple[int, str]:
    """Execute the arguments, with `shell` in place of `sh`; return the exit code and the output."""
    words = [shell, *argv[1:]] if argv[0] == "sh" else list(argv)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(words, capture_output=True, env=environment, cwd=cwd, check=False)
    return done.returncode, done.stdout.decode()


def several(*commands: str) -> tuple[str, ...]:
    return make_argv(Run(shell=commands), {})


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("python train.py", ("python", "train.py")),
        ("  python\ttrain.py \n", ("python", "train.py")),
        (
            "python train.py --lr 0.1 --x=a:b,c/d.e@f%g+h_i",
            ("python", "train.py", "--lr", "0.1", "--x=a:b,c/d.e@f%g+h_i"),
        ),
        ("python 'my file.py' \"--name=it's\"", ("python", "my file.py", "--name=it's")),
        ("python -c 'print(1)\nprint(2)'", ("python", "-c", "print(1)\nprint(2)")),
        ("./run '' \"\"", ("./run", "", "")),
        ("'my program' x", ("my program", "x")),
    ],
)
def test_a_simple_command_needs_no_shell(command: str, argv: tuple[str, ...]) -> None:
    assert make_argv(Run(shell=command), {}) == argv


@pytest.mark.parametrize(
    "command",
    [
        "python train.py | tee log",
        "python train.py > log",
        "python a.py; python b.py",
        "python a.py && python b.py",
        "python a.py &",
        "python train.py $X",
        'python train.py "$X"',
        'python train.py "a\\b"',
        "python train.py `date`",
        "python train.py *.txt",
        "python train.py [ab]",
        "python train.py ~/data",
        "python train.py {a,b}",
        "python train.py # slowly",
        "python train.py \\\n  --lr 1",
        "python a.py\npython b.py",
        "python 'unclosed",
        "LR=1 python train.py",
        "cd src",
        "exec python train.py",
        "if true",
        "'if' true",
        "echo hello",
        "source env.sh",
        "! true",
        "''",
        "# nothing",
    ],
)
def test_any_other_command_is_passed_to_a_shell_unchanged(command: str) -> None:
    assert make_argv(Run(shell=command), {}) == ("sh", "-c", command)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("\n\n  echo a\n\n", "echo a"),
        ("echo a\\ ", "echo a\\ "),
        ("echo a \\\n", "echo a \\\n"),
        ("echo a\\  \n", "echo a\\  \n"),
        ("echo $a\u00a0", "echo $a\u00a0"),
    ],
)
def test_blanks_around_a_command_are_removed_unless_they_are_escaped(command: str, kept: str) -> None:
    assert make_argv(Run(shell=command), {}) == ("sh", "-c", kept)


PIECES = st.one_of(
    st.text(st.sampled_from("abz019_@%+=:,./-"), min_size=1, max_size=5),
    st.text(st.sampled_from("ab \t"), min_size=1, max_size=3),
    st.text(st.sampled_from('a \t\n"$`\\#*?~;&|(){}[]<>!é'), max_size=4).map(lambda text: f"'{text}'"),
    st.text(st.sampled_from("a \t\n'#*?~;&|(){}[]<>!é"), max_size=4).map(lambda text: f'"{text}"'),
)


@settings(max_examples=examples(60), deadline=None)
@given(tails=st.lists(st.lists(PIECES, max_size=6).map("".join), min_size=1, max_size=30))
def test_a_command_without_a_shell_gets_the_same_arguments_as_from_a_shell(tails: list[str]) -> None:
    plain = {tail: argv for tail in tails if (argv := make_argv(Run(shell=f"program {tail}"), {}))[0] == "program"}
    assert plain.keys() == set(tails)
    script = "\n".join(["program() { printf '%s\\0' program \"$@\"; echo; }", *(f"program {tail}" for tail in plain)])
    done = subprocess.run(["sh", "-f"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "".join("\0".join((*argv, "\n")) for argv in plain.values())


@settings(max_examples=examples(200))
@given(command=st.text(st.sampled_from("ab1=-./ \t\n'\"$\\#*;|{}~é")))
def test_a_command_without_a_shell_has_no_syntax_that_needs_one(command: str) -> None:
    argv = make_argv(Run(shell=command), {})
    if argv[:2] != ("sh", "-c"):
        assert list(argv) == shlex.split(command)
        assert "=" not in argv[0]


@settings(max_examples=examples(30), deadline=None)
@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))
def test_the_words_of_an_argv_arrive_as_they_are(words: list[str]) -> None:
    assume("{{" not in "".join(words))
    argv = make_argv(Run(argv=("printf", "%s\\0", "{{ p }}", *words)), {"p": "{{ p }}"})
    assert perform(argv) == (0, "\0".join(["{{ p }}", *words, ""]))


def test_values_are_inserted_into_arguments_without_quotes() -> None:
    run = Run(argv=("python", "train.py", "--name={{ name }}", "{{ name }}"))
    assert make_argv(run, {"name": "it's $5"}) == ("python", "train.py", "--name=it's $5", "it's $5")


@pytest.mark.parametrize("value", ["it's", 'say "hi"', "two words", "$(date)", "adam", "0.1", "", "é"])
def test_a_command_needs_no_shell_because_of_a_value(value: str) -> None:
    run = Run(shell="python train.py --name {{ name }} '{{ name }}' \"a={{ name }}\"")
    assert make_argv(run, {"name": value}) == ("python", "train.py", "--name", value, value, f"a={value}")


@pytest.mark.parametrize("shell", SHELLS)
class TestSeveralCommands:
    def test_they_run_in_order(self, shell: str) -> None:
        assert perform(several("echo one", "echo two", "echo three"), shell) == (0, "one\ntwo\nthree\n")

    @pytest.mark.parametrize("code", [1, 2, 42, 127, 130, 255])
    def test_the_first_failing_command_ends_the_list_with_its_exit_code(self, shell: str, code: int) -> None:
        assert perform(several("echo one", f"(exit {code})", "echo no"), shell) == (code, "one\n")

    def test_a_command_that_is_killed_by_a_signal_fails(self, shell: str) -> None:
        assert perform(several("sh -c 'kill -9 $$'", "echo no"), shell) == (137, "")

    def test_only_the_exit_code_of_a_whole_command_counts(self, shell: str) -> None:
        assert perform(several("false; echo one", "true; false", "echo no"), shell) == (1, "one\n")

    def test_they_share_one_shell(self, shell: str, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        argv = several("cd sub", "export A=1", "b=2", "f() { echo f; }", 'echo "${PWD##*/} $A $b"; f')
        assert perform(argv, shell, cwd=tmp_path) == (0, "sub 1 2\nf\n")

    def test_set_e_applies_to_the_later_commands(self, shell: str) -> None:
        assert perform(several("set -e", "false; echo no", "echo no"), shell) == (1, "")
        assert perform(several("echo one", "set -e\nfalse\necho no", "echo no"), shell) == (1, "one\n")

    def test_exit_ends_them_all(self, shell: str) -> None:
        assert perform(several("echo one", "exit 0", "echo no"), shell) == (0, "one\n")
        assert perform(several("echo one", "exit 7", "echo no"), shell) == (7, "one\n")

    def test_a_backslash_at_the_end_does_not_join_the_next_command(self, shell: str) -> None:
        assert perform(several("echo one \\\n", "echo two"), shell) == (0, "one\ntwo\n")
        assert perform(several("echo one \\", "echo two"), shell) == (0, "one \\\ntwo\n")

    def test_a_comment_at_the_end_does_not_include_the_next_command(self, shell: str) -> None:
        assert perform(several("echo one # it's", "echo two"), shell) == (0, "one\ntwo\n")

    @pytest.mark.parametrize("broken", ["echo 'one", 'echo "one', "echo $(", "if true", "(", ")"])
    def test_an_unclosed_quote_or_bracket_is_an_error_and_does_not_include_the_next_command(
        self, shell: str, broken: str
    ) -> None:
        code, output = perform(several("echo zero", broken, "echo no"), shell)
        assert (code != 0, output) == (True, "zero\n")

    def test_a_here_document_does_not_include_the_next_command(self, shell: str) -> None:
        assert perform(several("cat <<E\none\nE", "echo two"), shell) == (0, "one\ntwo\n")

    def test_positional_parameters_and_variables_of_a_command_do_not_change_the_order(self, shell: str) -> None:
        assert perform(several("set -- a b; command=x", "shift", "echo $1"), shell) == (0, "b\n")

    def test_a_trap_runs_at_the_end(self, shell: str) -> None:
        assert perform(several("trap 'echo bye' EXIT", "echo one"), shell) == (0, "one\nbye\n")


def test_a_list_with_one_command_is_the_same_as_the_command() -> None:
    assert make_argv(Run(shell=("python train.py",)), {}) == ("python", "train.py")


def test_commands_and_texts_of_a_run() -> None:
    assert commands(Run(shell="a")) == ("a",)
    assert commands(Run(shell=("a", "b"))) == ("a", "b")
    assert commands(Run(argv=("a", "b"))) == ()
    assert list(texts(Run(shell=("a", "b")))) == ["a", "b"]
    assert list(texts(Run(argv=("a", "b")))) == ["a", "b"]


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (Run(shell="python train.py --name 'a b'"), "python train.py --name 'a b'"),
        (Run(shell="cd x && python y"), "cd x && python y"),
        (Run(shell=("cd x", "python y")), "cd x && python y"),
        (Run(shell=("cd x", "a\nb")), "cd x && 'a\\nb'"),
        (Run(argv=("python", "a b")), "python 'a b'"),
    ],
)
def test_arguments_are_shown_as_a_command_line(run: Run, text: str) -> None:
    assert format_argv(make_argv(run, {})) == text


@pytest.mark.parametrize(
    "run",
    [
        Run(shell=("python", "train.py")),
        Run(shell=("/usr/bin/python3.11", "train.py", "--fast")),
        Run(shell=("train", "--fast")),
        Run(shell=("torchrun", "train.py")),
    ],
)
def test_arguments_that_are_written_as_a_list_of_commands_cause_a_warning(run: Run) -> None:
    assert "run: {argv: [" in (mistaken_words(run) or "")


@pytest.mark.parametrize(
    "run",
    [
        Run(shell="python train.py"),
        Run(shell=("python",)),
        Run(shell=("cd x", "python train.py")),
        Run(shell=("python a.py", "python b.py")),
        Run(argv=("python", "--fast")),
    ],
)
def test_a_list_of_commands_causes_no_warning(run: Run) -> None:
    assert mistaken_words(run) is None


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("sh", "-c", "a | b"), "a | b"),
        (("sh", "-c", "a $1", "b"), "sh -c 'a $1' b"),
        (("python", "train.py", "a b"), "python train.py 'a b'"),
    ],
)
def test_only_a_shell_with_one_command_is_shown_as_that_command(argv: tuple[str, ...], text: str) -> None:
    assert format_argv(argv) == text
