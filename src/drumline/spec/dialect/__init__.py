"""Files of older systems, read as they stand: each comes to a draft of a spec, and from there on is one.

A dialect is known by its content. What it says is put into a tree of our own keys whose lines are those of its file,
so that types, rules and messages are the same for all; what cannot be said is noted, line by line.
"""

from __future__ import annotations

from drumline.errors import SpecError
from drumline.spec import document
from drumline.spec.dialect.draft import Draft
from drumline.spec.read import Reading, read_as, read_tree
from drumline.spec.words import spell


def read_dialect(data: bytes, source: str) -> Reading | None:
    """Read a file in a dialect; None if it is in none of them. Raise SpecError as `read_spec` does."""
    draft = draft_of(data, source)
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
    return reading._replace(problems=tuple(problems), spots=spots, remarks=tuple(draft.remarks))


def draft_of(data: bytes, source: str) -> Draft | None:
    """The draft that a file comes to; None if it is in no dialect."""
    root, repeats = document.parse(data, source)
    if not isinstance(root, document.Mapping):
        return None
    keys = {entry.key for entry in root.entries}
    if "train" in keys and "run" not in keys:
        from drumline.spec.dialect import riseml  # noqa: PLC0415 - one dialect does not load another

        file, problems, lines, _ = read_as(riseml.File, root, source, repeats)
        if problems or file is None:
            raise SpecError(problems)
        return riseml.translate(file, source, lines)
    return None
