"""Reading and writing YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from drumline.errors import SpecError
from drumline.spec.document import DuplicateKey, Entry, Mapping, Node, Scalar, Sequence, parse
from drumline.spec.write import write_yaml
from scaffold.strategies import texts


def plain(node: Node) -> object:
    """Return a tree as plain data."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {entry.key: plain(entry.node) for entry in node.entries}


def read(text: str) -> object:
    return plain(parse(text.encode(), "f").root)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Values with another type in YAML 1.1.
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("Off", "Off"), ("y", "y"), ("N", "N"),
        ("010", "010"), ("0o10", "0o10"), ("0x1f", "0x1f"), ("0b1", "0b1"), ("1_000", "1_000"),
        ("12:30", "12:30"), ("190:20:30.15", "190:20:30.15"), ("2001-12-14", "2001-12-14"), ("=", "="),
        (".inf", ".inf"), ("-.INF", "-.INF"), (".nan", ".nan"), ("1,000", "1,000"),
        # Values with the same type in both, or that 1.1 does not recognize.
        ("1e-6", 1e-6), ("1E5", 1e5), ("-1.5e+3", -1500.0), (".5", 0.5), ("1.", 1.0), ("-0", 0), ("+7", 7), ("0", 0),
        ("0.5", 0.5), ("-00.5", "-00.5"), ("12345678901234567890", 12345678901234567890), ("9" * 40, "9" * 40),
        ("true", True), ("False", False), ("tRue", "tRue"), ("null", None), ("~", None), ("", None), ("Null", None),
        # A quoted value is a text.
        ("'1'", "1"), ('"true"', "true"), ("'~'", "~"), ("''", ""), ("! 1", "1"), ("!!str 1", "1"), ("|\n  1\n", "1\n"),
    ],
)  # fmt: skip
def test_an_unquoted_value_has_its_type_in_yaml_1_2(text: str, value: object) -> None:
    read_back = read(f"k: {text}")
    assert read_back == {"k": value}
    assert isinstance(read_back, dict)
    assert type(read_back["k"]) is type(value)


@pytest.mark.parametrize("text", ["1e-6", "0.10", "+7", "1.", "True", "12345678901234567890.000"])
def test_a_value_keeps_the_text_in_the_file(text: str) -> None:
    root = parse(f"k: {text}".encode(), "f").root
    assert isinstance(root, Mapping)
    assert root.entries[0].node == Scalar(text, plain=True, line=1)


def test_every_node_has_its_line() -> None:
    root = parse(b"# first\na: 1\nb:\n  - x\n  -\n    c: |\n      long\n      text\n    d: >-\n      y\n", "f").root
    assert root == Mapping(
        line=2,
        entries=(
            Entry("a", 2, Scalar("1", plain=True, line=2)),
            Entry(
                "b",
                3,
                Sequence(
                    line=4,
                    items=(
                        Scalar("x", plain=True, line=4),
                        Mapping(
                            line=6,
                            entries=(
                                Entry("c", 6, Scalar("long\ntext\n", plain=False, line=6)),
                                Entry("d", 9, Scalar("y", plain=False, line=9)),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


def test_an_alias_repeats_the_value_of_its_anchor() -> None:
    tree = {"a": [1, {"k": "v"}], "b": [1, {"k": "v"}], "c": {"k": "v"}, "d": "d"}
    assert read("a: &x [1, &y {k: v}]\nb: *x\nc: *y\n&z d: *z") == tree


def test_an_anchor_can_be_redefined() -> None:
    assert read("a: &x 1\nb: &x 2\nc: *x") == {"a": 1, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}", {"x": 2, "y": 1}),
        ("a: &a {x: 1, y: 1}\nb: {x: 2, <<: *a}", {"x": 2, "y": 1}),
        ("a: &a {x: 1}\nb: {<<: [*a, {x: 2, z: 2}]}", {"x": 1, "z": 2}),
        ("a: &a {x: 1}\nb: {<<: *a, <<: {x: 2, z: 2}}", {"x": 1, "z": 2}),
        ("a: 1\nb: {'<<': 1}", {"<<": 1}),
    ],
)
def test_a_merge_key_adds_missing_keys(text: str, value: object) -> None:
    whole = read(text)
    assert isinstance(whole, dict)
    assert whole["b"] == value


def test_a_repeated_key_is_reported_and_the_first_kept() -> None:
    found = parse(b"a: 1\nb:\n  - x\n  - {c: 1, d: 2,\n     c: 3}\na: 2\n'1': x\n1: y\n", "f")
    assert plain(found.root) == {"a": 1, "b": ["x", {"c": 1, "d": 2}], "1": "x"}
    assert found.duplicates == (
        DuplicateKey(("b", 1, "c"), 5, 4),
        DuplicateKey(("a",), 6, 1),
        DuplicateKey(("1",), 8, 7),
    )


@pytest.mark.parametrize("data", [b"a: 1\r\nb: |\r\n  x\r\n  y\r\n", b"\xef\xbb\xbfa: 1\nb: |\n  x\n  y\n"])
def test_line_ends_and_byte_order_marks_of_windows_are_accepted(data: bytes) -> None:
    assert plain(parse(data, "f").root) == {"a": 1, "b": "x\ny\n"}


def test_too_many_aliases_are_refused_with_the_line() -> None:
    tenfold = "\n".join(["a0: &a0 1", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40))])
    with pytest.raises(SpecError, match=r"^f:7: more than 200000 values, aliases counted as often as they are used$"):
        parse(tenfold.encode(), "f")


@pytest.mark.parametrize("depth", [39, 40])
def test_deeply_nested_lists_are_read(depth: int) -> None:
    found = read("[" * depth + "]" * depth)
    for _ in range(depth - 1):
        assert isinstance(found, list)
        (found,) = found
    assert found == []


scalars = (
    texts
    | st.integers(-(10**17), 10**17)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(texts, trees, min_size=1, max_size=5))
def test_written_yaml_reads_back_the_same(tree: dict[str, object]) -> None:
    written = write_yaml(tree)
    assert yaml.safe_load(written) == tree
    assert read(written) == tree


def test_a_text_of_several_lines_is_written_as_a_block() -> None:
    assert (
        write_yaml({"run": "cd src\npython train.py\n", "b": ["x"] * 2})
        == "run: |\n  cd src\n  python train.py\nb:\n- x\n- x\n"
    )


@pytest.mark.parametrize(
    "text", ["y", "N", "no", "On", "1e-6", "0o10", "12:30", "010", "~", "null", ".5", "+1", "=", "<<"]
)
def test_a_text_that_looks_like_another_type_is_quoted(text: str) -> None:
    assert write_yaml({"a": text}) == f"a: '{text}'\n"
