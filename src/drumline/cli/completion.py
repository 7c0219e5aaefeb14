"""``drumline completion``: the completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from drumline.cli.terminal import print_document


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(drumline completion bash)"   in ~/.bashrc
    zsh:   eval "$(drumline completion zsh)"    in ~/.zshrc
    fish:  drumline completion fish > ~/.config/fish/completions/drumline.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise click.ClickException(f"no completion for {shell}")
    complete = kind(ctx.find_root().command, {}, "drumline", "_DRUMLINE_COMPLETE")
    # Not `complete.source()`, which starts a bash to read its version.
    print_document(f"{complete.source_template % complete.source_vars()}\n")
