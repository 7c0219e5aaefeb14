"""Messages about mistakes in JSON, with their positions, and the display of its parts."""

from __future__ import annotations

import json

import pytest

from drumline.plan.parse import MAX_CHARACTERS, Object, kind_of, parse_json, quote, spell_path, suggest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1', "line 1, column 8: it ends before it is complete"),
        ('{"a": 1  \n ', "line 2, column 2: it ends before it is complete"),
        ('{"a": }', "line 1, column 7: a value is missing, or is not written as JSON has it"),
        ('{"a": 1,}', "line 1, column 8: there is a comma before the end of the list or object"),
        ("[1,\n2 ,\n ]", "line 2, column 3: there is a comma before the end of the list or object"),
        ("{'a': 1}", "line 1, column 2: JSON has double quotes only, no single ones"),
        ('{"a": 1\n "b": 2}', "line 2, column 2: expected a comma, or the end of the list or object"),
        ('{"a" 1}', "line 1, column 6: expected a colon after the key"),
        ("{a: 1}", "line 1, column 2: expected a key in double quotes"),
        ("{} x", "line 1, column 4: there is more after the end"),
        ('{"a": "b}', "line 1, column 7: the quote that opens here is never closed"),
        ('{"a": "b\n"}', "line 1, column 9: a line break or control character is between quotes"),
        ("\n{", "line 2, column 2: it ends before it is complete"),
        ("", "line 1, column 1: it ends before it is complete"),
    ],
)
def test_a_syntax_error_is_described_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^is not JSON: {problem}$"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\ufeff{}", "is not JSON: it begins with a byte order mark; save it as UTF-8 without one"),
        (" '{}'", "is not JSON: the quotes around it are part of the value; only a shell removes them"),
        ('"{"', None),
        ('"{"a": 1}"', "is not JSON: the quotes around it are part of the value; only a shell removes them"),
        ("[" * 100_000, "is nested too deeply"),
        ("9" * 10_000, "has a number with thousands of digits"),
        (f'"{"x" * (MAX_CHARACTERS - 2)}"', None),
        (f'"{"x" * (MAX_CHARACTERS - 1)}"', "is longer than 1,000,000 characters"),
    ],
    ids=["mark", "single quotes", "a text", "double quotes", "nested", "digits", "long", "too long"],
)
def test_a_text_that_is_not_json_at_all_has_an_error_with_the_reason(text: str, problem: str | None) -> None:
    try:
        found: object = parse_json(text)
    except ValueError as error:
        found = str(error)
    assert found == (json.loads(text) if problem is None else problem)


def test_an_object_has_its_repeated_keys() -> None:
    found = parse_json('{"a": 1, "b": 2, "a": 3, "c": {"d": 1, "d": 2}}')
    assert isinstance(found, Object)
    assert (found["a"], found.repeated) == (3, ["a"])
    assert isinstance(found["c"], Object)
    assert found["c"].repeated == ["d"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({}, "an object"),
        ([1], "a list"),
        ("0", 'the text "0"'),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ("x" * 60, f'the text "{"x" * 60}"'),
        ("x" * 61, f'the text "{"x" * 57}..."'),
        (10**60, f"1{'0' * 56}..."),
    ],
)
def test_a_value_is_shown_short_and_by_its_kind(value: object, shown: str) -> None:
    assert kind_of(value) == shown


def test_text_is_quoted_on_one_line() -> None:
    assert quote("a\nb") == "`a\\nb`"
    assert quote("x" * 61) == f"`{'x' * 57}...`"


@pytest.mark.parametrize(
    ("path", "key", "spelled"),
    [("", "worker", "worker"), ("cluster", "worker-2", "cluster.worker-2"), ("cluster", "a b", "cluster.`a b`")],
)
def test_keys_that_are_not_plain_words_are_quoted_in_a_path(path: str, key: str, spelled: str) -> None:
    assert spell_path(path, key) == spelled


def test_a_word_similar_to_a_known_one_gets_a_suggestion_unless_it_is_very_long() -> None:
    assert suggest("Workr", ["worker", "ps"]) == "; did you mean `worker`?"
    assert suggest("xyz", ["worker", "ps"]) == ""
    assert suggest("a" * 39, ["a" * 38]) == f"; did you mean `{'a' * 38}`?"
    assert suggest("a" * 40, ["a" * 39]) == ""
