"""``drumline init``: a spec and a training script to begin with."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import click

from drumline.cli.terminal import print_line
from drumline.errors import InputError
from drumline.load.engine import known_spec_type
from drumline.load.load import check_name
from drumline.spec.schema import make_schema
from drumline.words import listed

# Each template's framework; the first of a framework is the one meant when no template is named.
TEMPLATES = {
    "keras": "tensorflow",
    "custom-loop": "tensorflow",
    "ps": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "plain": "plain",
}
SPEC, SCRIPT, SCHEMA = "drumline.yml", "train.py", ".drumline/schema.json"
# No spec, but a template for `kubectl`, as users of tensorflow/ecosystem have it.
KUBERNETES_JINJA, JINJA = "kubernetes-jinja", "myjob.template.jinja"

# `drumline.yaml` would be read no more once a `drumline.yml` stands beside it.
_IN_THE_WAY = (SPEC, "drumline.yaml", SCRIPT)
# What YAML reads as something else than text, as far as a name can be spelled so.
_NOT_TEXT = re.compile(r"[0-9].*|null|true|false|yes|no|on|off|y|n", re.IGNORECASE)


@click.command()
@click.option(
    "--framework", type=click.Choice(list(dict.fromkeys(TEMPLATES.values()))), help="tensorflow unless given."
)
@click.option(
    "--template", type=click.Choice([*TEMPLATES, KUBERNETES_JINJA]), help="The framework's first unless given."
)
@click.option("--project", metavar="NAME", help="The project's name; the directory's unless given.")
@click.argument("directory", default=".", type=click.Path())
def command(framework: str | None, template: str | None, project: str | None, directory: str) -> None:
    """Write a drumline.yml and a training script into DIRECTORY (here unless given), ready to run.

    \b
    keras        model.fit on several workers (TensorFlow)
    custom-loop  a training loop of your own on several workers (TensorFlow)
    ps           parameter servers, a chief and an evaluator (TensorFlow)
    torch        DistributedDataParallel (PyTorch)
    jax          one batch over all processes (JAX)
    plain        no framework: only what drumline gives every replica

    kubernetes-jinja  instead of these, a Jinja template for `drumline render` and `kubectl create` (TensorFlow)

    Nothing is ever overwritten.
    """
    target = Path(directory)
    name = name_project(target) if project is None else check_name("--project", project)
    if template == KUBERNETES_JINJA and framework in (None, "tensorflow"):
        text = _template_text(template, JINJA).replace('name = "digits"', f'name = "{label(name)}"', 1)
        _show_template(target, _write_files(target, {JINJA: text}, in_the_way=(JINJA,)))
        return
    template = _choose_template(framework, template)
    texts = {
        SCHEMA: make_schema(known_spec_type()),
        SCRIPT: _template_text(template, SCRIPT),
        # Last, so that where a spec is, there is also what it runs.
        SPEC: _template_text(template, SPEC).replace("project: digits", f"project: {_quote_name(name)}", 1),
    }
    written = _write_files(target, texts)
    _show_next(target, written, _missing_framework(TEMPLATES[template]))


def _choose_template(framework: str | None, template: str | None) -> str:
    """The template that two options, either of them left out, agree upon."""
    if template is None:
        return next(name for name, its in TEMPLATES.items() if its == (framework or "tensorflow"))
    own = TEMPLATES.get(template, "tensorflow")
    if framework not in (None, own):
        others = [f"`--template {name}`" for name, its in TEMPLATES.items() if its == framework]
        raise InputError(
            f"--template {template} is for {own}, not for {framework}",
            hint=f"leave out --framework, or use {' or '.join(others)}",
        )
    return template


def _template_text(template: str, name: str) -> str:
    """A file of a template, as it is shipped."""
    # Folders below a package are named as packages are: whoever checks the wheel takes the scripts for modules.
    return files("drumline.cli").joinpath("templates", template.replace("-", "_"), name).read_text("utf-8")


def name_project(directory: Path) -> str:
    """The directory's name, made a valid name of a project."""
    try:
        name = Path(os.path.normpath(directory.absolute())).name
    except OSError as error:
        raise InputError(f"this directory cannot be read: {error.strerror}") from None
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:63].strip("-_") or "training"


