"""``drumline schema``: for editors."""

from __future__ import annotations

from importlib.resources import files

import click

from drumline.cli.terminal import print_document


def shipped_schema() -> str:
    """The schema as it is shipped; a test holds it against the types."""
    return files("drumline.spec").joinpath("schema.json").read_text("utf-8")


@click.command()
def command() -> None:
    """Print the JSON Schema of drumline.yml, for editors that complete and check YAML."""
    print_document(shipped_schema())
