"""Read files of other systems: a riseml.yml, a TFJob, a Jinja template. Each is translated to a draft of a spec.

A dialect is recognized by the content of the file. Its values are put into a tree with the keys of a spec and the
lines of the file, so that types, rules and messages are the same as for a spec. What a spec cannot express becomes a
warning with its line.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumline.errors import SpecError
from drumline.spec import document
from drumline.spec.dialect import riseml, tfjob, tracked_node
from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.document import Node
from drumline.spec.location import Location
from drumline.spec.messages import format_path
from drumline.spec.read import ReadResult, read_as, read_tree
from drumline.spec.templates import helm_line, is_jinja_template
from drumline.spec.types import Spec


def read_dialect(data: bytes, source: str, kind: type[Spec], given: Sequence[str] = ()) -> ReadResult | None:
    """Read a file in a dialect; return None if it is in none of them. Raise SpecError as `read_spec` does.

    `given` are values of a template's parameters; other dialects ignore them.
    """
    draft = template_draft(data, source, given) if is_jinja_template(data) else draft_of((data, source))
    return None if draft is None else read_draft(draft, kind)


def read_draft(draft: SpecDraft, kind: type[Spec]) -> ReadResult:
    """Read a draft as a spec; problems name the lines and keys of the dialect's file."""
    if draft.problems:
        raise SpecError(draft.problems)
    reading = read_tree(draft.tree(), draft.location.source, kind)
    locations = draft.all_locations()
    spelled = {format_path(path): location for path, location in locations.items()}
    problems = (
        spelled[problem.path].problem(problem.message) if problem.path in spelled else problem
        for problem in reading.problems
    )
    return reading.replace(problems=tuple(problems), locations=locations, warnings=draft.warnings)


def draft_of(*files: tuple[bytes, str]) -> SpecDraft | None:
    """Return the draft for files that belong together, each with its name; None if they are in no dialect."""
    if len(files) == 1 and is_jinja_template(files[0][0]):
        return template_draft(*files[0])
    for data, source in files:
        _refuse_helm(data, source)
    documents = [(each, source) for data, source in files for each in document.parse_several(data, source)]
    if documents and all(_is_of_a_cluster(each.root) for each, _ in documents):
        return _draft_of_objects(documents)
    if len(documents) != 1:
        return None
    only, source = documents[0]
    root = only.root
    if "train" in _keys(root) and "run" not in _keys(root):
        file, problems, lines, _ = read_as(riseml.File, root, source, only.duplicates)
        if problems or file is None:
            raise SpecError(problems)
        return riseml.translate(file, source, lines)
    if serving := [key for key in ("deploy", "service") if key in _keys(root)]:
        _refuse_serving(root, source, serving[0])
    return None


def _refuse_helm(data: bytes, source: str) -> None:
    if line := helm_line(data):
        message = "is a template of Helm: render it first, `helm template CHART > rendered.yaml`, and give that file"
        raise SpecError([Location(source, line).problem(message)])


def _refuse_serving(root: Node, source: str, key: str) -> None:
    """Refuse a riseml.yml that only serves a model; a drumline.yml with such a key is read as a spec."""
    assert isinstance(root, document.Mapping)
    if not {"run", "roles", "train"} & _keys(root):
        line = next(entry.line for entry in root.entries if entry.key == key)
        message = (
            "is a riseml.yml that serves a model and trains nothing, which drumline does not support: add a `train`"
            " section, or write a spec with `drumline init`"
        )
        raise SpecError([Location(source, line, (key,)).problem(message)])


def _draft_of_objects(documents: Sequence[tuple[document.Document, str]]) -> SpecDraft:
    """Return the draft for Kubernetes objects; raise SpecError with all their problems."""
    problems = [
        Location(source, repeat.line, repeat.path).problem(
            f"appears a second time; first in line {repeat.first_line}. Kubernetes uses the last: keep one of them"
        )
        for each, source in documents
        for repeat in each.duplicates
    ]
    try:
        draft = tfjob.translate(
            [each for found, source in documents for each in tracked_node.read_objects(found.root, source)]
        )
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from None
    draft.problems += problems
    return draft


def _is_of_a_cluster(root: Node) -> bool:
    """Return whether a document is a Kubernetes object or a list of them, perhaps with a key missing."""
    keys = _keys(root)
    if {"project", "run"} & keys:
        return False
    return bool({"apiVersion", "kind"} & keys) or ("items" in keys and len(keys) <= 2)


def template_draft(data: bytes, source: str, given: Sequence[str] = ()) -> SpecDraft:
    """Return the draft for a template; `given` values replace those of its parameters."""
    from drumline.spec.dialect import jinja, template  # noqa: PLC0415 - jinja2 is an extra

    return template.translate(jinja.Template(document.decode(data, source), source, given))


def _keys(node: Node) -> set[str]:
    """Return the keys of a mapping; empty for any other node."""
    return {entry.key for entry in node.entries} if isinstance(node, document.Mapping) else set()
