"""The types of values in a spec, with their descriptions for messages, and the base of blocks."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from drumline.spec.quantity import (
    BYTES_PATTERN,
    SECONDS_OR_NEVER_PATTERN,
    SECONDS_PATTERN,
    parse_bytes,
    parse_seconds,
    parse_seconds_or_never,
)
from drumline.spec.struct import Meta, Struct


def matching(pattern: str, expected: str) -> Meta:
    """Require that a text matches a pattern, which messages describe as `expected`."""
    return Meta(pattern=pattern, extra={"expected": expected})


Count = Annotated[int, Meta(ge=1, le=100_000)]
Budget = Annotated[int, Meta(ge=0, le=1000)]
ExitCodes = Annotated[str, matching(r"^[0-9]{1,3}(-[0-9]{1,3})?$", "an exit code such as 2, or a range such as 1-127")]
Port = Annotated[int, Meta(ge=1, le=65535)]
Scalar = Annotated[str, Meta(extra={"expected": "a value"})]
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"
NAME_DESCRIPTION = "a name of at most 63 letters, digits, `-` and `_`, that begins and ends with a letter or digit"
Name = Annotated[str, matching(NAME_PATTERN, NAME_DESCRIPTION)]
Variable = Annotated[
    str, matching(r"^[A-Za-z_][A-Za-z0-9_]*$", "a variable's name: letters, digits and `_`, not beginning with a digit")
]
ParameterName = Annotated[
    str,
    matching(
        r"^[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$",
        "a parameter's name: letters, digits, `-` and `_`, beginning with a letter",
    ),
]
ModuleName = Annotated[str, matching(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", "a module's name, such as transformers")]
TensorFlowVersion = Annotated[
    str, matching(r"^2\.[0-9]{1,2}(\.[0-9]{1,2})?$", "a version of TensorFlow such as 2.15.1 or 2.16")
]
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
ObjectName = Annotated[
    str,
    matching(
        rf"^{_LABEL}(\.{_LABEL}){{0,7}}$", "the name of an object in a cluster: small letters, digits, `-` and `.`"
    ),
]
Text = Annotated[str, Meta(min_length=1)]
Path = Annotated[str, Meta(min_length=1, extra={"expected": "a path"})]
# `written`: the JSON types that a file may have for a value, if they differ from the type of the parsed value.
Bytes = Annotated[
    int,
    Meta(
        extra={"expected": "an amount of memory such as 16GiB or 500MB", "parse": parse_bytes},
        extra_json_schema={"written": "string", "pattern": BYTES_PATTERN, "examples": ["16GiB", "500MB"]},
    ),
]


def _time(expected: str, parse: Callable[[str], float], pattern: str, *examples: str) -> Meta:
    written = {"written": ["number", "string"], "minimum": 0, "pattern": pattern, "examples": list(examples)}
    return Meta(extra={"expected": expected, "parse": parse}, extra_json_schema=written)


Seconds = Annotated[float, _time("a time such as 30s, 5m or 1h", parse_seconds, SECONDS_PATTERN, "30s", "5m", "1h")]
SecondsOrNever = Annotated[
    float,
    _time("a time such as 30m or 1h, or never", parse_seconds_or_never, SECONDS_OR_NEVER_PATTERN, "30m", "2h", "never"),
]


class Block(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping in the spec.

    ``short`` names a field: the value of this field may be written instead of the whole mapping. With
    ``keys_need_values`` a key without a value is a problem; otherwise such a key is ignored.
    """

    short: ClassVar[str | None] = None
    keys_need_values: ClassVar[bool] = False
