"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from drumline.engine.options import Flag
from drumline.engine.registry import engine_names, engine_options
from drumline.spec.quantity import parse_seconds

SPEC_ARGUMENT = click.argument("file", required=False, type=click.Path(allow_dash=True))
PARAMETER_OPTION = click.option(
    "-p", "--parameter", "given", multiple=True, metavar="NAME=VALUE", help="Set a parameter."
)


class _Seconds(click.ParamType[float]):
    """A time such as 30s or 5m, in seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_seconds(str(value))
        except ValueError as error:
            self.fail(f"expected {error}", param, ctx)


SECONDS = _Seconds()


def engine_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--on` and the flags of all engines to a command.

    The command gets a parameter `flags`: the values of the flags that were typed, by name.
    """
    known = {flag.name: flag for each in engine_options().values() for flag in each.FLAGS}

    @wraps(command)
    def with_flags(*args: object, **typed: Any) -> Any:
        values = {name: typed.pop(_parameter(flag)) for name, flag in known.items()}
        return command(*args, flags={name: value for name, value in values.items() if value is not None}, **typed)

    decorated: Callable[..., Any] = with_flags
    for flag in reversed(known.values()):
        words = (f"--{flag.name}", *([f"-{flag.letter}"] if flag.letter else []), _parameter(flag))
        decorated = click.option(*words, metavar=flag.metavar, help=flag.help)(decorated)
    return click.option(
        "--on", type=click.Choice(engine_names()), help="The engine to use instead of the spec's default."
    )(decorated)


def _parameter(flag: Flag) -> str:
    return f"engine_{flag.name.replace('-', '_')}"
