"""Merge patches follow RFC 7386, except for those lists of a pod in which each item has a name."""

from __future__ import annotations

from typing import Any

import pytest

from drumline.engine.kubernetes.manifests.patch import merge


# The appendix of the RFC, as far as target and patch are objects.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"b": {"c": None}}, {"a": "foo", "b": {}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_is_merged_as_the_rfc_specifies(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merge(target, patch, {}) == result


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        (
            {"containers": [{"name": "main", "image": "a", "env": [{"name": "A", "value": "1"}]}]},
            {"containers": [{"name": "replica", "env": [{"name": "B", "value": "2"}], "tty": True}, {"name": "side"}]},
            {
                "containers": [
                    {
                        "name": "main",
                        "image": "a",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "tty": True,
                    },
                    {"name": "side"},
                ]
            },
        ),
        (
            {"volumes": [{"name": "output", "emptyDir": {}}]},
            {"volumes": [{"name": "output", "emptyDir": None, "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "output", "hostPath": {"path": "/x"}}]},
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "c", "mountPath": "/c"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "c", "mountPath": "/c"}]},
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({}, {"containers": ["no", {"name": None}]}, {"containers": ["no", {}]}),
        ({"containers": "no"}, {"containers": [{"name": "a"}]}, {"containers": [{"name": "a"}]}),
    ],
)
def test_items_of_lists_are_merged_by_their_names(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merge(target, patch, {"replica": "main"}) == result


def test_the_target_of_a_patch_is_not_changed() -> None:
    target = {"a": {"b": 1}, "containers": [{"name": "x", "env": []}]}
    merge(target, {"a": {"b": 2}, "containers": [{"name": "x", "env": [{"name": "y"}]}]}, {})
    assert target == {"a": {"b": 1}, "containers": [{"name": "x", "env": []}]}
