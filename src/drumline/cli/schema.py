"""``drumline schema``: the JSON Schema of drumline.yml."""

from __future__ import annotations

import click

from drumline.cli.terminal import print_document
from drumline.load.engine import known_spec_type
from drumline.spec.schema import make_schema


@click.command()
def command() -> None:
    """Print the JSON Schema of drumline.yml, for editors that complete and check YAML."""
    print_document(make_schema(known_spec_type()))