def _quote_name(name: str) -> str:
    """The name as YAML reads it back: text, whatever it looks like."""
    return f'"{name}"' if _NOT_TEXT.fullmatch(name) else name


def label(name: str) -> str:
    """The name as a cluster takes it."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}"


def _write_files(directory: Path, texts: Mapping[str, str], in_the_way: Sequence[str] = _IN_THE_WAY) -> list[str]:
    """Write every file or none; return the names of those written. An old schema is left as it is."""
    try:
        _refuse_existing(directory, in_the_way)
        with _undone_on_failure() as made:
            written = []
            for name, text in texts.items():
                path = directory / name
                _make_directory(path.parent, made)
                if name == SCHEMA and path.exists():
                    continue
                with path.open("x", encoding="utf-8") as file:
                    made.append(path)
                    file.write(text)
                written.append(name)
            return written
    except FileExistsError as error:  # came between our look and our writing, or is no directory
        raise InputError(f"{error.filename}: is in the way, nothing was written") from None
    except OSError as error:
        raise InputError(f"{error.filename or directory}: cannot be written: {error.strerror}") from None


def _refuse_existing(directory: Path, in_the_way: Sequence[str] = _IN_THE_WAY) -> None:
    """Raise InputError if there is anything that would be overwritten or hidden."""
    there = [name for name in in_the_way if os.path.lexists(directory / name)]
    if there:
        names = listed([str(directory / name) for name in there])
        raise InputError(
            f"{names} {'exists' if len(there) == 1 else 'exist'} already, nothing was written",
            hint="name another directory: `drumline init DIRECTORY`",
        )


def _make_directory(path: Path, made: list[Path]) -> None:
    """Make a directory and those above it that are missing, and note each of them."""
    if not path.is_dir():
        _make_directory(path.parent, made)
        path.mkdir()
        made.append(path)


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """Give a list of what was made; if the block fails, remove all of it again, the last first."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _show_template(directory: Path, written: list[str]) -> None:
    """Say what is there now, and what to do with it."""
    for name in written:
        print_line(f"wrote {directory / name}")
    print_line()
    print_line("Next, when its image is set:")
    if directory.absolute() != Path.cwd():
        print_line(f"  cd {shlex.quote(str(directory))}")
    claim, inspector = "-p create_pvc_checkpoint=false", "-p create_volume_inspector=false"
    print_line(f"  drumline render {JINJA} {inspector} | kubectl create -f -     make the claim")
    print_line(f"  drumline render {JINJA} {claim} {inspector} -p deploy=true | kubectl create -f -     train")
    print_line(f"  drumline render {JINJA} {claim} | kubectl create -f -     look at what was saved")
    print_line(f"  drumline convert {JINJA} > {SPEC}     have drumline do all of it")


def _missing_framework(framework: str) -> str | None:
    """What a script of this framework needs and drumline's own Python does not have, looked up without an import."""
    return None if framework == "plain" or find_spec(framework) else framework


def _show_next(directory: Path, written: list[str], missing: str | None = None) -> None:
    """Say what is there now, and what to do with it; first of all to install the framework, if it is missing."""
    for name in written:
        print_line(f"wrote {directory / name}")
    if SCHEMA not in written:
        print_line(f"kept {directory / SCHEMA}; `drumline schema` prints today's")
    print_line()
    print_line("Next:")
    if directory.absolute() != Path.cwd():
        print_line(f"  cd {shlex.quote(str(directory))}")
    steps = {f"pip install {missing}": "it is not in the environment that drumline is in"} if missing else {}
    steps["drumline check"] = "name every mistake, or show who would run"
    steps["drumline train"] = "train with everyone, here"
    steps["python train.py"] = "train alone, as one process"
    width = max(map(len, steps))
    for step, about in steps.items():
        print_line(f"  {step.ljust(width)}    {about}")
