"""Jinja templates that set their parameters at the top: render them, or read them as specs. Uses jinja2, an extra."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from drumline.errors import EngineError, InputError, SpecError
from drumline.record import Record
from drumline.spec.dialect.bounds import MEMORY_BYTES, bounded
from drumline.spec.location import Location
from drumline.words import listed, nearest

try:
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
    from jinja2 import Template as CompiledTemplate
    from jinja2.runtime import Context
    from jinja2.sandbox import SandboxedEnvironment
except ModuleNotFoundError:  # pragma: no cover - it is an extra
    raise EngineError("templates need jinja2", hint="`pip install 'drumline[jinja]'`") from None

MOST_CHARACTERS = 16_000_000
MOST_BITS = 1 << 16  # of a number that an expression computes
_FILE = "<template>"  # the file name that jinja2 gives to a template without a file
CLAIMS = ("checkpoint_pvc_name", "pvc_name")  # the older template has the second
_OTHER_STEPS = ("create_pvc_checkpoint", "create_pvc", "create_volume_inspector")
_NOT_CONSTANT = object()  # the value of an assignment that is computed from other variables
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


class Parameter(Record):
    """A value that the top of a template sets, and its location."""

    value: Any
    location: Location


class _Environment(SandboxedEnvironment):
    """A sandbox that limits products and powers: a single long operation could not be interrupted."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            if bits > MOST_BITS:
                raise TemplateError(f"makes a number of more than {MOST_BITS:,} bits")
        return super().call_binop(context, operator, left, right)


class Template:
    """A template, its parameters, and the values that replace some of them."""

    def __init__(self, text: str, source: str, given: Sequence[str] = ()) -> None:
        self.source = source
        self._text = text
        self._given = tuple(given)
        self._environment = _Environment(undefined=StrictUndefined)
        self.parameters: dict[str, Parameter] = {}
        self._unset: dict[str, int] = {}  # variables that are used and not set, with the first line of each
        self._values: dict[str, Any] = {}  # the values of variables in `_unset` that were given
        with bounded():
            try:
                self._tree = self._environment.parse(text)
                for name, node in self._assignments():
                    self._add_constant(name, node)
                self._unset = self._find_unset()
            except TemplateSyntaxError as error:
                problem = Location(source, error.lineno).problem(f"not a valid template: {error.message}")
                raise SpecError([problem]) from None
            except Exception as error:  # noqa: BLE001 - it is nested too deeply or too large
                raise SpecError([Location(source, 1).problem(_sentence(error))]) from None
            self._give(given)
            self._add_computed()

    def render(self) -> str:
        """Return the rendered text; raise SpecError with the line of an error in the template."""
        try:
            with bounded():
                return "".join(self._parts())
        except Exception as error:  # noqa: BLE001 - a template is a program and can raise anything
            location = Location(self.source, _line(sys.exc_info()[2]))
            raise SpecError([location.problem(self._sentence(error))]) from None

    def render_training(self) -> str:
        """Return the text that is rendered for training, without other steps; raise SpecError as `render` does."""
        steps = {"deploy": "true", **dict.fromkeys(_OTHER_STEPS, "false")}
        forced = [f"{name}={text}" for name, text in steps.items() if isinstance(self.value(name), bool)]
        return Template(self._text, self.source, (*self._given, *forced)).render() if forced else self.render()

    def _sentence(self, error: Exception) -> str:
        missing = [name for name in self._unset if name not in self._values]
        if isinstance(error, UndefinedError) and any(f"'{name}' is undefined" in str(error) for name in missing):
            first = next(name for name in missing if f"'{name}' is undefined" in str(error))
            more = [f"`{name}`" for name in missing if name != first]
            also = f"; nor are {listed(more)}" if len(more) > 1 else f"; nor is {more[0]}" if more else ""
            options = " ".join(f"-p {name}=…" for name in (first, *(name for name in missing if name != first)))
            return f"'{first}' is undefined{also}; set it at the top: `{{% set {first} = … %}}`, or use `{options}`"
        return _sentence(error)

    def _parts(self) -> Iterator[str]:
        """Yield the parts of the rendered text; raise TemplateError if it is too long."""
        length = 0
        for part in self._compile(self._tree).generate(**self._values):
            yield part
            length += len(part)
            if length > MOST_CHARACTERS:
                raise TemplateError(f"makes more than {MOST_CHARACTERS:,} characters")

    def _compile(self, tree: nodes.Template) -> CompiledTemplate:
        environment = self._environment
        return environment.template_class.from_code(environment, environment.compile(tree), environment.globals, None)

    def check(self) -> None:
        """Raise SpecError with all values that the templates for several workers do not allow."""
        problems = [location.problem(message) for location, message in self._invalid_values()]
        if problems:
            raise SpecError(problems)

    def value(self, name: str) -> Any:
        """Return the value of a parameter; None if it has none."""
        return self.parameters[name].value if name in self.parameters else None

    def _invalid_values(self) -> Sequence[tuple[Location, str]]:
        """Return the location of each invalid parameter, with a message."""
        if "worker_replicas" not in self.parameters:
            return []
        found = []

        def wrong(name: str, message: str) -> None:
            found.append((self.parameters[name].location, message))

        if self.value("deploy") and self.value("create_volume_inspector"):
            wrong("create_volume_inspector", "cannot be combined with `deploy`: the training pods use the volume")
        claim = next((name for name in CLAIMS if name in self.parameters), None)
        for flag in _OTHER_STEPS:
            if self.value(flag) and claim and not self.value(claim):
                wrong(flag, f"needs `{claim}`, which is empty")
            elif self.value(flag) and claim is None:
                wrong(
                    flag,
                    f"needs `{next((name for name in CLAIMS if name in self._unset), CLAIMS[0])}`, which is not set",
                )
        for name in ("deploy", *_OTHER_STEPS):
            if name in self.parameters and not isinstance(self.value(name), bool):
                wrong(name, f"expected True or False, got {self.value(name)!r}")
        workers, port, own = self.value("worker_replicas"), self.value("port"), self.value("name")
        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= 1000:
            wrong("worker_replicas", f"expected a whole number from 1 to 1000, got {workers!r}")
        if port is not None and (not isinstance(port, int) or not 1 <= port <= 65535):
            wrong("port", f"expected a whole number from 1 to 65535, got {port!r}")
        if own is not None and not (isinstance(own, str) and _LABEL.fullmatch(own) and len(own) <= 50):
            wrong("name", f"expected at most 50 small letters, digits and `-`, got {own!r}")
        return found

    def _assignments(self) -> Iterator[tuple[str, nodes.Assign]]:
        """Yield the assignments to a single variable at the top level of the template."""
        for node in self._tree.body:
            if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
                yield node.target.name, node

    def _add_computed(self) -> None:
        """Add the parameters that are computed from others, if their values are texts, numbers or lists."""
        made = [(name, node) for name, node in self._assignments() if name not in self.parameters]
        top = nodes.Template([node for _, node in self._assignments()], lineno=1)
        try:
            found = vars(self._compile(top).make_module(self._values))
        except Exception:  # noqa: BLE001
            return  # the error is reported when the template is rendered
        for name, node in made:
            if isinstance(found.get(name), str | int | list) and found[name] != []:
                self.parameters[name] = Parameter(found[name], Location(self.source, node.lineno, (name,)))
        for name, parameter in self.parameters.items():
            if isinstance(found.get(name), str | int | list):  # the last `set` of a name counts
                self.parameters[name] = parameter.replace(value=found[name])

    def _add_constant(self, name: str, node: nodes.Assign) -> None:
        """Add a parameter for an assignment of a constant."""
        value = _constant(node)
        if value is not _NOT_CONSTANT and value != []:  # an empty list is filled later in the template
            self.parameters[name] = Parameter(value, Location(self.source, node.lineno, (name,)))

    def _find_unset(self) -> dict[str, int]:
        """Return the variables that are used but not set, each with the line of its first use."""
        names = meta.find_undeclared_variables(self._tree)
        used = [node for node in self._tree.find_all(nodes.Name) if node.name in names and node.ctx == "load"]
        return {node.name: node.lineno for node in sorted(used, key=lambda node: -node.lineno)}

    def _give(self, given: Sequence[str]) -> None:
        """Set the values of `-p` items; raise InputError for an unknown name or a value of another type."""
        values: dict[str, Any] = {}
        for item in given:
            name, separator, text = item.partition("=")
            if not separator:
                raise InputError(f"-p {item}: expected NAME=VALUE")
            if name in self._unset:
                self._values[name] = _typed(text)
                self.parameters[name] = Parameter(self._values[name], Location(self.source, self._unset[name], (name,)))
                continue
            if name not in self.parameters:
                known = [*self.parameters, *self._unset]
                near = nearest(name, known)
                hint = f"did you mean `{near}`?" if near else f"the template has: {', '.join(known) or 'none'}"
                raise InputError(f"-p {item}: the template has no parameter `{name}`", hint=hint)
            values[name] = _typed_as(self.parameters[name].value, text, item)
        self._put(values)

    def _put(self, values: Mapping[str, Any]) -> None:
        """Replace the values of parameters in the tree; the last assignment of a name gets the new value."""
        last = {name: node for name, node in self._assignments() if _constant(node) is not _NOT_CONSTANT}
        for name, value in values.items():
            if name in last:
                last[name].node = nodes.Const(value, lineno=last[name].lineno)
        for name, value in values.items():
            self.parameters[name] = self.parameters[name].replace(value=value)


