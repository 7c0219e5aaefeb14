"""Parse JSON that users write, with clear messages about mistakes; repeated keys are kept for messages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from drumline.words import nearest

MAX_CHARACTERS = 1_000_000

_MISTAKES = {
    "Expecting value": "a value is missing, or is not written as JSON has it",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Expecting ',' delimiter": "expected a comma, or the end of the list or object",
    "Expecting ':' delimiter": "expected a colon after the key",
    "Extra data": "there is more after the end",
    "Unterminated string starting at": "the quote that opens here is never closed",
    "Invalid control character at": "a line break or control character is between quotes",
}


class Object(dict[str, object]):
    """A JSON object; `repeated` has the keys that occur more than once in its text."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        super().__init__(pairs)
        times = Counter(key for key, _ in pairs)
        self.repeated = [key for key, number in times.items() if number > 1]


def parse_json(text: str) -> object:
    """Parse JSON, every object as an Object; raise ValueError with a message about the mistake."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"is longer than {MAX_CHARACTERS:,} characters")
    try:
        return json.loads(text, object_pairs_hook=Object)
    except json.JSONDecodeError as error:
        raise ValueError(_describe_error(text, error)) from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:
        # Python refuses to read a whole number with thousands of digits.
        raise ValueError("has a number with thousands of digits") from None


def kind_of(value: object) -> str:
    """Return a short description of a JSON value on one line: `a list`, `the text "0"`, `true`."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return f"the text {json.dumps(_shorten(value))}"
        case _:
            return _shorten(json.dumps(value))


def quote(text: str) -> str:
    """Return a text in backticks, shortened to one line of at most 60 characters."""
    return f"`{json.dumps(_shorten(text))[1:-1]}`"


def spell_path(path: str, key: str) -> str:
    """Return the path of a key, `cluster.worker`; a key that is not a plain word is in backticks."""
    word = key if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,60}", key) else quote(key)
    return f"{path}.{word}" if path else word


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: a similar known word, if there is one."""
    near = nearest(word.lower(), known) if len(word) < 40 else None
    return f"; did you mean `{near}`?" if near else ""


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _describe_error(text: str, error: json.JSONDecodeError) -> str:
    """Return the message for a syntax error, with its line and column; common mistakes are described."""
    if text.startswith("\ufeff"):
        return "is not JSON: it begins with a byte order mark; save it as UTF-8 without one"
    if text.lstrip().startswith(("'", '"{')):
        return "is not JSON: the quotes around it are part of the value; only a shell removes them"
    position, why = error.pos, _MISTAKES.get(error.msg, error.msg)
    at, before = text[position : position + 1], text[:position].rstrip()
    if at in ("}", "]") and before.endswith(","):
        position, why = len(before) - 1, "there is a comma before the end of the list or object"
    elif error.msg.startswith("Illegal trailing comma"):
        why = "there is a comma before the end of the list or object"
    elif at == "'":
        why = "JSON has double quotes only, no single ones"
    elif position >= len(text.rstrip()):
        why = "it ends before it is complete"
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"is not JSON: line {line}, column {column}: {why}"
