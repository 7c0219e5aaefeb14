"""Which replica runs on which host."""

from __future__ import annotations

import itertools
from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.ssh.assign import HostResources, assign, part_of, usable_resources
from drumline.engine.ssh.plan_options import Host, Hosts, with_hosts
from drumline.errors import InputError
from drumline.plan.types import COMPUTING, Plan, ReplicaId, Resources
from drumline.record import to_dict
from scaffold.plans import plan_of as local_plan_of

GIB = 1024**3
ANY = HostResources()


def plan_of(text: str) -> Plan:
    """The plan of this YAML, for hosts that are not named yet."""
    return with_hosts(local_plan_of(text), Hosts())


def hosts_of(text: str, rooms: dict[str, HostResources]) -> dict[str, str]:
    """Who is where, by name."""
    return {str(replica): host for replica, host in assign(plan_of(text), rooms).items()}


def on(rooms: dict[str, str]) -> dict[str, list[str]]:
    there: dict[str, list[str]] = {}
    for replica, host in rooms.items():
        there.setdefault(host, []).append(replica)
    return there


def refusal(text: str, rooms: dict[str, HostResources]) -> str:
    with pytest.raises(InputError) as caught:
        assign(plan_of(text), rooms)
    assert "--oversubscribe" in caught.value.hint
    return caught.value.message


def test_workers_are_spread_evenly_and_neighbours_sit_together() -> None:
    assert on(hosts_of("roles: {worker: 5}", {"a": ANY, "b": ANY})) == {
        "a": ["worker.0", "worker.1", "worker.2"],
        "b": ["worker.3", "worker.4"],
    }


def test_the_chief_comes_first_and_parameter_servers_go_beside_the_workers() -> None:
    assert on(hosts_of("roles: {chief: 1, worker: 3, ps: 2, evaluator: 1}", {"a": ANY, "b": ANY})) == {
        "a": ["chief.0", "worker.0", "ps.0", "evaluator.0"],
        "b": ["worker.1", "worker.2", "ps.1"],
    }


def test_a_line_smaller_than_the_hosts_leaves_the_last_ones_alone() -> None:
    assert hosts_of("roles: {worker: 2}", {"a": ANY, "b": ANY, "c": ANY}) == {"worker.0": "a", "worker.1": "b"}


def test_a_host_with_more_to_give_gets_more() -> None:
    rooms = {"small": HostResources(gpus=1), "large": HostResources(gpus=4)}
    assert on(hosts_of("resources: {gpus: 1}\nroles: {worker: 5}", rooms)) == {
        "small": ["worker.0"],
        "large": ["worker.1", "worker.2", "worker.3", "worker.4"],
    }


def test_who_needs_a_whole_host_gets_one_even_if_others_must_sit_closer() -> None:
    text = "roles: {chief: {resources: {gpus: 1}}, worker: {resources: {gpus: 1}}, evaluator: {resources: {gpus: 4}}}"
    found = hosts_of(text, {"a": HostResources(gpus=4), "b": HostResources(gpus=4)})
    assert found["chief.0"] == found["worker.0"] != found["evaluator.0"]


def test_what_the_spec_says_of_a_host_comes_before_what_there_is() -> None:
    found = HostResources(8.0, 16 * GIB, 2)
    assert usable_resources(Host("a", cpus=2.0, gpus=0), found) == HostResources(2.0, 16 * GIB, 0)
    assert usable_resources(Host("a")) == ANY


def test_a_line_that_is_too_large_for_every_host_is_refused_with_who_asks_for_too_much() -> None:
    text = "roles: {chief: 1, worker: {replicas: 2, resources: {gpus: 3}}}"
    assert refusal(text, {"a": HostResources(gpus=2), "b": HostResources(gpus=1)}) == (
        "worker.0 asks for 3 gpus, and no host has more than 2 gpus"
    )


def test_a_line_that_is_too_large_for_all_hosts_is_refused_with_what_is_missing() -> None:
    text = "resources: {memory: 4GiB, cpus: 1}\nroles: {worker: 4}"
    rooms = {"a": HostResources(8.0, 8 * GIB), "b": HostResources(8.0, 4 * GIB)}
    assert refusal(text, rooms) == (
        "the run asks for 16.0 GiB of memory, and 2 hosts have 12.0 GiB of memory: 8.0 GiB of memory on a,"
        " 4.0 GiB of memory on b; 4.0 GiB of memory are missing"
    )


def test_a_line_that_fits_only_in_pieces_is_refused_with_what_is_left_where() -> None:
    text = "resources: {gpus: 2}\nroles: {worker: 3}"
    assert refusal(text, {"a": HostResources(gpus=3), "b": HostResources(gpus=3)}) == (
        "worker.2 asks for 2 gpus, and the others leave only 1 gpu on a, 1 gpu on b"
    )


def test_of_many_hosts_only_some_are_named() -> None:
    said = refusal("resources: {cpus: 2}\nroles: {worker: 51}", {f"h{n}": HostResources(cpus=2.0) for n in range(50)})
    assert said.endswith("2 cpus on h4, and so on, on 45 hosts more; 2 cpus are missing")


def test_whoever_insists_is_spread_all_the_same() -> None:
    plan = plan_of("resources: {gpus: 9}\nroles: {worker: 4}").replace(oversubscribe=True)
    assert Counter(assign(plan, {"a": HostResources(gpus=0), "b": HostResources(gpus=0)}).values()) == {"a": 2, "b": 2}


