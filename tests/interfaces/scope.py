"""The names that an expression of a function can use, and the types of expressions as far as annotations give them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

_SAME_ITEMS = ("list", "tuple", "sorted", "reversed")


class Scope:
    """A function: its syntax tree, and what its names stand for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = inspect.unwrap(function)
        module = inspect.getmodule(self.function)
        assert module is not None
        self.module: ModuleType = module
        self.tree = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]

    def assigned(self, name: str) -> Iterator[ast.expr]:
        """Yield every expression that a local name is set to."""
        for each in ast.walk(self.tree):
            match each:
                case ast.Assign(targets=[ast.Name(id=target)]) | ast.NamedExpr(target=ast.Name(id=target)):
                    if target == name:
                        yield each.value
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    pairs = zip(targets, values, strict=True)
                    yield from (value for target, value in pairs if isinstance(target, ast.Name) and target.id == name)

    def inner(self, name: str) -> ast.FunctionDef | None:
        """Return the function of this name that is defined inside."""
        found = (each for each in ast.walk(self.tree) if isinstance(each, ast.FunctionDef) and each.name == name)
        return next((each for each in found if each is not self.tree), None)

    def value(self, expression: ast.expr) -> Any:
        """Return what a name, or an attribute of one, stands for in the module or in an import of the function."""
        match expression:
            case ast.Name(id=name):
                return getattr(self.module, name, None) or self._imported(name)
            case ast.Attribute(value=base, attr=name):
                return getattr(self.value(base), name, None)
        return None

    def _imported(self, name: str) -> Any:
        for each in ast.walk(self.tree):
            if isinstance(each, ast.ImportFrom) and any(alias.name == name for alias in each.names):
                return getattr(__import__(str(each.module), fromlist=[name]), name)
        return None

    def type_of(self, expression: ast.expr) -> Any:
        """Return the type of an expression without None; None if the annotations do not give it."""
        match expression:
            case ast.Name(id=name):
                return self._type_of_name(name)
            case ast.Attribute(value=base, attr=name):
                return _attribute_type(self.type_of(base), name)
            case ast.BoolOp(values=values):
                return next((found for each in values if (found := self.type_of(each))), None)
            case ast.Call(func=ast.Name(id=name), args=[only]) if name in _SAME_ITEMS:
                return self.type_of(only)
            case ast.Call(func=function):
                return self._returned_type(function, expression)
        return None

    def _type_of_name(self, name: str) -> Any:
        if found := hint(self.function, name):
            return found
        for each in ast.walk(self.tree):
            match each:
                case ast.comprehension(target=ast.Name(id=target)) | ast.For(target=ast.Name(id=target)):
                    if target == name:
                        return item_type(self.type_of(each.iter))
                case ast.ExceptHandler(name=target, type=kind) if target == name and kind:
                    return self.value(kind)
        return next((found for each in self.assigned(name) if (found := self.type_of(each))), None)

    def _returned_type(self, function: ast.expr, call: ast.Call) -> Any:
        called = self.value(function)
        if called is None and isinstance(function, ast.Attribute):
            called = getattr(self.type_of(function.value), function.attr, None)
        found = called if isinstance(called, type) else hint(called, "return")
        if not isinstance(found, TypeVar):
            return found
        # A function that returns a value of the type that it is given, such as `require`.
        return next((kind for each in call.args if isinstance(kind := self.value(each), type)), None)


def returned(function: ast.AST) -> Iterator[ast.expr]:
    """Yield every expression that a function returns; not those of functions inside it."""
    for each in ast.iter_child_nodes(function):
        if isinstance(each, ast.Return) and each.value:
            yield each.value
        elif not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from returned(each)


def hint(function: object, name: str) -> Any:
    """Return the annotation of a parameter, or `return`, without None; None if there is none."""
    found = getattr(function, "__annotations__", {}).get(name)
    module = inspect.getmodule(function)
    return without_none(eval(found, namespace(module)) if isinstance(found, str) and module else found)


@cache
def namespace(module: ModuleType) -> dict[str, Any]:
    """Return the names of a module, and those that it imports for the type checker alone."""
    names = dict(vars(module))
    for each in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
            imports = [line for line in each.body if isinstance(line, ast.ImportFrom)]
            exec(compile(ast.Module(body=[*imports], type_ignores=[]), module.__name__, "exec"), names)
    return names


def without_none(kind: Any) -> Any:
    """Return `X` for `X | None`."""
    if get_origin(kind) not in (UnionType, Union):
        return kind
    kept = [each for each in get_args(kind) if each is not NoneType]
    return kept[0] if len(kept) == 1 else kind


def item_type(kind: Any) -> Any:
    """Return the type of the items of a sequence or iterator."""
    return next(iter(get_args(kind)), None)


def _attribute_type(kind: Any, name: str) -> Any:
    for base in getattr(kind, "__mro__", ()):
        found = vars(base).get(name)
        if isinstance(found, property):
            return hint(found.fget, "return")
        if name in inspect.get_annotations(base):
            return hint(base, name)
    return None
