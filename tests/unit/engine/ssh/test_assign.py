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
    """Return the plan of this YAML, for hosts that are not named yet."""
    return with_hosts(local_plan_of(text), Hosts())


def hosts_of(text: str, rooms: dict[str, HostResources]) -> dict[str, str]:
    """Return the host of each replica, by name."""
    return {str(replica): host for replica, host in assign(plan_of(text), rooms).items()}


def by_host(hosts: dict[str, str]) -> dict[str, list[str]]:
    replicas: dict[str, list[str]] = {}
    for replica, host in hosts.items():
        replicas.setdefault(host, []).append(replica)
    return replicas


def refusal(text: str, rooms: dict[str, HostResources]) -> str:
    with pytest.raises(InputError) as caught:
        assign(plan_of(text), rooms)
    assert "--oversubscribe" in caught.value.hint
    return caught.value.message


def test_workers_are_spread_evenly_and_consecutive_ones_share_a_host() -> None:
    assert by_host(hosts_of("roles: {worker: 5}", {"a": ANY, "b": ANY})) == {
        "a": ["worker.0", "worker.1", "worker.2"],
        "b": ["worker.3", "worker.4"],
    }


def test_the_chief_is_on_the_first_host_and_parameter_servers_are_spread_like_workers() -> None:
    assert by_host(hosts_of("roles: {chief: 1, worker: 3, ps: 2, evaluator: 1}", {"a": ANY, "b": ANY})) == {
        "a": ["chief.0", "worker.0", "ps.0", "evaluator.0"],
        "b": ["worker.1", "worker.2", "ps.1"],
    }


def test_a_gang_smaller_than_the_number_of_hosts_leaves_the_last_ones_unused() -> None:
    assert hosts_of("roles: {worker: 2}", {"a": ANY, "b": ANY, "c": ANY}) == {"worker.0": "a", "worker.1": "b"}


def test_a_host_with_more_resources_has_more_replicas() -> None:
    rooms = {"small": HostResources(gpus=1), "large": HostResources(gpus=4)}
    assert by_host(hosts_of("resources: {gpus: 1}\nroles: {worker: 5}", rooms)) == {
        "small": ["worker.0"],
        "large": ["worker.1", "worker.2", "worker.3", "worker.4"],
    }


def test_a_replica_that_needs_a_whole_host_has_one_even_if_others_share() -> None:
    text = "roles: {chief: {resources: {gpus: 1}}, worker: {resources: {gpus: 1}}, evaluator: {resources: {gpus: 4}}}"
    found = hosts_of(text, {"a": HostResources(gpus=4), "b": HostResources(gpus=4)})
    assert found["chief.0"] == found["worker.0"] != found["evaluator.0"]


def test_resources_of_the_spec_override_those_of_the_host() -> None:
    found = HostResources(8.0, 16 * GIB, 2)
    assert usable_resources(Host("a", cpus=2.0, gpus=0), found) == HostResources(2.0, 16 * GIB, 0)
    assert usable_resources(Host("a")) == ANY


def test_a_replica_too_large_for_every_host_is_refused_with_its_name() -> None:
    text = "roles: {chief: 1, worker: {replicas: 2, resources: {gpus: 3}}}"
    assert refusal(text, {"a": HostResources(gpus=2), "b": HostResources(gpus=1)}) == (
        "worker.0 asks for 3 gpus, and no host has more than 2 gpus"
    )


def test_a_gang_too_large_for_all_hosts_is_refused_with_the_missing_resources() -> None:
    text = "resources: {memory: 4GiB, cpus: 1}\nroles: {worker: 4}"
    rooms = {"a": HostResources(8.0, 8 * GIB), "b": HostResources(8.0, 4 * GIB)}
    assert refusal(text, rooms) == (
        "the run asks for 16.0 GiB of memory, and 2 hosts have 12.0 GiB of memory: 8.0 GiB of memory on a,"
        " 4.0 GiB of memory on b; 4.0 GiB of memory are missing"
    )


def test_a_replica_that_does_not_fit_beside_the_others_is_refused_with_the_remaining_resources() -> None:
    text = "resources: {gpus: 2}\nroles: {worker: 3}"
    assert refusal(text, {"a": HostResources(gpus=3), "b": HostResources(gpus=3)}) == (
        "worker.2 asks for 2 gpus, and the others leave only 1 gpu on a, 1 gpu on b"
    )


