"""``drumline convert``: a file of another system, or a TF_CONFIG, as a drumline.yml."""

from __future__ import annotations

import click

from drumline.cli.load import check_spec, read_file
from drumline.cli.text import warn
from drumline.errors import InputError
from drumline.spec.dialect import draft_of, reading_of
from drumline.spec.dialect.write import write

EPILOG = """
\b
Examples:
  drumline convert riseml.yml > drumline.yml
  drumline convert tfjob.yaml > drumline.yml
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(allow_dash=True))
def command(file: str) -> None:
    """Print FILE, which is another system's, as a drumline.yml that runs the same.

    It has comments where something was decided. What could not be carried over is said on stderr, too.
    """
    source, data, _ = read_file(file)
    draft = draft_of(data, source)
    if draft is None:
        raise InputError(f"{source}: is in no dialect that is known here", hint="`drumline check` reads a drumline.yml")
    reading = reading_of(draft)
    for remark in reading.remarks:
        warn(remark)
    text = write(draft)
    check_spec(text.encode(), source)
    click.echo(text, nl=False)
