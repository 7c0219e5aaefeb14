"""Files of older systems, read as they stand: each comes to a draft of a spec, and from there on is one.

A dialect is known by its content. What it says is put into a tree of our own keys whose lines are those of its file,
so that types, rules and messages are the same for all; what cannot be said is noted, line by line.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumline.errors import SpecError
from drumline.spec import document
from drumline.spec.dialect.draft import Draft
from drumline.spec.document import Node
from drumline.spec.foreign import is_template
from drumline.spec.read import Reading, read_as, read_tree
from drumline.spec.words import spell


def read_dialect(data: bytes, source: str, given: Sequence[str] = ()) -> Reading | None:
    """Read a file in a dialect; None if it is in none of them. Raise SpecError as `read_spec` does.

    Only a template looks at what is given for its parameters.
    """
    draft = template_draft(data, source, given) if is_template(data) else draft_of((data, source))
    return None if draft is None else reading_of(draft)


def reading_of(draft: Draft) -> Reading:
    """A draft, read as any spec is; problems are said in the words of the dialect."""
    if draft.problems:
        raise SpecError(draft.problems)
    reading = read_tree(draft.tree(), draft.spot.source)
    spots = draft.names()
    spelled = {spell(path): spot for path, spot in spots.items()}
    problems = (
        spelled[problem.path].problem(problem.message) if problem.path in spelled else problem
        for problem in reading.problems
    )
    return reading._replace(problems=tuple(problems), spots=spots, remarks=draft.remarks)


def draft_of(*files: tuple[bytes, str]) -> Draft | None:
    """The draft that a file comes to, or several that belong together, each with its name; None if in no dialect."""
    if len(files) == 1 and is_template(files[0][0]):
        return template_draft(*files[0])
    documents = [(each, source) for data, source in files for each in document.parse_several(data, source)]
    objects = [(each.root, source) for each, source in documents if {"apiVersion", "kind"} <= _keys(each.root)]
    if objects and len(objects) == len(documents):
        from drumline.spec.dialect import part, tfjob  # noqa: PLC0415 - one dialect does not load another

        return tfjob.translate([each for root, source in objects for each in part.objects(root, source)])
    if len(documents) != 1:
        return None
    (root, repeats), source = documents[0]
    if "train" in _keys(root) and "run" not in _keys(root):
        from drumline.spec.dialect import riseml  # noqa: PLC0415 - one dialect does not load another

        file, problems, lines, _ = read_as(riseml.File, root, source, repeats)
        if problems or file is None:
            raise SpecError(problems)
        return riseml.translate(file, source, lines)
    return None


def template_draft(data: bytes, source: str, given: Sequence[str] = ()) -> Draft:
    """The draft that a template's parameters come to, some of them with the values that are given."""
    from drumline.spec.dialect import jinja, template  # noqa: PLC0415 - jinja2 is an extra

    return template.translate(jinja.Template(document.decode(data, source), source, given))


def _keys(node: Node) -> set[str]:
    return {entry.key for entry in node.entries} if isinstance(node, document.Mapping) else set()
