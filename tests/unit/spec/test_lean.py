"""Libraries that are loaded without some of what they would bring."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from drumline.spec.lean import patterns_when_used, without
from drumline.spec.schema import make_schema


def test_a_module_is_not_there_for_a_while() -> None:
    sys.modules.pop("this", None)
    with without("this"), pytest.raises(ImportError):
        import this  # noqa: F401, PLC0415
    assert "this" not in sys.modules


def test_a_module_that_is_loaded_stays() -> None:
    with without("re"):
        import re as again  # noqa: PLC0415
    assert again is re is sys.modules["re"]


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    with patterns_when_used():
        pattern = re.compile("a(B)", re.IGNORECASE)
        broken = re.compile("(")
    match = pattern.search("xaby")
    assert match
    assert match[1] == "b"
    assert isinstance(re.compile("a"), re.Pattern)
    with pytest.raises(re.error):
        broken.search("x")


def test_what_reads_a_spec_is_loaded_without_what_it_does_not_need() -> None:
    code = "import drumline.load.load, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"yaml", "msgspec"}.issubset(loaded)
    assert not {"click", "inspect", "pathlib", "typing_extensions", "drumline.store", "drumline.run"}.intersection(
        loaded
    )


def test_every_pattern_of_a_spec_can_be_compiled() -> None:
    """Nobody does until it is used; in the schema they are for others."""
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', make_schema())
    assert len(patterns) > 10
    for pattern in patterns:
        re.compile(json.loads(pattern))
