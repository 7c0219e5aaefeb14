"""TF_CONFIG in shell commands: the value that is read is the value that a shell would set."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.assignment import Assignment, read_assignment
from scaffold.effort import examples

JSON = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
ESCAPED = JSON.replace('"', '\\"')


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (f"export TF_CONFIG='{JSON}'", ""),
        (f"  export TF_CONFIG='{JSON}'; python x.py --lr 1\n", "python x.py --lr 1"),
        (f"export TF_CONFIG='{JSON}'\npython x.py", "python x.py"),
        (f"export TF_CONFIG='{JSON}' LEVEL=1 && python x.py", "python x.py"),
        (f"TF_CONFIG='{JSON}' python x.py", "python x.py"),
        (f"CUDA_VISIBLE_DEVICES=0 TF_CONFIG='{JSON}' LEVEL=1 python x.py", "LEVEL=1 python x.py"),
        (f"env TF_CONFIG='{JSON}' python x.py", "python x.py"),
        (f'declare -x TF_CONFIG="{ESCAPED}"', ""),
        (f'TF_CONFIG="{ESCAPED}" python x.py', "python x.py"),
        (f"TF_CONFIG={JSON}", ""),
        (f"TF_CONFIG={JSON}\n", ""),
    ],
)
def test_a_shell_command_has_a_value_and_a_command(text: str, command: str) -> None:
    assert read_assignment(text) == Assignment(JSON, command)


@pytest.mark.parametrize("text", [JSON, f"'{JSON}'", "", "python x.py", "echo TF_CONFIG='{}'", "MY_TF_CONFIG='{}'"])
def test_any_other_text_is_no_assignment(text: str) -> None:
    assert read_assignment(text) is None


def test_a_value_without_quotes_ends_at_the_next_separator() -> None:
    assert read_assignment("TF_CONFIG=ab'c d'ef python x.py") == Assignment("abc def", "python x.py")
    assert read_assignment("export TF_CONFIG=ab;python x.py") == Assignment("ab", "python x.py")


def test_a_value_in_quotes_may_be_empty() -> None:
    assert read_assignment("TF_CONFIG='' python x.py") == Assignment("", "python x.py")


@pytest.mark.parametrize("text", ["TF_CONFIG='{", 'export TF_CONFIG="{\\"'])
def test_an_unclosed_quote_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="a quote in it is never closed"):
        read_assignment(text)


def test_an_unquoted_value_that_is_not_json_is_returned_as_it_is() -> None:
    assert read_assignment("TF_CONFIG={broken") == Assignment("{broken", "")


@given(st.text(st.sampled_from("ab \n'\"\\{};&|é"), max_size=12), st.sampled_from(["'", '"', ""]))
@settings(max_examples=examples(60), deadline=None)
def test_the_value_is_the_one_that_a_shell_sets(inside: str, quotes: str) -> None:
    value = json.dumps({"a": inside})
    word = {
        "'": shlex.quote(value),
        '"': f'"{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"',
    }
    quoted = word.get(quotes) or "".join(f"\\{char}" for char in value)
    read = read_assignment(f"export TF_CONFIG={quoted}")
    printed = subprocess.run(
        ["sh", "-c", f"export TF_CONFIG={quoted}; printenv TF_CONFIG"], capture_output=True, text=True, check=True
    )
    assert read == Assignment(printed.stdout.removesuffix("\n"), "")


@pytest.mark.parametrize("unit", ["a=", "a=;", "export ", "-a ", "a=a ", "( "])
def test_a_long_line_is_read_in_linear_time(unit: str) -> None:
    assert read_assignment(f"{unit * 5000} X TF_CONFIG='{JSON}'") is None
