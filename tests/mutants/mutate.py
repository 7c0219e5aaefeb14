"""Small changes of a module's functions, by the syntax tree: what a test should notice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OTHER: dict[type[ast.boolop], ast.boolop] = {ast.And: ast.Or(), ast.Or: ast.And()}


class Mutant(NamedTuple):
    """One change: which kind, where, and from what to what."""

    path: Path
    number: int  # among the changes of this file
    kind: str
    function: str  # its qualified name
    first_line: int  # of the outermost function around it
    line: int
    old: str
    new: str
    which: int = 1  # of several in the function that are from the same to the same

    @property
    def key(self) -> str:
        """By which it is known while lines move."""
        package, name = self.path.parts[-2:]
        which = f" ({self.which})" if self.which > 1 else ""
        return f"{package}/{name} {self.function}: {self.old} -> {self.new}{which}"


class _Change(NamedTuple):
    kind: str
    outer: str
    first_line: int
    node: ast.expr
    apply: Callable[[], ast.expr]  # returns what replaces the node, or the node itself, changed


def find_mutants(path: Path) -> list[Mutant]:
    """Return all changes of a file, in its order."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for number, change in enumerate(_changes(ast.parse(_source(path)))):
        old, before = ast.unparse(change.node), dict(vars(change.node))
        new = ast.unparse(change.apply())
        vars(change.node).update(before)
        mutant = Mutant(path, number, change.kind, change.outer, change.first_line, change.node.lineno, old, new)
        seen[mutant.key] += 1
        found.append(mutant._replace(which=seen[mutant.key]))
    return found


def compile_mutant(mutant: Mutant) -> dict[tuple[str, int], CodeType]:
    """Return the code of every function of the changed file, by its qualified name and first line."""
    tree = ast.parse(_source(mutant.path))
    change = _nth(tree, mutant.number)
    replacement = change.apply()
    if replacement is not change.node:
        _Replacer(change.node, replacement).visit(tree)
    code = compile(ast.fix_missing_locations(tree), str(mutant.path), "exec", dont_inherit=True)
    return {(each.co_qualname, each.co_firstlineno): each for each in _codes(code)}


@cache
def _source(path: Path) -> str:
    """A file as it was when it was first read: it may change while its mutants are tried."""
    return path.read_text("utf-8")


def _nth(tree: ast.Module, number: int) -> _Change:
    return next(change for position, change in enumerate(_changes(tree)) if position == number)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


class _Replacer(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self._new, self._old) if node is self._old else super().generic_visit(node)


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for name, function in _outermost(tree.body, ""):
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        for kind, node, apply in _sites(function):
            yield _Change(kind, name, first, node, apply)


def _outermost(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a module and the methods of its classes, with their names; not those within them."""
    for node in body:
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _outermost(node.body, f"{prefix}{node.name}.")


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is executed in a function, without annotations, assertions, docstrings and patterns."""
    if isinstance(node, ast.Assert | ast.arguments) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return  # `zip(…, strict=True)` is an assertion as well
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "pattern"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield each
                yield from _expressions(each)


Site = tuple[str, ast.expr, Callable[[], ast.expr]]


def _sites(function: Function) -> Iterator[Site]:
    for node in _expressions(function):
        match node:
            case ast.Compare(_, [operator], _):
                yield "comparison", node, _setter(node, "ops", [_NEGATED[type(operator)]()])
                if type(operator) in _SHIFTED:
                    yield "boundary", node, _setter(node, "ops", [_SHIFTED[type(operator)]()])
            case ast.BoolOp(operator, _):
                yield "and/or", node, _setter(node, "op", _OTHER[type(operator)])
            case ast.UnaryOp(ast.Not(), operand):
                yield "not", node, lambda operand=operand: operand  # type: ignore[misc]
            case ast.Constant(bool(value)):
                yield "constant", node, _setter(node, "value", not value)
            case ast.Constant(int(value) | float(value)):
                yield "constant", node, _setter(node, "value", value + 1)
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if _is_bare(test):
                yield "condition", test, _negation(test)
            case ast.comprehension(ifs=tests):
                yield from (("condition", test, _negation(test)) for test in tests if _is_bare(test))


def _is_bare(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr)


def _negation(test: ast.expr) -> Callable[[], ast.expr]:
    return lambda: ast.UnaryOp(ast.Not(), test)


def _setter(node: ast.expr, field: str, value: object) -> Callable[[], ast.expr]:
    def apply() -> ast.expr:
        setattr(node, field, value)
        return node

    return apply
