"""Mutants are what they say, and of nothing but what is executed."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

from mutants.__main__ import all_mutants, read_equivalent
from mutants.mutate import compile_mutant, find_mutants

SOURCE = '''
LIMIT = 3


def chosen(values: list[int] = [1], *, more: bool = True) -> list[int]:
    """Return 1."""
    assert values != [7]
    return [each for each, _ in zip(values, values, strict=True) if 0 < each and not (more and each == LIMIT)]


class Box:
    def __bool__(self) -> bool:
        if self.items:
            return True
        return self.size <= 2
'''


def write(folder: Path) -> Path:
    path = folder / "box.py"
    path.write_text(SOURCE)
    return path


def test_every_change_is_of_an_expression_that_a_function_executes(tmp_path: Path) -> None:
    found = find_mutants(write(tmp_path))
    assert [(each.kind, each.function, each.line, each.old, each.new) for each in found] == [
        (
            "and/or",
            "chosen",
            8,
            "0 < each and (not (more and each == LIMIT))",
            "0 < each or not (more and each == LIMIT)",
        ),
        ("comparison", "chosen", 8, "0 < each", "0 >= each"),
        ("boundary", "chosen", 8, "0 < each", "0 <= each"),
        ("constant", "chosen", 8, "0", "1"),
        ("not", "chosen", 8, "not (more and each == LIMIT)", "more and each == LIMIT"),
        ("and/or", "chosen", 8, "more and each == LIMIT", "more or each == LIMIT"),
        ("comparison", "chosen", 8, "each == LIMIT", "each != LIMIT"),
        ("condition", "Box.__bool__", 13, "self.items", "not self.items"),
        ("constant", "Box.__bool__", 14, "True", "False"),
        ("comparison", "Box.__bool__", 15, "self.size <= 2", "self.size > 2"),
        ("boundary", "Box.__bool__", 15, "self.size <= 2", "self.size < 2"),
        ("constant", "Box.__bool__", 15, "2", "3"),
    ]


def test_the_code_of_a_mutant_does_what_it_says(tmp_path: Path) -> None:
    path = write(tmp_path)
    results = {}
    for mutant in find_mutants(path):
        if mutant.function == "chosen":
            code = compile_mutant(mutant)["chosen", 5]
            results[mutant.new] = FunctionType(code, {"LIMIT": 3})([0, 1, 2, 3, 4], more=True)
    assert results == {
        "0 < each or not (more and each == LIMIT)": [0, 1, 2, 3, 4],
        "0 >= each": [0],
        "0 <= each": [0, 1, 2, 4],
        "1": [2, 4],
        "more and each == LIMIT": [3],
        "more or each == LIMIT": [],
        "each != LIMIT": [3],
    }


def test_a_mutant_has_a_name_that_no_line_moves(tmp_path: Path) -> None:
    before = [each.key for each in find_mutants(write(tmp_path))]
    (tmp_path / "more").mkdir()
    moved = tmp_path / "more" / "box.py"
    moved.write_text(f"# above\n{SOURCE}")
    assert before[1] == f"{tmp_path.name}/box.py chosen: 0 < each -> 0 >= each"
    assert [each.key for each in find_mutants(moved)] == [key.replace(tmp_path.name, "more", 1) for key in before]


def test_what_is_listed_as_making_no_difference_is_there_and_has_a_reason() -> None:
    listed = read_equivalent()
    assert listed.keys() - {each.key for each in all_mutants([])} == set()
    assert all(listed.values())
