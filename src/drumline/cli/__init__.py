"""The command line: one module per command, imported when the command is called."""

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

# The help texts are here, so that `drumline --help` imports no command.
COMMANDS = {
    "init": "Write a drumline.yml and a training script to start from",
    "train": "Run a spec and show its output",
    "status": "Show runs and their replicas",
    "monitor": "Show the CPU, memory and GPU use of replicas",
    "warm": "Show or stop the warm processes that replicas are forked from",
    "logs": "Show the output of replicas, ordered by time",
    "tensorboard": "Show the summaries of runs in TensorBoard",
    "kill": "Stop runs and all their processes",
    "resume": "Continue a run that failed or was killed",
    "wait": "Wait until a run is over",
    "drill": "Inject a fault into a replica and report how the run recovers",
    "stacks": "Show the stack traces of a run's replicas",
    "events": "Show what happened to a run, one line per event",
    "inspect": "Open a shell in the output folder or on the volume of a run",
    "cp": "Copy files from or to the output of a run",
    "rm": "Remove runs that are over, with their files",
    "environments": "List or remove the Python environments built for runs",
    "supervise": "Start a new supervisor for a run that has lost its own",
    "check": "List every problem of a spec, or show its replicas",
    "doctor": "Check that this machine, the hosts or the cluster have what a run needs",
    "render": "Print exactly what would run",
    "convert": "Convert a file of another system to a drumline.yml",
    "tfconfig": "Make TF_CONFIG for hosts, or check one",
    "schema": "Print the JSON Schema of drumline.yml",
    "completion": "Print the completion script for a shell",
    "help": "Show the help of a command, or a page about a topic",
}

EPILOG = """
\b
Exit codes:
  0    success
  1    the training failed
  2    the spec or an argument is wrong
  3    the engine failed
  4    not found
  130  interrupted

`drumline help` lists pages about specs, ids, engines and more.
"""


class LazyGroup(click.Group):
    """A group with one module for each command, which is imported when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands, the ones needed first at the top."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of this name, imported from its module; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"drumline.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raise InputError with a suggestion for an unknown name."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise InputError(f"no command `{args[0]}`", hint=command_hint(args[0], COMMANDS))
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing and name and command:  # a shell completes
            import_module("drumline.cli.complete").complete_run_ids(name, command)
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text, without importing commands."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - needed only for completion

        names = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="drumline %(version)s")
def group() -> None:
    """Distributed training from one spec: on this machine, on SSH hosts, on Kubernetes."""


def main() -> None:
    """Run the command line and exit with its code.

    Exit without finalizing the interpreter, which would take as long as starting it.
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
        # The reader closed the pipe. Python would report the error again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, an unreadable file
        show_error(EngineError(describe_os_error(error)))
        return EngineError.exit_code
    except Exception as error:  # noqa: BLE001 - a defect; its text may come from a host and is escaped
        terminal.print_traceback(error)
        return 1
    return code if isinstance(code, int) else 0


def _hint(error: click.UsageError) -> str:
    """Return the hint for a wrong or missing argument."""
    if isinstance(error, click.MissingParameter) and error.param and (error.param.metavar or "").startswith("ID"):
        return "`drumline status` lists the runs"
    return f"`{error.ctx.command_path if error.ctx else 'drumline'} --help` shows its options"


def show_error(error: DrumlineError) -> None:
    """Print an error and its hint; each problem of a SpecError on a line of its own."""
    if isinstance(error, SeveralError):
        for each in error.errors:
            show_error(each)
        return
    message = error.message
    if isinstance(error, SpecError):
        terminal.print_lines(map(str, error.problems), err=True)
        number = len(error.problems)
        message = f"{number} problems; nothing was done" if number > 1 else "one problem; nothing was done"
    terminal.print_error(message, error.hint)