def test_only_some_of_many_hosts_are_named() -> None:
    said = refusal("resources: {cpus: 2}\nroles: {worker: 51}", {f"h{n}": HostResources(cpus=2.0) for n in range(50)})
    assert said.endswith("2 cpus on h4, and so on, on 45 hosts more; 2 cpus are missing")


def test_an_oversubscribed_gang_is_spread_evenly() -> None:
    plan = plan_of("resources: {gpus: 9}\nroles: {worker: 4}").replace(oversubscribe=True)
    assert Counter(assign(plan, {"a": HostResources(gpus=0), "b": HostResources(gpus=0)}).values()) == {"a": 2, "b": 2}


def test_a_run_without_a_host_is_refused() -> None:
    with pytest.raises(InputError, match=r"^there is no host"):
        assign(plan_of("roles: {worker: 1}"), {})


def test_ports_count_up_from_the_first_replica_of_each_host_but_listed_ports_are_exact() -> None:
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
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan of at most eight replicas, each with its own requests."""
    workers, ps = draw(st.integers(1, 5)), draw(st.integers(0, 2))
    plan = plan_of(f"roles: {{chief: 1, worker: {workers}{f', ps: {ps}' if ps else ''}}}")
    equal = draw(st.none() | resources)
    return plan.replace(
        replicas=tuple(each.replace(resources=equal or draw(resources)) for each in plan.replicas),
    )


def fits(plan: Plan, rooms: dict[str, HostResources], where: dict[ReplicaId, str]) -> bool:
    """Return whether each host has the resources of its replicas."""
    for name, room in rooms.items():
        there = [each.resources for each in plan.replicas if where[each.id] == name]
        for kind, limit in to_dict(room).items():
            if limit is not None and sum(getattr(each, kind) or 0 for each in there) > limit:
                return False
    return True


@given(plans(), hosts)
def test_a_gang_is_placed_within_the_resources_exactly_when_that_is_possible(
    plan: Plan, rooms: dict[str, HostResources]
) -> None:
    ids = [each.id for each in plan.replicas]
    every_way = (dict(zip(ids, way, strict=True)) for way in itertools.product(rooms, repeat=len(ids)))
    try:
        where = assign(plan, rooms)
    except InputError:
        assert not any(fits(plan, rooms, way) for way in every_way)
    else:
        assert list(where) == ids
        assert fits(plan, rooms, where)
        assert assign(plan, rooms) == where


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 9))
def test_on_equal_hosts_the_numbers_of_equal_replicas_differ_by_at_most_one(workers: int, number: int, ps: int) -> None:
    plan = plan_of(f"resources: {{cpus: 0.1}}\nroles: {{worker: {workers}{f', ps: {ps}' if ps else ''}, chief: 1}}")
    names = [f"h{n}" for n in range(number)]
    where = assign(plan, dict.fromkeys(names, HostResources(cpus=ceil((workers + ps + 1) / 10) * 1.0)))
    computing = Counter(where[each.id] for each in plan.replicas_of(*COMPUTING))
    shares = [computing[name] for name in names]
    assert max(shares) - min(shares) <= 1
    assert where[ReplicaId("chief", 0)] == "h0"
    in_order = [where[each.id] for each in plan.replicas_of(*COMPUTING)]
    assert in_order == sorted(in_order)


def pinned(text: str, rooms: dict[str, HostResources], **pins: str) -> dict[str, str]:
    plan = plan_of(text)
    named = {name.replace("_", "."): host for name, host in pins.items()}
    return {str(replica): host for replica, host in assign(with_hosts(plan, Hosts(pins=named)), rooms).items()}


def test_a_pinned_replica_is_on_its_host_and_the_others_are_spread_around_it() -> None:
    rooms = {"a": ANY, "b": ANY}
    assert pinned("roles: {worker: 2}", rooms, worker_0="b", worker_1="a") == {"worker.0": "b", "worker.1": "a"}
    one_cpu = {"a": HostResources(cpus=1), "b": HostResources(cpus=1)}
    spec = "roles: {worker: 2}\nresources: {cpus: 1}"
    assert pinned(spec, one_cpu, worker_1="a") == {"worker.0": "b", "worker.1": "a"}


def test_a_pin_to_a_missing_host_is_ignored() -> None:
    assert pinned("roles: {worker: 1}", {"a": ANY}, worker_0="gone") == {"worker.0": "a"}


def test_a_pinned_replica_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"worker\.1 has to be on a, which has not enough left for it"):
        pinned(
            "roles: {worker: 2}\nresources: {cpus: 1}",
            {"a": HostResources(cpus=1), "b": ANY},
            worker_0="a",
            worker_1="a",
        )
