"""Find the keys of `-o json` in the source: the keys of each expression that is printed as JSON.

A key is written with the keys around it: `replicas[].id`. Keys with names that a user chooses are not listed; `*`
stands for the fields of an event or decision, which are those of the journal.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import click

from drumline.cli import group
from drumline.cli.terminal import json_lines, print_json
from drumline.engine.local.render import render
from drumline.plan.codec import to_data
from drumline.record import Record, field_names, to_dict
from interfaces.scope import Scope, returned

_SAME_KEYS = ("list", "tuple", "sorted")


def json_keys() -> dict[str, Counter[str]]:
    """Return the keys by command, each with the number of forms of its output that have it."""
    found = {name: Counter(_keys_of_command(callback)) for name, callback in callbacks(group)}
    scope = Scope(render)
    (dumped,) = (each.args[0] for each in _calls(scope.tree) if ast.unparse(each.func) == "json.dumps")
    found["render"] = Counter(keys(dumped, scope))
    return {name: each for name, each in found.items() if each}


def callbacks(command: click.Command, *words: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every command and subcommand with the function that it calls."""
    if command.callback and words:
        yield " ".join(words), inspect.unwrap(command.callback)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from callbacks(inner, *words, name)


def _keys_of_command(callback: Callable[..., Any]) -> Iterator[str]:
    for scope in _reached(callback, {}).values():
        for call in _calls(scope.tree):
            if scope.value(call.func) in (print_json, json_lines):
                yield from keys(call.args[0], scope)


def _reached(function: Callable[..., Any], known: dict[Any, Scope]) -> dict[Any, Scope]:
    """Return the functions of `drumline.cli` that a function names, directly or through others."""
    if function not in known:
        known[function] = scope = Scope(function)
        for each in ast.walk(scope.tree):
            value = scope.value(each) if isinstance(each, ast.Name | ast.Attribute) else None
            if inspect.isfunction(value) and value.__module__.startswith("drumline.cli."):
                _reached(value, known)
    return known


def keys(expression: ast.expr, scope: Scope) -> set[str]:
    """Return the keys of the value of an expression; none if it is not a mapping or a list of mappings."""
    match expression:
        case ast.Dict():
            return {key for name, value in _items(expression) for key in _entry(name, value, scope)}
        case ast.IfExp(body=first, orelse=second):
            return keys(first, scope) | keys(second, scope)
        case ast.BoolOp(values=values):
            return set().union(*(keys(each, scope) for each in values))
        case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
            return {_join("[]", key) for key in keys(item, scope)}
        case ast.Name(id=name):
            return _keys_of_local(name, scope)
        case ast.Call():
            return _keys_of_call(expression, scope)
    return set()


def _items(expression: ast.Dict) -> Iterator[tuple[str | None, ast.expr]]:
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            yield None, value
        elif isinstance(key, ast.Constant):
            yield str(key.value), value


def _entry(name: str | None, value: ast.expr, scope: Scope) -> set[str]:
    inner = keys(value, scope)
    if name is None:
        assert inner, f"{scope.module.__name__}: the keys of {ast.unparse(value)} are not known"
        return inner
    return {name} | {_join(name, key) for key in inner}


def _keys_of_local(name: str, scope: Scope) -> set[str]:
    found = set().union(*(keys(each, scope) for each in scope.assigned(name)))
    for each in ast.walk(scope.tree):
        match each:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=target), slice=ast.Constant(value=key))]):
                if target == name:
                    found |= _entry(str(key), each.value, scope)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="append"), args=[item]) if target == name:
                found |= {_join("[]", key) for key in keys(item, scope)}
    return found


def _keys_of_call(call: ast.Call, scope: Scope) -> set[str]:
    if isinstance(call.func, ast.Name) and (inner := scope.inner(call.func.id)):
        return set().union(*(keys(each, scope) for each in returned(inner)))
    called = scope.value(call.func)
    if called is to_data:
        return {"*"}
    if called is to_dict:
        return _fields(scope.type_of(call.args[0]), ast.unparse(call))
    if isinstance(call.func, ast.Name) and call.func.id == "cast":
        return keys(call.args[1], scope)
    if isinstance(call.func, ast.Name) and call.func.id in _SAME_KEYS:
        return keys(call.args[0], scope)
    if inspect.isfunction(called) and called.__module__.startswith("drumline."):
        inside = Scope(called)
        return set().union(*(keys(each, inside) for each in returned(inside.tree)))
    return set()


def _fields(kind: Any, written: str) -> set[str]:
    assert isinstance(kind, type), f"the type of {written} is not known"
    assert issubclass(kind, Record), f"{written} is no record"
    return set(field_names(kind))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    yield from (each for each in ast.walk(tree) if isinstance(each, ast.Call))


def _join(name: str, key: str) -> str:
    return f"{name}{key}" if key.startswith("[") else f"{name}.{key}"
