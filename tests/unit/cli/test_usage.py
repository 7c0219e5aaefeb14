"""An invalid command line is reported like any other mistake: one sentence, one hint, exit code 2."""

from __future__ import annotations

import pytest

from drumline.cli import COMMANDS, run
from drumline.cli.synonyms import SYNONYMS


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["train", "--nonsense"], "No such option '--nonsense'", "`drumline train --help` shows its options"),
        (["logs"], "Missing argument 'ID'", "`drumline status` lists the runs"),
        (["kill"], "Missing argument 'ID...'", "`drumline status` lists the runs"),
        (["cp", "1:model"], "Missing argument 'TARGET'", "`drumline cp --help` shows its options"),
        (["logs", "1", "--tail", "x"], "Invalid value for '--tail'", "`drumline logs --help` shows its options"),
        (["trian"], "no command `trian`", "did you mean `drumline train`?"),
        (["apply", "-f", "tfjob.yaml"], "no command `apply`", "did you mean `drumline train`?"),
        (["delete", "4"], "no command `delete`", "did you mean `drumline kill`?"),
        (["whoami"], "no command `whoami`", "there are no accounts: a run belongs to the user that starts it"),
        (["nonsense"], "no command `nonsense`", "`drumline --help` lists them"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_gets_one_sentence_and_a_hint(
    words: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in said] == ["error", "hint"]
    assert said[0].startswith(f"error: {error}")
    assert said[1] == f"hint: {hint}"


def test_a_synonym_is_not_a_command_and_leads_to_one() -> None:
    assert not SYNONYMS.keys() & COMMANDS.keys()
    assert set(SYNONYMS.values()) <= COMMANDS.keys()


def test_drumline_without_arguments_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().err
