"""The texts of src that a user can read, by syntax tree: `python -m messages` writes tests/golden/messages.txt.

A text is a string or f-string in an error, a problem, a warning or a hint, the help of a command, or any other string
of several words. A value within a text is shown by its last name: `run {id} is over`. Docstrings, patterns, SQL and
shell code are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "drumline"
LIST = ROOT / "tests" / "golden" / "messages.txt"

ERRORS, HINTS, HELP, OTHER = SECTIONS = (
    "Errors, problems and warnings",
    "Hints",
    "Help",
    "Other texts, and parts of texts",
)
_HEAD = "The texts that a user can read. `make messages` writes this file; the diff belongs in the review."
_REFUSALS = re.compile(r"(?!Assertion)\w*(Error|Arguments|Requirement|Exception)|_?[pP]roblem|_?warn\w*|_?warning|fail")
_CODE = re.compile(
    r"\\|\(\?|\$[@1(]|\.\*|\|\w|^ *[a-z]+ -|^(if|until) "  # patterns, shells
    r"|^(BEGIN|CREATE|DELETE|INSERT|PRAGMA|SELECT|ALTER|UPDATE) "
    r"|^[\w.]+\[.*\]$|\| None$|^(import|from|def) [\w.]+|^ _set_"  # Python
)
_VALUE = re.compile(r"\{[\w…]*\}")
_WORD = re.compile(r"[A-Za-z]{2,}")


def collect(source: Path = SRC) -> dict[str, set[str]]:
    """Return the texts of all modules below a folder, by section; each once."""
    found: dict[str, set[str]] = {section: set() for section in SECTIONS}
    for path in sorted(source.rglob("*.py")):
        if "templates" not in path.parts:
            for section, text in _texts(ast.parse(path.read_text("utf-8"))):
                found[section].add(text)
    known = found[ERRORS] | found[HINTS] | found[HELP]
    return {**found, OTHER: found[OTHER] - known}


def write(found: dict[str, set[str]]) -> str:
    """Return the texts as a file: by section, sorted, one line each."""
    blocks = [_HEAD]
    blocks += ["\n".join((f"## {section}", "", *sorted(found[section]))) for section in SECTIONS]
    return "\n\n".join(blocks) + "\n"


def _texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    sections = _sections(tree)
    parts = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for value in node.values
        for part in ([value] if isinstance(value, ast.Constant) else [getattr(value, "format_spec", None)])
    }
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if not is_text or node in parts or (node in docs and node not in sections):
            continue
        section = sections.get(node, OTHER)
        for paragraph in _paragraphs(_spell(node), section):
            if _is_message(paragraph, section):
                yield section, paragraph


def _sections(tree: ast.Module) -> dict[ast.AST, str]:
    """Return the section of every string that can be told from its place in the code."""
    sections: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_command(each) for each in node.decorator_list):
            first = node.body[0]
            if isinstance(first, ast.Expr):
                sections[first.value] = HELP
        if not isinstance(node, ast.Call):
            continue
        if _REFUSALS.fullmatch(_last_name(node.func)):
            sections |= dict.fromkeys(_strings(node.args), ERRORS)
        for keyword in node.keywords:
            if keyword.arg in ("hint", "help"):
                sections |= dict.fromkeys(_strings([keyword.value]), HINTS if keyword.arg == "hint" else HELP)
    return sections


def _strings(nodes: list[ast.expr]) -> Iterator[ast.AST]:
    """Yield the strings that are an argument, or one of two between which a condition chooses."""
    for node in nodes:
        if isinstance(node, ast.IfExp):
            yield from _strings([node.body, node.orelse])
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            yield node


def _is_command(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and _last_name(decorator.func) in ("command", "group")


def _is_message(text: str, section: str) -> bool:
    words = _WORD.findall(_VALUE.sub(" ", text))
    if _CODE.search(text) or not words:
        return False
    return section != OTHER or (" " in text.strip() and (len(words) > 1 or _VALUE.search(text) is not None))


def _paragraphs(text: str, section: str) -> Iterator[str]:
    """Yield the paragraphs of a text, each as one line."""
    for paragraph in re.split(r"\n\s*\n", re.sub("[\b\r]", "", text)):
        yield " ".join(paragraph.split()) if section == HELP else re.sub(r"\n *", " ⏎ ", paragraph.strip("\n"))


def _spell(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{_last_name(part)}}}" for part in node.values
    )


def _last_name(node: ast.AST) -> str:
    """Return the name under which a value is known: `id` of `folder.id`, `listed` of `listed(names)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner) | ast.FormattedValue(value=inner):
            return _last_name(inner)
        case _:
            return "…"


if __name__ == "__main__":
    LIST.write_text(write(collect()), "utf-8")
