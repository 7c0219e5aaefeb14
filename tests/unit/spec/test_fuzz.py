"""Any bytes are read as a spec or refused with a SpecError, with one printable line for each problem, in bounded time.

`DRUMLINE_FUZZ=1 pytest --timeout 0 tests/unit/spec/test_fuzz.py` runs many more examples.
"""

from __future__ import annotations

import time

import yaml
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes import options as cluster
from drumline.errors import Problem, SpecError
from drumline.load.engine import plan_spec
from drumline.load.load import check_spec
from drumline.spec import types
from drumline.spec.block import Block
from drumline.spec.types import Spec
from scaffold.strategies import TRICKY, spec_files, texts

# CPU time of this process, so that a busy machine does not matter.
SLOW_SECONDS = 2.0

KEYS = sorted(
    {
        key
        for block in {**vars(types), **vars(cluster)}.values()
        if isinstance(block, type) and issubclass(block, Block)
        for key in block.__struct_encode_fields__
    }
)
PIECES = (
    *(
        "project: x\n",
        "run: python train.py\n",
        "roles:\n",
        "  worker: 3\n",
        "parameters: {lr: 1e-6}\n",
        "env: {A: {from: B}}\n",
    ),
    *(
        "- ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        "{{ lr }}",
        "&a ",
        "*a",
        "<<: *a\n",
        "!!str ",
        "!x ",
        "? ",
        "| \n",
        ">-\n",
        "'",
        '"',
        "#",
    ),
    *(
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\t",
        "\n",
        "  ",
        "\r\n",
        "\\x",
        '"\\0"',
        '"\\ud800"',
        "\ufeff",
        "\x85",
        "\u2028",
        "@",
        "`",
        "%",
    ),
)


def check(data: bytes) -> None:
    """Check the properties that hold for any bytes."""
    began = time.process_time()
    problems: tuple[Problem, ...]
    try:
        spec, problems = check_spec(data, "drumline.yml")
        plan_spec(spec)
    except SpecError as error:
        problems = error.problems or (Problem("an error without a problem", None, "", ""),)
    assert time.process_time() - began < SLOW_SECONDS
    for problem in problems:
        assert str(problem).isprintable(), problem
        assert str(problem).startswith("drumline.yml:")
        assert problem.line is None or 1 <= problem.line <= len(data) + 1


trees = st.recursive(
    st.one_of(
        texts,
        st.sampled_from(TRICKY),
        st.sampled_from(KEYS),
        st.integers(-5, 70_000),
        st.floats(),
        st.booleans(),
        st.none(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), texts), inner, max_size=6),
    ),
    max_leaves=25,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    check(data)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    check(text.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(PIECES) | texts, max_size=40))
def test_any_pieces_of_yaml_are_read_or_refused(pieces: list[str]) -> None:
    check("".join(pieces).encode())


@given(st.dictionaries(st.sampled_from(Spec.__struct_encode_fields__), trees, max_size=8))
def test_any_tree_of_known_and_unknown_keys_is_read_or_refused(tree: dict[str, object]) -> None:
    check(yaml.safe_dump({"project": "x", "run": "python train.py", **tree}, sort_keys=False).encode())


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Draw a good spec in which a few bytes are changed, removed or repeated."""
    data = bytearray(draw(spec_files())[1].encode())
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 30)))
        match draw(st.sampled_from(["flip", "delete", "double", "move", "insert"])):
            case "flip" if start < len(data):
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "delete":
                del data[start:end]
            case "double":
                data[end:end] = data[start:end]
            case "move":
                piece = data[start:end]
                del data[start:end]
                at = draw(st.integers(0, len(data)))
                data[at:at] = piece
            case _:
                data[start:start] = draw(st.sampled_from(PIECES)).encode()
    return bytes(data)


@given(mutations())
def test_any_valid_spec_with_a_few_changed_bytes_is_read_or_refused(data: bytes) -> None:
    check(data)