def test_without_a_host_nobody_runs() -> None:
    with pytest.raises(InputError, match=r"^there is no host"):
        assign(plan_of("roles: {worker: 1}"), {})


def test_the_part_of_a_host_counts_its_ports_from_its_own_but_keeps_those_that_are_listed() -> None:
    plan = plan_of("port: 2222\nroles: {worker: 3, ps: {replicas: 1, port: [7000]}}")
    assigned = assign(plan, {"a": ANY, "b": ANY})
    part = part_of(plan, Host("a", port=12345), assigned)
    assert [(str(each.id), each.port) for each in part.replicas] == [("worker.0", 12345), ("worker.1", 12345)]
    other = part_of(plan, Host("b"), assigned)
    assert [(str(each.id), each.port) for each in other.replicas] == [("worker.2", 2222), ("ps.0", 7000)]


rooms = st.builds(
    HostResources,
    st.none() | st.integers(0, 8).map(float),
    st.none() | st.integers(0, 8).map(lambda amount: amount * GIB),
    st.none() | st.integers(0, 4),
)
hosts = st.lists(rooms, min_size=1, max_size=4).map(lambda several: {f"h{n}": room for n, room in enumerate(several)})
resources = st.builds(
    Resources,
    st.none() | st.sampled_from((0.5, 1.0, 3.0)),
    st.none() | st.integers(1, 4).map(lambda amount: amount * GIB),
    st.none() | st.integers(0, 3),
)


@st.composite
def lines(draw: st.DrawFn) -> Plan:
    """A line of at most eight, each of whom may ask for something else."""
    workers, ps = draw(st.integers(1, 5)), draw(st.integers(0, 2))
    plan = plan_of(f"roles: {{chief: 1, worker: {workers}{f', ps: {ps}' if ps else ''}}}")
    alike = draw(st.none() | resources)
    return plan.replace(
        replicas=tuple(each.replace(resources=alike or draw(resources)) for each in plan.replicas),
    )


def holds(plan: Plan, rooms: dict[str, HostResources], where: dict[ReplicaId, str]) -> bool:
    """Whether nobody was given what is not there."""
    for name, room in rooms.items():
        there = [each.resources for each in plan.replicas if where[each.id] == name]
        for kind, limit in to_dict(room).items():
            if limit is not None and sum(getattr(each, kind) or 0 for each in there) > limit:
                return False
    return True


@given(lines(), hosts)
def test_a_line_is_placed_within_what_there_is_exactly_when_it_can_be(
    plan: Plan, rooms: dict[str, HostResources]
) -> None:
    ids = [each.id for each in plan.replicas]
    every_way = (dict(zip(ids, way, strict=True)) for way in itertools.product(rooms, repeat=len(ids)))
    try:
        where = assign(plan, rooms)
    except InputError:
        assert not any(holds(plan, rooms, way) for way in every_way)
    else:
        assert list(where) == ids
        assert holds(plan, rooms, where)
        assert assign(plan, rooms) == where


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 9))
def test_alike_on_hosts_alike_nobody_has_two_more_than_another(workers: int, number: int, ps: int) -> None:
    plan = plan_of(f"resources: {{cpus: 0.1}}\nroles: {{worker: {workers}{f', ps: {ps}' if ps else ''}, chief: 1}}")
    names = [f"h{n}" for n in range(number)]
    where = assign(plan, dict.fromkeys(names, HostResources(cpus=ceil((workers + ps + 1) / 10) * 1.0)))
    computing = Counter(where[each.id] for each in plan.replicas_of(*COMPUTING))
    shares = [computing[name] for name in names]
    assert max(shares) - min(shares) <= 1
    assert where[ReplicaId("chief", 0)] == "h0"
    in_line = [where[each.id] for each in plan.replicas_of(*COMPUTING)]
    assert in_line == sorted(in_line)


def pinned(text: str, rooms: dict[str, HostResources], **pins: str) -> dict[str, str]:
    plan = plan_of(text)
    named = {name.replace("_", "."): host for name, host in pins.items()}
    return {str(who): host for who, host in assign(with_hosts(plan, Hosts(pins=named)), rooms).items()}


def test_who_has_to_be_on_a_host_is_there_and_the_others_around_it() -> None:
    rooms = {"a": ANY, "b": ANY}
    assert pinned("roles: {worker: 2}", rooms, worker_0="b", worker_1="a") == {"worker.0": "b", "worker.1": "a"}
    one_cpu = {"a": HostResources(cpus=1), "b": HostResources(cpus=1)}
    spec = "roles: {worker: 2}\nresources: {cpus: 1}"
    assert pinned(spec, one_cpu, worker_1="a") == {"worker.0": "b", "worker.1": "a"}


def test_a_host_that_is_not_there_holds_nobody_up() -> None:
    assert pinned("roles: {worker: 1}", {"a": ANY}, worker_0="gone") == {"worker.0": "a"}


def test_who_does_not_fit_where_it_has_to_be_is_named() -> None:
    with pytest.raises(InputError, match=r"worker\.1 has to be on a, which has not enough left for it"):
        pinned(
            "roles: {worker: 2}\nresources: {cpus: 1}",
            {"a": HostResources(cpus=1), "b": ANY},
            worker_0="a",
            worker_1="a",
        )
