"""Translate the pod selectors of a pod template: labels of the TFJob operator become labels of drumline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from drumline.spec.dialect.draft import plain
from drumline.spec.dialect.tracked_node import TrackedNode
from drumline.spec.document import Entry, Node, Scalar, Sequence
from drumline.spec.document import Mapping as MappingNode
from drumline.spec.location import Location
from drumline.words import listed

# The labels that drumline's pods have on every engine; `drumline.engine.kubernetes.names` writes them.
PROJECT, ROLE, MANAGED = "drumline.dev/project", "drumline.dev/role", "app.kubernetes.io/managed-by"
# The names of the same labels in versions of the operator.
_JOBS = ("tf-job-name", "job-name", "training.kubeflow.org/job-name", "tf_job_name")
_TYPES = ("tf-replica-type", "replica-type", "training.kubeflow.org/replica-type", "job_type")
_INDEXES = ("tf-replica-index", "replica-index", "training.kubeflow.org/replica-index", "task_index")
_OPERATORS = {
    "group-name": "kubeflow.org",
    "controller-name": "tf-operator",
    "training.kubeflow.org/operator-name": "tfjob-controller",
}
_DRUMLINE_LABELS = {
    **dict.fromkeys(_JOBS, PROJECT),
    **dict.fromkeys(_TYPES, ROLE),
    **dict.fromkeys(_OPERATORS, MANAGED),
}
_KEY = "labelSelector"

Labels = Mapping[str, str]
Values = Mapping[tuple[str, str], str]  # from a label and value of the operator to the value of drumline


def labels_of_operator(job: str, name: str) -> dict[str, str]:
    """Return the labels that the operator writes on the first pod of a role; `name` is the role's name in the file."""
    return {
        **dict.fromkeys(_JOBS, job),
        **dict.fromkeys(_TYPES, name.lower()),
        **dict.fromkeys(_INDEXES, "0"),
        **_OPERATORS,
    }


def labels_of_drumline(project: str, role: str) -> dict[str, str]:
    """Return the labels that drumline writes on every pod of a role."""
    return {PROJECT: project, ROLE: role, MANAGED: "drumline"}


def translate_rules(rules: Iterable[TrackedNode], values: Values) -> dict[str, Node]:
    """Return affinity and topology rules by their key, with drumline's labels instead of the operator's."""
    return {str(part.location.path[-1]): _translated(part.node, values) for part in rules}


def find_lost_selectors(
    rules: Iterable[TrackedNode], of_job: Mapping[str, Labels], of_run: Mapping[str, Labels], values: Values
) -> Iterator[tuple[Location, str]]:
    """Yield a warning for every selector that selects pods of other roles in the run than in the job."""
    for selector in (found for part in rules for found in _selectors(part)):
        _check(selector)
        before = [role for role, labels in of_job.items() if matches(selector.node, labels)]
        ours = _translated_selector(selector.node, values)
        after = [role for role, labels in of_run.items() if matches(ours, labels)]
        if before and before != after:
            message = (
                f"selects pods of {listed(before)} in the TFJob, but of {listed(after) or 'no role'} in a run, which"
                f" has other labels: convert the file with `drumline convert`, and select by `{ROLE}`"
            )
            yield selector.location, message


def _check(selector: TrackedNode) -> None:
    """Raise SpecError for a selector that is not valid."""
    labels, expressions = selector.read("matchLabels"), selector.read("matchExpressions")
    for key in labels.keys if labels else ():
        if labels and (value := labels.read(key)):
            value.text()
    for each in expressions.items() if expressions else ():
        each.require("key").text()
        each.require("operator").text()
        values = each.read("values")
        for item in values.items() if values else ():
            item.text()


def _selectors(part: TrackedNode) -> Iterator[TrackedNode]:
    """Yield every pod selector below a value."""
    if isinstance(part.node, Sequence):
        for item in part.items():
            yield from _selectors(item)
    elif isinstance(part.node, MappingNode):
        for key in part.keys:
            if (inside := part.read(key)) is None:
                continue
            if key == _KEY and isinstance(inside.node, MappingNode):
                yield inside
            else:
                yield from _selectors(inside)


def _translated(node: Node, values: Values) -> Node:
    """Return a value with drumline's labels in its selectors."""
    match node:
        case MappingNode():
            entries = [
                each.replace(
                    node=_translated_selector(each.node, values) if each.key == _KEY else _translated(each.node, values)
                )
                for each in node.entries
            ]
            return node.replace(entries=tuple(entries))
        case Sequence():
            return node.replace(items=tuple(_translated(item, values) for item in node.items))
        case _:
            return node


def values_of(job: str, project: str, roles: Mapping[str, str]) -> Values:
    """Return the values of drumline's labels by those of the operator; `roles` are by their names in the file."""
    types = {name.lower(): role for name, role in roles.items()} | {name.upper(): role for name, role in roles.items()}
    return {
        **{(key, job): project for key in _JOBS},
        **{(key, name): role for key in _TYPES for name, role in types.items()},
        **dict.fromkeys(_OPERATORS.items(), "drumline"),
    }


def matches(selector: Node, labels: Labels) -> bool:
    """Return whether a selector selects a pod with these labels."""
    data = plain(selector)
    wanted = data.get("matchLabels") or {}
    return all(labels.get(key) == str(value) for key, value in wanted.items()) and all(
        _holds(each, labels) for each in data.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    value = labels.get(str(expression.get("key")))
    values = [str(each) for each in expression.get("values") or ()]
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _translated_selector(node: Node, values: Values) -> Node:
    """Return a selector with drumline's labels instead of the operator's."""
    if not isinstance(node, MappingNode):
        return node
    entries = []
    for each in node.entries:
        inside = each.node
        if each.key == "matchLabels" and isinstance(inside, MappingNode):
            inside = inside.replace(entries=tuple(_label(entry, values) for entry in inside.entries))
        elif each.key == "matchExpressions" and isinstance(inside, Sequence):
            inside = inside.replace(items=tuple(_expression(item, values) for item in inside.items))
        entries.append(each.replace(node=inside))
    return node.replace(entries=tuple(entries))


def _label(entry: Entry, values: Values) -> Entry:
    if entry.key not in _DRUMLINE_LABELS or not isinstance(entry.node, Scalar):
        return entry
    return entry.replace(key=_DRUMLINE_LABELS[entry.key], node=_value(entry.key, entry.node, values))


def _expression(node: Node, values: Values) -> Node:
    if not isinstance(node, MappingNode):
        return node
    key = next((each.node.text for each in node.entries if each.key == "key" and isinstance(each.node, Scalar)), "")
    if key not in _DRUMLINE_LABELS:
        return node
    changed = []
    for each in node.entries:
        inside = each.node
        if each.key == "key":
            inside = Scalar(_DRUMLINE_LABELS[key], plain=False, line=each.node.line)
        elif each.key == "values" and isinstance(inside, Sequence):
            items = (_value(key, item, values) if isinstance(item, Scalar) else item for item in inside.items)
            inside = inside.replace(items=tuple(items))
        changed.append(each.replace(node=inside))
    return node.replace(entries=tuple(changed))


def _value(key: str, node: Scalar, values: Values) -> Scalar:
    return Scalar(values.get((key, node.text), node.text), plain=False, line=node.line)
