"""Files that a run sends to its hosts and fetches from them, over attempts on different hosts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from drumline.engine.protocol import Site
from drumline.engine.ssh import sync
from drumline.engine.ssh.agents import Route
from drumline.engine.ssh.folders import folder_warnings, local_folders, read_origin, refuse_output_among_code
from drumline.engine.ssh.plan_options import hosts_of, with_hosts
from drumline.engine.ssh.sync import ProjectSync
from drumline.errors import EngineError, InputError
from drumline.plan.types import Place, Plan
from drumline.run.event import ProjectCarried
from drumline.run.origin import origin_from_json
from scaffold.plans import plan_of
from scaffold.waiting import PATIENCE_SECONDS
from unit.engine.agent.host import Host, listing

NAMES = ("a", "b", "c")


class Reached:
    """A host that is connected while the test includes it in `reached`."""

    received_bytes = 0

    def __init__(self, transfer: ProjectTransfer, name: str) -> None:
        self._transfer = transfer
        self._name = name

    @property
    def route(self) -> Route | None:
        host = self._transfer.hosts[self._name]
        return Route(host, str(host.home)) if self._name in self._transfer.reached else None


class ProjectTransfer:
    """A run on three hosts, without replicas."""

    def __init__(self, folder: Path, more: str = "", shared: str = "") -> None:
        self.run_dir = folder / "run"
        self.project = folder / "project"
        for each in (self.run_dir, self.project):
            each.mkdir()
        (self.project / "train.py").write_text("print('hello')\n")
        self.hosts = {name: Host(folder / name, host=name) for name in NAMES}
        options = f"{{hosts: [a, b, c]{shared}}}"
        plan = plan_of(f"roles: {{worker: 3}}\nengine: {{default: ssh, ssh: {options}}}\n{more}")
        self.plan: Plan = with_hosts(plan, hosts_of(plan).replace(unique="u"))
        self.site = Site(self.project, folder / "home", 1)
        self.reached = set(NAMES)
        self.sync = self.new_sync()
        self.runner = asyncio.Runner()  # one loop for all calls
        self._attempt = -1

    def output(self, host: str) -> Path:
        return self.hosts[host].home / "runs/u/output"

    def new_sync(self) -> ProjectSync:
        return ProjectSync(self.plan, self.site, self.run_dir, {name: Reached(self, name) for name in NAMES})

    def place(self, host: str) -> Place:
        output = str(self.output(host))
        return Place(host, 1, str(self.project), output, f"{output}/checkpoint")

    def begin(self, chief: str, among: Sequence[str] = NAMES) -> None:
        places = {name: self.place(name) for name in among}
        self._attempt += 1

        async def begin() -> None:
            await asyncio.gather(*(self.sync.supply(name, self._attempt, chief, places) for name in among))

        self.runner.run(begin())

    def deliver(self, names: Sequence[str] = NAMES) -> ProjectCarried | None:
        async def deliver() -> None:
            await asyncio.gather(*map(self.sync.deliver, names))

        self.runner.run(deliver())
        return self.sync.carried()

    def collect(self) -> None:
        self.runner.run(self.sync.collect())

    def write(self, host: str, name: str, text: str) -> None:
        path = self.output(host) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def here(self) -> Path:
        return self.run_dir / "output"


@pytest.fixture
def travel(tmp_path: Path) -> Iterator[Callable[..., ProjectTransfer]]:
    made: list[ProjectTransfer] = []

    def travel(more: str = "", shared: str = "") -> ProjectTransfer:
        made.append(ProjectTransfer(tmp_path, more, shared))
        return made[-1]

    yield travel
    for each in made:
        for host in each.hosts.values():
            each.runner.run(host.closed())
        each.runner.close()


@pytest.fixture
def transfer(travel: Callable[..., ProjectTransfer]) -> ProjectTransfer:
    return travel()


def test_the_project_is_sent_to_every_host_and_only_changed_files_again(transfer: ProjectTransfer) -> None:
    (transfer.project / "data").write_text("x" * 1000)
    transfer.begin("a")
    assert transfer.sync.carried() == ProjectCarried(2, 1015, 3)
    assert listing(transfer.hosts["c"].home / "runs/u/project") == listing(transfer.project)
    transfer.begin("a")
    assert transfer.sync.carried() is None
    (transfer.project / "train.py").write_text("print('hallo')\n")
    transfer.begin("b", among=("a", "b"))
    assert transfer.sync.carried() == ProjectCarried(2, 1015, 2, 15)


def test_a_host_that_cannot_receive_the_project_is_named(transfer: ProjectTransfer) -> None:
    (transfer.hosts["b"].home / "blobs").write_text("in the way")
    with pytest.raises(EngineError, match="on b: "):
        transfer.deliver(("a", "c", "b"))
    transfer.deliver(("c",))
    assert (transfer.hosts["c"].home / "runs/u/project/train.py").exists()


def test_an_output_folder_in_the_project_is_not_sent(travel: Callable[..., ProjectTransfer]) -> None:
    transfer = travel(more="output: results")
    (transfer.project / "results").mkdir()
    (transfer.project / "results/model").write_text("large")
    transfer.deliver(("a",))
    assert listing(transfer.hosts["a"].home / "runs/u/project") == {"train.py": (b"print('hello')\n", False)}


def test_the_next_attempt_finds_the_last_checkpoint_on_all_its_hosts(transfer: ProjectTransfer) -> None:
    transfer.begin("a")
    transfer.write("a", "checkpoint/ckpt-1", "one")
    transfer.write("b", "worker.log", "of b alone")
    transfer.begin("b")
    assert (transfer.output("b") / "checkpoint/ckpt-1").read_text() == "one"
    assert (transfer.output("c") / "checkpoint/ckpt-1").read_text() == "one"  # workers read it too
    transfer.write("b", "checkpoint/ckpt-2", "two")
    (transfer.output("b") / "checkpoint/ckpt-1").unlink()
    transfer.write("a", "checkpoint/ckpt-9", "that was never fetched, since the host was lost")
    transfer.begin("a")
    assert listing(transfer.output("a")) == listing(transfer.here)
    assert sorted(path.name for path in (transfer.here / "checkpoint").iterdir()) == ["ckpt-2"]
    assert not (transfer.output("c") / "checkpoint/ckpt-1").exists()
    assert (transfer.output("b") / "worker.log").exists()


def test_the_last_fetched_output_of_a_lost_host_is_used(transfer: ProjectTransfer) -> None:
    transfer.begin("a")
    transfer.write("a", "ckpt", "fetched")
    os.utime(transfer.output("a") / "ckpt", (1, 1))
    transfer.collect()
    transfer.write("a", "ckpt", "lost")
    transfer.reached.remove("a")
    transfer.begin("b", among=("b", "c"))
    assert (transfer.output("b") / "ckpt").read_text() == "fetched"
    assert (transfer.output("c") / "ckpt").read_text() == "fetched"
    transfer.write("b", "ckpt", "newer")
    transfer.reached.add("a")
    transfer.begin("a")
    assert (transfer.output("a") / "ckpt").read_text() == "newer"


def test_the_output_of_the_chief_is_fetched_when_it_has_ended(transfer: ProjectTransfer) -> None:
    transfer.begin("b")
    origin = read_origin(transfer.run_dir)
    assert origin
    assert (origin.host, origin.is_whole, origin.fetched_at) == ("b", False, None)
    transfer.write("b", "model", "trained")
    transfer.collect()
    assert listing(transfer.here) == {"model": (b"trained", False)}
    origin = read_origin(transfer.run_dir)
    assert origin
    assert origin.is_whole
    assert origin_from_json(origin.to_json()) == origin


def test_the_output_is_fetched_repeatedly_while_the_chief_writes(
    transfer: ProjectTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "FETCH_SECONDS", 0.0)
    monkeypatch.setattr(sync, "FETCH_SHARE", 0.0)
    transfer.begin("a")
    transfer.write("a", "old", "x")
    os.utime(transfer.output("a") / "old", (1, 1))

    warned: list[str] = []

    async def take_warnings() -> None:
        async for warning in transfer.sync.follow():
            warned.extend((warning,))

    async def follow() -> None:
        going = asyncio.create_task(take_warnings())
        while not (transfer.here / "old").exists():
            await asyncio.sleep(0.01)
        (transfer.output("a") / "old").write_text("y")
        os.utime(transfer.output("a") / "old", (2, 2))
        while (transfer.here / "old").read_text() != "y":
            await asyncio.sleep(0.01)
        transfer.hosts["a"].cut_after = 0
        while not warned:
            await asyncio.sleep(0.01)
        going.cancel()
        await asyncio.wait([going])
        assert warned == ["the output is not fetched: the connection to a broke"]

    transfer.runner.run(asyncio.wait_for(follow(), PATIENCE_SECONDS))


def test_nothing_is_fetched_from_hosts_that_share_a_folder(travel: Callable[..., ProjectTransfer]) -> None:
    transfer = travel(shared=", shared: /mnt/models")
    transfer.begin("a")
    transfer.write("a", "model", "x")
    transfer.collect()
    transfer.begin("b")
    assert not transfer.here.exists()
    assert not (transfer.output("b") / "model").exists()
    origin = read_origin(transfer.run_dir)
    assert origin
    assert origin.is_shared


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"output": "run/output"}),
        ("output: results", {"output": "project/results"}),
        ("output: /data/out", {"output": "run/output"}),
        ("output: .", {"output": "run/output"}),
        ("output: results/..", {"output": "run/output"}),
        ("output: ..", {"output": "run/output"}),
        ("output: ../results", {"output": "run/output"}),
        ("output: .\ncheckpoint: .", {"output": "run/output", "checkpoint": "run/checkpoint"}),
        ("checkpoint: ../ckpt", {"output": "run/output", "checkpoint": "run/checkpoint"}),
        ("output: results\ncheckpoint: results/ckpt", {"output": "project/results"}),
        ("checkpoint: ckpt", {"output": "run/output", "checkpoint": "project/ckpt"}),
        ("checkpoint: /data/ckpt", {"output": "run/output", "checkpoint": "run/checkpoint"}),
    ],
)
def test_output_is_fetched_into_the_folder_of_the_spec_only_if_it_is_inside_the_project(
    travel: Callable[..., ProjectTransfer], tmp_path: Path, more: str, expected: dict[str, str]
) -> None:
    transfer = travel(more=more)
    found = local_folders(transfer.plan, transfer.project, transfer.run_dir)
    assert {kind: str(path.relative_to(tmp_path)) for kind, path in found.items()} == expected


def is_refused(plan: Plan) -> bool:
    try:
        refuse_output_among_code(plan)
    except InputError as error:
        return "one host could replace the code that runs on the others" in str(error)
    return False


@pytest.mark.parametrize(
    "more", ["output: .", "output: x/..", "output: ..", "output: ../project", "output: x\ncheckpoint: ./"]
)
def test_an_output_folder_with_code_in_it_is_refused_on_several_hosts(
    travel: Callable[..., ProjectTransfer], more: str
) -> None:
    plan = travel(more=more).plan
    assert is_refused(plan)
    hosts = hosts_of(plan)
    assert not is_refused(with_hosts(plan, hosts.replace(all=hosts.all[:1])))
    assert not is_refused(with_hosts(plan, hosts.replace(shared="/mnt/shared")))


@pytest.mark.parametrize("more", ["", "output: results", "output: ../results", "output: /data\ncheckpoint: ckpt"])
def test_an_output_beside_the_code_is_not_refused(travel: Callable[..., ProjectTransfer], more: str) -> None:
    assert not is_refused(travel(more=more).plan)


def test_files_that_a_host_writes_in_its_project_do_not_replace_the_code_on_others(transfer: ProjectTransfer) -> None:
    transfer.output = lambda host: transfer.hosts[host].home / "runs/u/project"  # type: ignore[method-assign]
    transfer.begin("a")
    transfer.write("a", "train.py", "print('evil')\n")
    transfer.write("a", "json.py", "print('evil')\n")
    transfer.collect()
    with pytest.raises(EngineError, match=r"the output is not sent to [bc]: one host could replace the code"):
        transfer.begin("a")
    for other in ("b", "c"):
        assert listing(transfer.output(other)) == listing(transfer.project)
    transfer.begin("a", among=("a",))  # a host keeps the files that it wrote itself


def test_warnings_about_left_out_files_of_a_host_are_limited_in_number_and_length(transfer: ProjectTransfer) -> None:
    transfer.begin("a")
    for number in range(100):
        transfer.sync._warn_left_out([f"link-{number}-{'x' * 3000}"])
    warnings = transfer.sync.take_warnings()
    assert len(warnings) == 20
    assert max(map(len, warnings)) <= 2000
    assert not transfer.sync.take_warnings()


def test_the_number_of_remembered_paths_of_fetched_files_is_limited(
    transfer: ProjectTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_MOST_KNOWN_CHARS", 100)
    transfer.begin("a")
    for number in range(30):
        for old in transfer.output("a").glob("*"):
            old.unlink()
        transfer.write("a", f"{number:050}", "just written")
        transfer.runner.run(transfer.sync._fetch(Route(transfer.hosts["a"], ""), settled=False))
    origin = read_origin(transfer.run_dir)
    assert origin
    assert sum(map(len, origin.paths[str(transfer.here)])) <= 200


def test_a_project_of_gigabytes_gives_a_warning(transfer: ProjectTransfer) -> None:
    assert folder_warnings(transfer.plan, transfer.site) == ()
    with (transfer.project / "images.tar").open("wb") as file:
        file.truncate(3 << 30)
    assert [each.splitlines() for each in folder_warnings(transfer.plan, transfer.site)] == [
        [
            "the project is 3.2 GB for every host; .drumlineignore leaves out what they do not need. The largest are",
            "  images.tar  3.2 GB",
            "  train.py  15 bytes",
        ]
    ]


class SlowSync(ProjectSync):
    """A sync that receives output at a given rate."""

    def come(self, host: Reached, *, rate_bytes: int, looks: int) -> None:
        async def come() -> None:
            for _ in range(looks):
                await asyncio.sleep(0.05)
                host.received_bytes += rate_bytes

        self._collect = come  # type: ignore[method-assign]


def collect(transfer: ProjectTransfer, *, rate_bytes: int, looks: int) -> None:
    host = Reached(transfer, "a")
    slow = SlowSync(transfer.plan, transfer.site, transfer.run_dir, {"a": host})
    slow.come(host, rate_bytes=rate_bytes, looks=looks)
    transfer.runner.run(asyncio.wait_for(slow.collect(), PATIENCE_SECONDS))


@pytest.mark.parametrize("rate_bytes", [0, 1])
def test_fetching_fails_when_a_host_sends_almost_nothing(
    transfer: ProjectTransfer, monkeypatch: pytest.MonkeyPatch, rate_bytes: int
) -> None:
    monkeypatch.setattr(sync, "_STALLED_SECONDS", 0.1)
    with pytest.raises(EngineError, match="has sent almost nothing"):
        collect(transfer, rate_bytes=rate_bytes, looks=1_000_000)


def test_fetching_continues_while_a_large_output_arrives(
    transfer: ProjectTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_STALLED_SECONDS", 0.5)
    collect(transfer, rate_bytes=1 << 20, looks=20)