def _constant(node: nodes.Assign) -> Any:
    """Return the value of an assignment; _NOT_CONSTANT if it depends on variables."""
    try:
        return cast("nodes.Expr", node.node).as_const()
    except nodes.Impossible:
        return _NOT_CONSTANT


def _typed(text: str) -> object:
    """Return the value of a variable that the template does not set: a whole number, true, false, or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text) else text


def _typed_as(before: object, text: str, item: str) -> object:
    """Return the value of `-p NAME=text` with the type of the value in the template, `before`; raise InputError."""
    if isinstance(before, bool):
        if text.lower() not in ("true", "false"):
            raise InputError(f"-p {item}: expected true or false")
        return text.lower() == "true"
    if isinstance(before, int):
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise InputError(f"-p {item}: expected a whole number")
        return int(text)
    if before is None or isinstance(before, str):
        return text
    raise InputError(
        f"-p {item}: the template sets this to a list, a mapping or a number that is not whole, which `-p` cannot set",
        hint="edit the template",
    )


def _line(trace: TracebackType | None) -> int:
    """Return the line of the template that raised the error."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _sentence(error: Exception) -> str:
    """Return a message for an error that jinja2 or the template raised."""
    if isinstance(error, MemoryError):
        return f"takes more than {MEMORY_BYTES >> 20} MB of memory to compute"
    if isinstance(error, RecursionError | SyntaxError):  # jinja2 compiles the template to Python, which may refuse it
        return "is nested too deeply, or calls itself endlessly"
    message = str(error).rstrip(".") or type(error).__name__
    if "no loader" in message:
        return "includes or extends another file, which is not supported"
    if "is undefined" in message or "has no attribute" in message:
        return f"{message}; set it at the top: `{{% set NAME = … %}}`"
    return message
