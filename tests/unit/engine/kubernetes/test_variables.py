"""Variables of a container: those that Kubernetes computes, and those that a shell computes."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes.manifests.variables import IndexSource, Variables, escape, variables
from drumline.plan.types import Extended, Launch, LaunchValue, Place, Replica, ReplicaId, Resources, Secret, Shared

PLACE = Place("host", 2222, "/w", "/o", "/c")


def launch(index: int, env: dict[str, LaunchValue], attempt: int = 0) -> Launch:
    replica = Replica(ReplicaId("worker", index), "", ("true",), {}, Resources())
    return Launch(replica, attempt, PLACE, {"DRUMLINE_INDEX": str(index), "DRUMLINE_ATTEMPT": str(attempt), **env})


def made(*launches: Launch, index_source: IndexSource | None = None) -> Variables:
    return variables(launches, shared_in="line", secrets_in="secrets", index_source=index_source)


def filled(text: str, known: dict[str, str]) -> str:
    """Return a value as Kubernetes expands it, by its own rules (third_party/forked/golang/expansion)."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out += text[at]
            at += 1
        elif text[at + 1] == "$":
            out += "$"
            at += 2
        elif text[at + 1] == "(" and (end := text.find(")", at)) > 0:
            name = text[at + 2 : end]
            out += known.get(name, f"$({name})")
            at = end + 1
        else:
            out += text[at : at + 2]
            at += 2
    return out


def seen_by(made: Variables, pod: dict[str, str]) -> dict[str, str]:
    """Return the variables of a process in a pod with these values of fields and keys."""
    known: dict[str, str] = {}
    for entry in made.entries:
        if "value" in entry:
            known[entry["name"]] = filled(entry["value"], known)
        else:
            (source,) = entry["valueFrom"].values()
            known[entry["name"]] = pod[source.get("fieldPath") or source["key"]]
    exports = "".join(f"export {filled(escape(each), known)}\n" for each in made.exports)
    done = subprocess.run(
        ["/bin/sh", "-ec", f"{exports}exec env -0"], env=known, capture_output=True, text=True, check=True
    )
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(
    ("$", "$$", "$(X)", "$$(X)", "a$", "$(", "$$$(date)$", "it's", '"', "\\", "\n", "${X}")
)


@given(texts)
def test_any_text_reaches_the_process_unchanged(text: str) -> None:
    assert filled(escape(text), {"X": "filled", "date": "filled"}) == text
    assert filled(escape(text, continues=True) + "$(X)", {"X": "filled"}) == f"{text}filled"


def test_values_of_a_single_replica_are_unchanged() -> None:
    shared = Shared('{"cluster": ', "CLUSTER", "[1, 2]", ', "index": 7}')
    got = made(
        launch(7, {"TF_CONFIG": shared, "TOKEN": Secret("MY_TOKEN"), "A": "$(B)", "P": Extended("/x", ":", ("P",))})
    )
    assert got.shared == {"CLUSTER": "[1, 2]"}
    assert got.entries[0] == {"name": "CLUSTER", "valueFrom": {"configMapKeyRef": {"name": "line", "key": "CLUSTER"}}}
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "secrets", "key": "MY_TOKEN"}}} in got.entries
    seen = seen_by(got, {"CLUSTER": "[1, 2]", "MY_TOKEN": "hidden"})
    assert seen["TF_CONFIG"] == '{"cluster": [1, 2], "index": 7}'
    assert (seen["TOKEN"], seen["A"], seen["P"], seen["DRUMLINE_INDEX"]) == ("hidden", "$(B)", "/x", "7")


@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("offset", [0, 1, 12])
def test_replicas_that_share_a_template_each_have_their_own_number(first: int, offset: int) -> None:
    def env(index: int) -> dict[str, LaunchValue]:
        return {
            "TF_CONFIG": Shared(
                '{"a$": ', "CLUSTER", "[1]", f', "task": {{"index": {index}, "of": "it\'s $(x) 12"}}}}'
            ),
            "RANK": str(index + offset),
            "SAME": "12$",
            "SHORT": f"1 and 2, $({index + offset})",
        }

    launches = [launch(index, env(index)) for index in range(first, first + 12)]
    got = made(*launches, index_source=IndexSource("number", first))
    for each in (launches[0], launches[3], launches[11]):
        index = each.replica.id.index
        seen = seen_by(got, {"number": str(index - first), "CLUSTER": "[1]"})
        assert {name: seen[name] for name in each.env} == {name: str(value) for name, value in each.env.items()}
    assert bool(got.exports) == bool(first or offset)


@pytest.mark.parametrize("attempt", [0, 3])
def test_restarts_by_the_cluster_are_added_to_the_attempt_of_the_launch(attempt: int) -> None:
    got = made(
        launch(0, {"TORCHELASTIC_RESTART_COUNT": str(attempt)}, attempt),
        index_source=IndexSource("number", 0, "restarts"),
    )
    seen = seen_by(got, {"number": "0", "restarts": "2"})
    assert seen["DRUMLINE_ATTEMPT"] == seen["TORCHELASTIC_RESTART_COUNT"] == str(attempt + 2)


def test_replicas_cannot_share_a_template_if_their_values_do_not_follow_from_their_numbers() -> None:
    launches = [launch(index, {"A": value}) for index, value in enumerate("xy")]
    with pytest.raises(AssertionError, match="A differs"):
        made(*launches, index_source=IndexSource("number"))


def test_a_long_shared_value_is_written_once() -> None:
    launches = [launch(index, {"TF_CONFIG": Shared("", "CLUSTER", "x" * 10_000, f"{index}")}) for index in range(100)]
    written: Any = made(*launches, index_source=IndexSource("number")).entries
    assert not re.search("xxxx", str(written))
