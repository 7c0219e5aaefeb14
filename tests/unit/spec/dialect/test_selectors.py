"""Pod selectors of a TFJob: they select the same pods of the run, or are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drumline.engine.kubernetes import names
from drumline.spec.dialect import selectors
from scaffold.dialects import a_job, a_role, cluster_of, refused, warnings_of


def apart(labels: Mapping[str, str], selector: Mapping[str, Any], other: Mapping[str, str] | None = None) -> str:
    """Return a job with workers that must not share a node with the pods that the selector selects."""
    terms = [{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]
    worker, ps = a_role(replicas=2), a_role()
    worker["template"]["metadata"] = {"labels": dict(labels)}
    ps["template"]["metadata"] = {"labels": dict(labels if other is None else other)}
    worker["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    return a_job({"Worker": worker, "PS": ps})


def terms_of(text: str) -> Any:
    pods: Any = cluster_of(text).pods
    (term,) = pods["worker"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return term["labelSelector"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"tf-job-name": "digits"}}, {"matchLabels": {"drumline.dev/project": "digits"}}),
        (
            {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
            {"matchLabels": {"drumline.dev/role": "worker"}},
        ),
        (
            {"matchExpressions": [{"key": "tf-replica-type", "operator": "In", "values": ["ps", "worker"]}]},
            {"matchExpressions": [{"key": "drumline.dev/role", "operator": "In", "values": ["ps", "worker"]}]},
        ),
    ],
)
def test_labels_of_the_operator_in_selectors_become_labels_of_drumline(
    selector: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    text = apart({}, selector)
    assert terms_of(text) == expected
    assert [each for each in warnings_of(text) if "labelSelector" in each] == []


def test_the_translated_labels_are_those_of_drumlines_pods() -> None:
    assert (selectors.PROJECT, selectors.ROLE, selectors.MANAGED) == (names.PROJECT, names.ROLE, names.MANAGED)


def test_a_selector_by_an_own_label_is_kept() -> None:
    text = apart({"app": "mnist"}, {"matchLabels": {"app": "mnist"}})
    assert terms_of(text) == {"matchLabels": {"app": "mnist"}}
    assert [each for each in warnings_of(text) if "labelSelector" in each] == []


def test_a_selector_of_other_pods_is_kept() -> None:
    text = apart({}, {"matchLabels": {"app": "database"}})
    assert terms_of(text) == {"matchLabels": {"app": "database"}}
    assert [each for each in warnings_of(text) if "labelSelector" in each] == []


@pytest.mark.parametrize(
    ("selector", "after"),
    [
        ({"matchLabels": {"kind": "ps"}}, "no role"),
        ({"matchLabels": {"kind": "worker"}}, "worker and ps"),
        ({"matchLabels": {"tf-replica-index": "0"}}, "no role"),
        ({"matchExpressions": [{"key": "task", "operator": "Exists"}]}, "no role"),
    ],
)
def test_a_selector_by_a_label_that_the_pods_of_a_run_lack_is_reported(selector: Mapping[str, Any], after: str) -> None:
    text = apart({"kind": "worker"}, selector, {"kind": "ps", "task": "1"})
    (said,) = [each for each in warnings_of(text) if "labelSelector" in each]
    assert f", but of {after} in a run, which has other labels" in said


@pytest.mark.parametrize(
    ("selector", "report"),
    [
        ({"matchLabels": ["a"]}, "labelSelector.matchLabels: expected a mapping, got a list"),
        ({"matchLabels": {"a": ["b"]}}, "labelSelector.matchLabels.a: expected text, got a list"),
        ({"matchExpressions": "a"}, 'labelSelector.matchExpressions: expected a list, got "a"'),
        ({"matchExpressions": [{"operator": "In"}]}, "labelSelector.matchExpressions[0].key: is missing"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": 5}]},
            "labelSelector.matchExpressions[0].values: expected a list, got 5",
        ),
    ],
)
def test_an_invalid_selector_is_refused_with_its_location(selector: Mapping[str, Any], report: str) -> None:
    (said,) = refused(apart({}, selector))
    assert said.endswith(report)
