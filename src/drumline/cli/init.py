"""``drumline init``: write a spec and a training script to start from."""

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

# The framework of each template; the first template of a framework is its default.
TEMPLATES = {
    "keras": "tensorflow",
    "custom-loop": "tensorflow",
    "ps": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "plain": "plain",
}
SPEC, SCRIPT, SCHEMA = "drumline.yml", "train.py", ".drumline/schema.json"
# Not a spec but a template for `kubectl`, like those of tensorflow/ecosystem.
KUBERNETES_JINJA, JINJA = "kubernetes-jinja", "myjob.template.jinja"

# `drumline.yaml` would be ignored next to a `drumline.yml`.
_EXISTING = (SPEC, "drumline.yaml", SCRIPT)
# Names that YAML does not read as text.
_NOT_TEXT = re.compile(r"[0-9].*|null|true|false|yes|no|on|off|y|n", re.IGNORECASE)


@click.command()
@click.option("--framework", type=click.Choice(list(dict.fromkeys(TEMPLATES.values()))), help="Default: tensorflow.")
@click.option(
    "--template", type=click.Choice([*TEMPLATES, KUBERNETES_JINJA]), help="Default: the first of the framework."
)
@click.option("--project", metavar="NAME", help="The name of the project. Default: the name of the directory.")
@click.argument("directory", default=".", type=click.Path())
def command(framework: str | None, template: str | None, project: str | None, directory: str) -> None:
    """Write a drumline.yml and a training script into DIRECTORY (default: the current one), ready to run.

    \b
    keras        model.fit on several workers (TensorFlow)
    custom-loop  a custom training loop on several workers (TensorFlow)
    ps           parameter servers, a chief and an evaluator (TensorFlow)
    torch        DistributedDataParallel (PyTorch)
    jax          one batch over all processes (JAX)
    plain        no framework: only the variables of every replica

    kubernetes-jinja  a Jinja template for `drumline render` and `kubectl create` instead of a spec (TensorFlow)

    Existing files are never overwritten.
    """
    target = Path(directory)
    name = name_project(target) if project is None else check_name("--project", project)
    if template == KUBERNETES_JINJA and framework in (None, "tensorflow"):
        text = _template_text(template, JINJA).replace('name = "digits"', f'name = "{label(name)}"', 1)
        _show_template(target, _write_files(target, {JINJA: text}, existing=(JINJA,)))
        return
    template = _choose_template(framework, template)
    texts = {
        SCHEMA: make_schema(known_spec_type()),
        SCRIPT: _template_text(template, SCRIPT),
        # Last, so that a spec never exists without its script.
        SPEC: _template_text(template, SPEC).replace("project: digits", f"project: {_quote_name(name)}", 1),
    }
    written = _write_files(target, texts)
    _show_next(target, written, _missing_framework(TEMPLATES[template]))


def _choose_template(framework: str | None, template: str | None) -> str:
    """Return the template for the two options; raise InputError if they contradict each other."""
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
    """Return the content of a file of a template."""
    # With underscores: tools that check the wheel treat the scripts as modules.
    return files("drumline.cli").joinpath("templates", template.replace("-", "_"), name).read_text("utf-8")


def name_project(directory: Path) -> str:
    """Return the name of a directory, changed into a valid project name."""
    try:
        name = Path(os.path.normpath(directory.absolute())).name
    except OSError as error:
        raise InputError(f"this directory cannot be read: {error.strerror}") from None
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:63].strip("-_") or "training"


def _quote_name(name: str) -> str:
    """Return a name, quoted if YAML would not read it as text."""
    return f'"{name}"' if _NOT_TEXT.fullmatch(name) else name


def label(name: str) -> str:
    """Return a name, changed into a valid Kubernetes name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}"


def _write_files(directory: Path, texts: Mapping[str, str], existing: Sequence[str] = _EXISTING) -> list[str]:
    """Write all files or none; return the names of those written. An existing schema is kept."""
    try:
        _refuse_existing(directory, existing)
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
    except FileExistsError as error:  # created meanwhile, or not a directory
        raise InputError(f"{error.filename}: exists already; nothing was written") from None
    except OSError as error:
        raise InputError(f"{error.filename or directory}: cannot be written: {error.strerror}") from None


def _refuse_existing(directory: Path, existing: Sequence[str] = _EXISTING) -> None:
    """Raise InputError if a file would be overwritten or hidden."""
    there = [name for name in existing if os.path.lexists(directory / name)]
    if there:
        names = listed([str(directory / name) for name in there])
        raise InputError(
            f"{names} {'exists' if len(there) == 1 else 'exist'} already; nothing was written",
            hint="name another directory: `drumline init DIRECTORY`",
        )


def _make_directory(path: Path, made: list[Path]) -> None:
    """Make a directory and its missing parents, and add each of them to `made`."""
    if not path.is_dir():
        _make_directory(path.parent, made)
        path.mkdir()
        made.append(path)


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """Yield a list for the paths that the block creates; remove them in reverse order if the block fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _show_template(directory: Path, written: list[str]) -> None:
    """Print the files that were written and the next commands."""
    for name in written:
        print_line(f"wrote {directory / name}")
    print_line()
    print_line("Next, after setting its image:")
    if directory.absolute() != Path.cwd():
        print_line(f"  cd {shlex.quote(str(directory))}")
    claim, inspector = "-p create_pvc_checkpoint=false", "-p create_volume_inspector=false"
    print_line(f"  drumline render {JINJA} {inspector} | kubectl create -f -     create the volume claim")
    print_line(f"  drumline render {JINJA} {claim} {inspector} -p deploy=true | kubectl create -f -     train")
    print_line(f"  drumline render {JINJA} {claim} | kubectl create -f -     inspect the checkpoints")
    print_line(f"  drumline convert {JINJA} > {SPEC}     make a spec of it, for `drumline train`")


def _missing_framework(framework: str) -> str | None:
    """Return the framework if drumline's own Python does not have it, without importing it."""
    return None if framework == "plain" or find_spec(framework) else framework


def _show_next(directory: Path, written: list[str], missing: str | None = None) -> None:
    """Print the files that were written and the next commands; the first installs the framework if it is missing."""
    for name in written:
        print_line(f"wrote {directory / name}")
    if SCHEMA not in written:
        print_line(f"kept {directory / SCHEMA}; `drumline schema` prints the current one")
    print_line()
    print_line("Next:")
    if directory.absolute() != Path.cwd():
        print_line(f"  cd {shlex.quote(str(directory))}")
    steps = {f"pip install {missing}": "it is missing in the environment of drumline"} if missing else {}
    steps["drumline check"] = "list every problem, or show the replicas"
    steps["drumline train"] = "train with all replicas on this machine"
    steps["python train.py"] = "train in a single process, without drumline"
    width = max(map(len, steps))
    for step, about in steps.items():
        print_line(f"  {step.ljust(width)}    {about}")
