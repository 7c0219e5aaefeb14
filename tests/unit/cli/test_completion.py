"""Completion through the environment variables that shells set."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.cli import run

BIN = Path(sys.executable).parent


def ask(shell: str, *words: str) -> str:
    """Return the answer to a shell that completes the last word."""
    asked = {"_DRUMLINE_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": words[-1]}
    if shell != "fish":
        asked["COMP_CWORD"] = str(len(words) - 1)
    done = subprocess.run(
        [BIN / "drumline"], env={"PATH": os.environ["PATH"], **asked}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["drumline", "ch"], "plain,check\n"),
        (["drumline", "comp"], "plain,completion\n"),
        (["drumline", "completion", ""], "plain,bash\nplain,zsh\nplain,fish\n"),
        (["drumline", "render", "--o"], "plain,--on\nplain,--output\n"),
        (["drumline", "render", "-o", "j"], "plain,json\n"),
        (["drumline", "render", ""], "file,\n"),
    ],
)
def test_bash_gets_the_matching_words(words: list[str], answer: str) -> None:
    assert ask("bash", *words) == answer


def test_zsh_and_fish_get_the_meaning_of_each_word() -> None:
    assert ask("zsh", "drumline", "ch").startswith("plain\ncheck\nList every problem of a spec")
    assert ask("fish", "drumline", "ch").startswith("plain,check\tList every problem of a spec")


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_bash_completes_words_of_drumline_after_it_has_read_the_script() -> None:
    script = """
        eval "$(drumline completion bash)"
        complete -p drumline
        COMP_WORDS=(drumline ch) COMP_CWORD=1
        _drumline_completion drumline
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout == "complete -o nosort -F _drumline_completion drumline\ncheck\n"


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_a_shell_can_read_its_script(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capfd.readouterr().out
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no-files")]
)
def test_each_shell_has_its_script(shell: str, word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capfd.readouterr().out
    assert word in script
    assert f"_DRUMLINE_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capfd.readouterr().err
