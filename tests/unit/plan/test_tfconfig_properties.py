"""Properties of TF_CONFIG for any cluster, and of its examination for any text."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from drumline.plan.rendezvous.tensorflow import tf_config
from drumline.plan.tfconfig import Examination, examine
from drumline.plan.types import ROLES, ReplicaId
from scaffold.clusters import Cluster, clusters


@given(clusters())
def test_a_generated_tf_config_has_no_problems_for_any_cluster_and_replica(cluster: Cluster) -> None:
    for role, addresses in cluster.items():
        for index, address in enumerate(addresses):
            examination = examine(json.dumps(tf_config(cluster, ReplicaId(role, index))))
            assert not [each for each in examination.diagnostics if each.level in ("problem", "warning")]
            assert examination.task == ReplicaId(role, index)
            assert examination.chief == ReplicaId("chief" if "chief" in cluster else "worker", 0)
            assert f"this node is {role}.{index} on {address}," in examination.description


@given(clusters(), st.data())
def test_all_nodes_have_the_same_cluster_and_only_the_evaluator_lists_itself(
    cluster: Cluster, data: st.DataObject
) -> None:
    role = data.draw(st.sampled_from(sorted(cluster)))
    made = tf_config(cluster, ReplicaId(role, 0))
    expected = {key: value for key, value in cluster.items() if key != "evaluator" or role == "evaluator"}
    assert made == {"cluster": expected, "task": {"type": role, "index": 0}}


def anything() -> st.SearchStrategy[Any]:
    """Return JSON in the shape of a TF_CONFIG, with any values."""
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a:1", "worker", "0"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
    role = st.sampled_from([*ROLES, "master"]) | st.text()
    addresses = st.lists(st.sampled_from(["a:1", "b:1", "localhost:1", "[::1]:2", "c"]) | junk, max_size=4) | junk
    task = st.fixed_dictionaries({}, optional={"type": role | junk, "index": st.integers() | junk, "id": junk})
    return st.fixed_dictionaries(
        {},
        optional={
            "cluster": st.dictionaries(role, addresses, max_size=4) | junk,
            "task": task | junk,
            "environment": junk,
        },
    )


def check_examination(examination: Examination) -> None:
    """Check that all messages are printable, and that the node is known if there are no problems."""
    for diagnostic in examination.diagnostics:
        assert diagnostic.message.isascii()
        assert "\n" not in diagnostic.path + diagnostic.message
        assert diagnostic.path.isascii()
    assert examination.description.isascii()
    assert bool(examination.description) == (examination.task is not None)
    assert examination.task is not None or not examination.ok


@given(st.text() | st.text(alphabet='{}[]":,\\ \n0aworker'))
def test_any_text_is_examined(text: str) -> None:
    check_examination(examine(text))


@given(anything())
def test_any_json_is_examined(value: object) -> None:
    check_examination(examine(json.dumps(value)))


@given(
    st.sampled_from(["\ud800", "\udcff", "\x1b", "\u202e"]),
    st.sampled_from(["key", "role", "address", "type", "index"]),
)
def test_broken_characters_from_the_environment_are_shown_as_escapes(character: str, where: str) -> None:
    cluster: dict[str, object] = {"worker": ["a:1", f"b{character}:1" if where == "address" else "b:1"]}
    if where == "role":
        cluster[character] = []
    task = {"type": character if where == "type" else "worker", "index": character if where == "index" else 0}
    extra = {character: 0} if where == "key" else {}
    text = json.dumps({"cluster": cluster, "task": task, **extra}, ensure_ascii=False)
    examination = examine(text)
    assert examination.diagnostics
    check_examination(examination)
