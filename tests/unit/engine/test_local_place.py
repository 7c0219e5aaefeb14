"""Placement on this machine: ports, folders, CPU cores."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from drumline.engine.local.place import place
from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.errors import EngineError, InputError
from drumline.plan.types import Place, Placement
from scaffold.plans import plan_of


@contextmanager
def placed(text: str, directory: Path, *, cores: int = 8, keep: Sequence[str] = ()) -> Iterator[Placement]:
    """Return the placement of a spec, or of an attempt that keeps its addresses."""
    site, plan = Site(directory, Path("/home/me/.drumline"), cores, "/venv/bin"), plan_of(text)
    yield place(plan, site, keep)[0] if keep else asyncio.run(open_engine("local", site).place(plan))


def ports(text: str, directory: Path) -> dict[str, int]:
    with placed(text, directory) as placement:
        return {str(replica): place.port for replica, place in placement.items()}


def only(text: str, directory: Path, *, cores: int = 8) -> Place:
    with placed(text, directory, cores=cores) as placement:
        (place,) = placement.values()
        return place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 2222\nroles: {worker: 3}", [2222, 2223, 2224]),
        ("port: 2222\nroles: {chief: 1, worker: 2, ps: 1, evaluator: 1}", [2222, 2223, 2224, 2225, 2226]),
        ("port: 2222\nroles: {chief: 1, worker: {replicas: 2, port: 3333}, ps: 1}", [2222, 3333, 3334, 2223]),
        ("roles: {chief: {port: 2222}, worker: {replicas: 2, port: 2222}}", [2222, 2223, 2224]),
        ("roles: {worker: {replicas: 3, port: [7, 9, 8]}}", [7, 9, 8]),
        ("roles: {chief: {port: [2223]}, worker: {replicas: 3, port: 2222}}", [2223, 2222, 2224, 2225]),
        ("roles: {worker: {replicas: 2, port: 2222}, ps: {replicas: 1, port: [2222]}}", [2223, 2224, 2222]),
        ("roles: {worker: {replicas: 2, port: 2222}, ps: {replicas: 2, port: 2223}}", [2222, 2223, 2224, 2225]),
        ("roles: {worker: {replicas: 2, port: 65534}}", [65534, 65535]),
    ],
)
def test_a_list_is_exact_and_a_number_counts_up_from_there(tmp_path: Path, text: str, expected: list[int]) -> None:
    assert list(ports(text, tmp_path).values()) == expected


def test_a_port_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        ports("roles: {worker: {replicas: 2, port: [7, 8]}, ps: {replicas: 2, port: [9, 7]}}", tmp_path)
    assert refused.value.message == "port 7 is given to worker.0 and to ps.1 on one machine"
    assert refused.value.hint == "give `roles.ps.port` other ports"


def test_counting_past_the_last_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        ports("roles: {worker: {replicas: 3, port: 65534}}", tmp_path)
    assert refused.value.message == "no port is left for worker.2: they count up from 65534 to 65535"
    assert refused.value.hint == "give a lower `port`"


def test_chosen_ports_differ_and_are_outside_of_the_ephemeral_range(tmp_path: Path) -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    picked = ports("roles: {worker: 20, ps: {replicas: 1, port: 20000}}", tmp_path)
    assert len(set(picked.values())) == 21
    assert all(port >= 10_000 and not first <= port <= last for port in picked.values())


def test_a_port_with_a_listener_is_not_chosen(tmp_path: Path) -> None:
    with socket.socket() as server:
        with placed("", tmp_path) as placement:
            (free,) = (place.port for place in placement.values())
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", free))
            server.listen()
        assert free not in ports("roles: {worker: 5}", tmp_path).values()


def test_two_placements_at_once_share_no_port(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "home", 8)
    claims = [place(plan_of("roles: {worker: 5}"), site)[1] for _ in range(2)]
    try:
        assert len({claim.port for each in claims for claim in each.values()}) == 10
    finally:
        for each in claims:
            for claim in each.values():
                claim.close()


def test_a_preview_claims_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "home", 8)
    _, claims = place(plan_of("roles: {worker: 5}"), site, hold=False)
    assert all(descriptor == -1 for claim in claims.values() for descriptor in claim.descriptors)


def test_an_attempt_under_way_keeps_its_ports(tmp_path: Path) -> None:
    with placed("roles: {worker: 2}", tmp_path, keep=["127.0.0.1:5", "127.0.0.1:6"]) as placement:
        assert [place.port for place in placement.values()] == [5, 6]


PRIVATE = "engine: {local: {network: private}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("roles: {worker: 2}", ["10.77.0.1:2222", "10.77.0.2:2222"]),
        ("port: 7\nroles: {worker: 2, ps: {port: 8}}", ["10.77.0.1:7", "10.77.0.2:7", "10.77.0.3:8"]),
        (
            "roles: {chief: {port: [7]}, worker: {replicas: 2, port: [7, 9]}}",
            ["10.77.0.1:7", "10.77.0.2:7", "10.77.0.3:9"],
        ),
    ],
)
def test_in_a_private_network_every_replica_has_an_address_and_no_port_is_claimed(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    placement, claims = place(plan_of(f"{text}\n{PRIVATE}"), Site(tmp_path, tmp_path / "home", 8))
    assert [each.address for each in placement.values()] == expected
    assert claims == {}


def test_a_private_network_has_a_maximum_number_of_replicas(tmp_path: Path) -> None:
    with placed(f"roles: {{worker: 512}}\n{PRIVATE}", tmp_path) as placement:
        hosts = [each.host for each in placement.values()]
        assert (len(set(hosts)), hosts[-1]) == (512, "10.77.2.0")
    with pytest.raises(InputError) as refused, placed(f"roles: {{worker: 1000, ps: 13}}\n{PRIVATE}", tmp_path):
        pass
    assert refused.value.message == "a private network can have 512 replicas, and this run has 1,013"


def test_an_attempt_under_way_keeps_its_private_addresses(tmp_path: Path) -> None:
    kept = ["10.1.2.3:5", "10.1.2.4:6"]
    with placed(f"roles: {{worker: 2}}\n{PRIVATE}", tmp_path, keep=kept) as placement:
        assert [each.address for each in placement.values()] == kept


def test_every_replica_is_on_this_machine_and_has_its_python(tmp_path: Path) -> None:
    with placed("roles: {worker: 2}", tmp_path) as placement:
        assert {(place.host, place.python_dir) for place in placement.values()} == {("127.0.0.1", "/venv/bin")}


def test_folders_are_those_of_the_run_unless_the_spec_names_others(tmp_path: Path) -> None:
    place = only("", tmp_path)
    assert place.workdir == str(tmp_path)
    assert place.output_dir == "/home/me/.drumline/runs/4/output"
    assert place.checkpoint_dir == "/home/me/.drumline/runs/4/output/checkpoint"
    assert place.data_dirs == ()


def test_folders_of_the_spec_are_relative_to_the_spec(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    place = only(
        """
        workdir: ./src/../src/
        output: "out/{{ run }}"
        data: [{name: a, path: ../a}, {name: b, path: /abs/b}, {name: d, path: "a b"}]
        """,
        tmp_path,
    )
    assert place.workdir == f"{tmp_path}/src"
    assert (place.output_dir, place.checkpoint_dir) == (f"{tmp_path}/out/4", f"{tmp_path}/out/4/checkpoint")
    assert place.data_dirs == (f"{tmp_path.parent}/a", "/abs/b", f"{tmp_path}/a b")
    place = only("output: /o\ncheckpoint: /k", tmp_path)
    assert (place.output_dir, place.checkpoint_dir) == ("/o", "/k")


@pytest.mark.parametrize("workdir", ["missing", "file", "file/below", "x" * 5000])
def test_a_workdir_that_is_no_folder_is_refused(tmp_path: Path, workdir: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as refused:
        only(f"workdir: {workdir}", tmp_path)
    assert refused.value.message == f"workdir `{workdir}` is not a folder in {tmp_path}"
    assert refused.value.hint == "create it, or correct `workdir`"


@pytest.mark.parametrize(
    ("text", "cores", "expected"),
    [
        ("", 8, [None]),
        ("resources: {cpus: 2}", 8, [2]),
        ("resources: {cpus: 0.5}", 8, [1]),
        ("roles: {worker: 2}", 8, [4, 4]),
        ("roles: {worker: 3}", 8, [2, 2, 2]),
        ("roles: {worker: 16}", 8, [1] * 16),
        ("roles: {chief: 1, worker: 1, ps: 2, evaluator: 1}", 8, [4] * 5),
        ("roles: {chief: {resources: {cpus: 6}}, worker: 1}", 8, [6, 2]),
        ("roles: {chief: {resources: {cpus: 9}}, worker: 2}", 8, [9, 1, 1]),
        # The same command, or a framework in which the chief trains, too: the same work.
        ("framework: torch\nroles: {chief: 1, worker: 3}", 8, [2] * 4),
        ("roles: {chief: {run: python lead.py}, worker: 3}", 8, [2] * 4),
        # A server and its clients: one waits for the other.
        ("framework: torch\nroles: {chief: {run: python serve.py}, worker: 2}", 8, [8, 4, 4]),
        ("framework: torch\nroles: {worker: {replicas: 3, first: {run: python serve.py}}}", 8, [8, 4, 4]),
    ],
)
def test_cores_are_the_claimed_ones_or_an_even_share_among_replicas_with_the_same_work(
    tmp_path: Path, text: str, cores: int, expected: list[int | None]
) -> None:
    with placed(text, tmp_path, cores=cores) as placement:
        assert [place.cores for place in placement.values()] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("framework: torch\nroles: {worker: 3}", [None] * 3),
        ("framework: torch\nroles: {worker: {replicas: 3, first: {resources: {cpus: 2}}}}", [2, None, None]),
        ("framework: torch\nroles: {worker: 2}\nrun: cd . && exec python 'train.py' --rank=$RANK", [None] * 2),
        ("framework: torch\nroles: {chief: {run: python other.py}, worker: 2}", [8, None, None]),
        ("roles: {worker: 2}", [4, 4]),
    ],
)
def test_replicas_with_a_script_that_uses_torch_rpc_have_all_cores(
    tmp_path: Path, text: str, expected: list[int | None]
) -> None:
    (tmp_path / "train.py").write_text("import torch.distributed.rpc as rpc\nrpc.init_rpc('ps', rank=0)\n")
    (tmp_path / "other.py").write_text("import torch\n")
    with placed(text, tmp_path) as placement:
        assert [place.cores for place in placement.values()] == expected


def test_an_engine_that_this_version_does_not_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as refused:
        open_engine("slurm", Site(tmp_path, tmp_path, 1))
    assert refused.value.message == "this version of drumline cannot run on `slurm`"


def test_ports_locked_by_another_user_are_skipped_and_without_a_free_one_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        first = probe.getsockname()[1]
    module = import_module("drumline.engine.local.place")  # the package has a function of that name
    monkeypatch.setattr(module, "_PICKED_PORTS", (range(first, first + 20),))
    monkeypatch.setattr(module, "_ephemeral_ports", lambda: range(0))
    names = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    try:
        for number, name in enumerate(names[:10]):
            name.bind(f"\0drumline-port-{first + number}")
        assert ports("framework: plain", tmp_path)["worker.0"] >= first + 10
        for number, name in enumerate(names[10:], start=10):
            name.bind(f"\0drumline-port-{first + number}")
        with pytest.raises(EngineError, match=r"no free port is left on this machine for worker\.0"):
            ports("framework: plain", tmp_path)
    finally:
        for name in names:
            name.close()
