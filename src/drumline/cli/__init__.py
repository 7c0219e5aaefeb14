"""The command line: one file per command, imported when it is called and not before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from drumline import __version__
from drumline.cli import terminal
from drumline.cli.synonyms import command_hint
from drumline.errors import DrumlineError, EngineError, InputError, SeveralError, SpecError
from drumline.words import describe_os_error

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The help texts live here, so that `drumline --help` imports no command.
COMMANDS = {
    "init": "Write a drumline.yml and a training script to begin with",
    "train": "Run a spec and show what happens",
    "status": "Show runs and their replicas",
    "monitor": "Show what the replicas use: CPU, memory, GPUs",
    "warm": "Show or end what waits, warmed up, for the next run",
    "logs": "Show what the replicas said, in the order of time",
    "tensorboard": "Show what runs have written for TensorBoard",
    "kill": "End runs, to the last process",
    "resume": "Go on with a run that is over and did not finish",
    "wait": "Wait until a run is over",
    "drill": "Hurt a replica on purpose, and see how the run recovers",
    "stacks": "Show what the threads of a run's replicas are doing, or were",
    "events": "Show what happened to a run, one line each",
    "inspect": "Look at what a run has written, where it is: in its folder or on its volume",
    "cp": "Copy what a run has written, or something to it",
    "rm": "Forget runs that are over, and their files",
    "environments": "List the environments that were built for runs, or remove them",
    "supervise": "Look after a run again whose supervisor is gone",
    "check": "Name every problem of a spec, or show who would run",
    "doctor": "Say whether this machine, hosts or a cluster have what a run needs",
    "render": "Print exactly what would run",
    "convert": "Print a file of another system as a drumline.yml",
    "tfconfig": "Make TF_CONFIG for hosts, or check one",
    "schema": "Print the JSON Schema of drumline.yml",
    "completion": "Print the completion script for a shell",
    "help": "Show what a command takes, or a page about a topic",
}

EPILOG = """
\b
Exit codes:
  0    ok
  1    the training failed
  2    your spec or your arguments
  3    the engine
  4    not found
  130  interrupted

`drumline help` lists pages about specs, ids, engines and more.
"""


class LazyGroup(click.Group):
    """A group whose commands are modules, looked up by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name every command, in the order a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"drumline.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, name the one that is probably meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise InputError(f"no command `{args[0]}`", hint=command_hint(args[0], COMMANDS))
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing and name and command:  # a shell completes
            import_module("drumline.cli.complete").offer_runs(name, command)
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Name the commands and options that begin so, from the table alone."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only where a shell asks

        names = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="drumline %(version)s")
def group() -> None:
    """Distributed training from one spec: on this machine, on SSH hosts, on Kubernetes."""


def main() -> None:
    """Run the command line and leave with its exit code; nothing a user can cause ends in a traceback.

    Left without taking the interpreter apart, which takes as long as starting it and is of use to nobody.
    """
    terminal.guard_streams()
    code = run()
    with suppress(OSError):
        terminal.flush()
    os._exit(code)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = group.main(args=argv, prog_name="drumline", standalone_mode=False)
        terminal.flush()
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.1 shows the help by itself
            error.show()
        else:
            show_error(InputError(error.format_message().rstrip("."), hint=_hint(error)))
        return 2
    except click.ClickException as error:
        show_error(InputError(error.format_message()))
        return 2
    except DrumlineError as error:
        show_error(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # Whoever read our output has had enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a disk that is full, a file that may not be read: of whatever nobody foresaw
        show_error(EngineError(describe_os_error(error)))
        return EngineError.exit_code
    except Exception as error:  # noqa: BLE001 - a defect; also its text may come from a host or a log
        terminal.print_traceback(error)
        return 1
    return code if isinstance(code, int) else 0


def _hint(error: click.UsageError) -> str:
    """Where to find what is missing, or was not understood."""
    if isinstance(error, click.MissingParameter) and error.param and (error.param.metavar or "").startswith("ID"):
        return "`drumline status` lists the runs"
    return f"`{error.ctx.command_path if error.ctx else 'drumline'} --help` shows what it takes"


def show_error(error: DrumlineError) -> None:
    """Print what was refused and what to do."""
    if isinstance(error, SeveralError):
        for each in error.errors:
            show_error(each)
        return
    message = error.message
    if isinstance(error, SpecError):
        terminal.print_lines(map(str, error.problems), err=True)
        number = len(error.problems)
        message = f"{number} problems, nothing was done" if number > 1 else "one problem, nothing was done"
    terminal.print_error(message, error.hint)
