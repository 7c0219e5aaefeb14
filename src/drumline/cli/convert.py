"""``drumline convert``: convert a file of another system, or a TF_CONFIG, to a drumline.yml."""

from __future__ import annotations

from pathlib import Path

import click

from drumline.cli.init import name_project
from drumline.cli.options import PARAMETER_OPTION
from drumline.cli.terminal import print_document
from drumline.cli.text import warn
from drumline.cli.tfconfig import read_value
from drumline.errors import InputError, Problem, SpecError
from drumline.load.engine import known_spec_type
from drumline.load.load import check_name, check_spec, parse_parameters, read_file
from drumline.plan.address import Address, parse_address
from drumline.plan.parse import parse_json
from drumline.plan.tfconfig import examine
from drumline.spec.dialect import draft_of, read_draft, template_draft, tfconfig
from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.dialect.write import write
from drumline.spec.templates import is_jinja_template
from drumline.words import listed

EPILOG = """
\b
Examples:
  drumline convert riseml.yml > drumline.yml
  drumline convert storage.yaml tfjob.yaml > drumline.yml
  drumline convert myjob.template.jinja > drumline.yml
  drumline convert --tf-config "$TF_CONFIG" --run 'python task.py' > drumline.yml
"""

_TF_CONFIG = "TF_CONFIG"


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True), metavar="[FILE]...")
@PARAMETER_OPTION
@click.option("--tf-config", "text", metavar="TEXT", help="A TF_CONFIG instead of a file; `-` is standard input.")
@click.option("--run", metavar="COMMAND", help="The command of its nodes. With --tf-config.")
@click.option(
    "--project", metavar="NAME", help="The name of the project. Default: the name of the directory. With --tf-config."
)
def command(
    files: tuple[str, ...], given: tuple[str, ...], text: str | None, run: str | None, project: str | None
) -> None:
    """Convert FILE, which was written for another system, to a drumline.yml that runs the same.

    Comments in the result explain each decision. What could not be converted is also reported on stderr. A TFJob may be
    given together with the volume claims that it uses and the Job that fills one of them, in one file or in several.
    """
    if bool(files) == (text is not None):
        raise InputError("expected a file or --tf-config", hint="`drumline convert --help` has examples")
    if text is None and (run or project):
        raise InputError("--run and --project need --tf-config", hint="leave them out: the file has both")
    if text is not None and given:
        raise InputError("-p needs a file", hint="leave it out: a TF_CONFIG has no parameters")
    draft = _draft(files, given) if text is None else _draft_of_tf_config(text, run, project)
    for warning in read_draft(draft, known_spec_type()).warnings:
        warn(warning)
    written = write(draft)
    check_spec(written.encode(), draft.location.source)
    print_document(written)


def _draft(files: tuple[str, ...], given: tuple[str, ...]) -> SpecDraft:
    """Return the draft for one or more files; raise InputError if their format is not known."""
    read = [read_file(file) for file in files]
    if len(read) == 1 and is_jinja_template(read[0][1]):
        return template_draft(read[0][1], read[0][0], given)
    draft = draft_of(*((data, source) for source, data, _ in read))
    if draft is None:
        source = listed([source for source, _, _ in read])
        raise InputError(
            f"{source}: the format of this file is not known", hint="`drumline check` reads a drumline.yml"
        )
    for name, value in parse_parameters(given, draft.values.get("parameters", {})).items():
        path = ("parameters", name)
        draft.put(path, value, draft.locations[path])
        draft.notes.pop(path, None)  # the note says that the parameter has no value
    return draft


def _draft_of_tf_config(text: str, run: str | None, project: str | None) -> SpecDraft:
    """Return the draft for the text of a TF_CONFIG; raise SpecError with its problems."""
    text = read_file("-")[1].decode(errors="replace") if text == "-" else text
    assigned = read_value(text, _TF_CONFIG, "give only the JSON")
    # Problems of `task`, which names one replica, do not matter: the spec describes all replicas.
    problems = [
        Problem(_TF_CONFIG, None, each.path, each.message)
        for each in examine(assigned.value).of("problem")
        if not (each.converts or each.path.startswith("task") or each.message.startswith("`task` is m"))
    ]
    if problems:
        raise SpecError(problems)
    config = parse_json(assigned.value)
    assert isinstance(config, dict)  # anything else is a problem
    cluster = _read_cluster(config.get("cluster"))
    task, folder = config.get("task"), config.get("model_dir")
    return tfconfig.translate(
        {role: [(each.host, each.port) for each in several] for role, several in cluster.items()},
        source=_TF_CONFIG,
        project=name_project(Path()) if project is None else check_name("--project", project),
        run=run or assigned.command or None,
        local=all(each.is_local for several in cluster.values() for each in several),
        has_evaluator=isinstance(task, dict) and task.get("type") == "evaluator",
        model_dir=folder if isinstance(folder, str) else None,
    )


def _read_cluster(written: object) -> dict[str, list[Address]]:
    """Return the addresses of each role by index; raise SpecError if an index is missing."""
    if not isinstance(written, dict) or not written:
        raise InputError("TF_CONFIG has no cluster", hint='write `{"cluster": {"worker": ["a:2222", "b:2222"]}}`')
    cluster: dict[str, list[Address]] = {}
    problems = []
    for role, several in written.items():
        items = several.items() if isinstance(several, dict) else enumerate(several)
        indexed = {int(index): parse_address(address) for index, address in items}
        missing = [f"{role}.{index}" for index in range(max(indexed)) if index not in indexed]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            message = f"{listed(missing)} {verb} missing, and a spec needs the whole cluster; add every address"
            problems.append(Problem(_TF_CONFIG, None, f"cluster.{role}", message))
        cluster["chief" if role == "master" else role] = [indexed[index] for index in sorted(indexed)]
    if problems:
        raise SpecError(problems)
    return cluster
