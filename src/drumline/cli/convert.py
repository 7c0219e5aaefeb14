"""``drumline convert``: a file of another system, or a TF_CONFIG, as a drumline.yml."""

from __future__ import annotations

import click

from drumline.cli.load import check_spec, read_file
from drumline.cli.text import warn
from drumline.errors import InputError
from drumline.spec.dialect import draft_of, reading_of
from drumline.spec.dialect.write import write
from drumline.words import listed

EPILOG = """
\b
Examples:
  drumline convert riseml.yml > drumline.yml
  drumline convert storage.yaml tfjob.yaml > drumline.yml
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE...")
def command(files: tuple[str, ...]) -> None:
    """Print FILE, which is another system's, as a drumline.yml that runs the same.

    It has comments where something was decided. What could not be carried over is said on stderr, too. A TFJob may come
    with the claims that it uses and the Job that fills one of them, in its own file or in others.
    """
    read = [read_file(file) for file in files]
    draft = draft_of(*((data, source) for source, data, _ in read))
    source = listed([source for source, _, _ in read])
    if draft is None:
        raise InputError(f"{source}: is in no dialect that is known here", hint="`drumline check` reads a drumline.yml")
    reading = reading_of(draft)
    for remark in reading.remarks:
        warn(remark)
    text = write(draft)
    check_spec(text.encode(), source)
    click.echo(text, nl=False)
