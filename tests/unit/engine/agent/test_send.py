"""Sending a folder to a host: only missing files are sent, and the folder is complete or unchanged."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from drumline.engine.agent import send as sending
from drumline.engine.agent.answers import ClockAnswer
from drumline.engine.agent.send import SentFolder, send_folder, send_project
from drumline.engine.project.snapshot import Snapshot, take_snapshot
from drumline.engine.project.tree import walk_project
from drumline.errors import EngineError
from unit.engine.agent.host import Host, ScriptedAgent, ask, listing, start

STORE = "~/base/blobs"
FOLDER = "~/base/runs/a b/project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "src/run.sh").write_text("#!/bin/sh\n")
    (root / "src/run.sh").chmod(0o755)
    (root / "latest").symlink_to("src/run.sh")
    (root / "nowhere").symlink_to("not/there")
    (root / "empty").mkdir()
    (root / "nothing").write_bytes(b"")
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("not UTF-8")
    (root / "two\nlines 'quoted' $HOME").write_text("odd")
    (root / "notes.txt").write_text("ignored")
    (root / ".drumlineignore").write_text("*.txt\n!caf*\n")
    return root


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def there(host: Host) -> Path:
    return host.home / "base/runs/a b/project"


def send(host: Host, what: Path | Snapshot, folder: str = FOLDER) -> SentFolder:
    snapshot = what if isinstance(what, Snapshot) else take_snapshot(what)
    return ask(host, lambda agent: send_project(agent, snapshot, folder, store=STORE))


def test_a_folder_is_sent_unchanged(host: Host, project: Path) -> None:
    sent = send(host, project)
    expected = listing(project)
    del expected["notes.txt"]
    assert listing(there(host)) == expected
    assert (there(host) / "train.py").stat().st_mtime_ns == (project / "train.py").stat().st_mtime_ns
    assert sent.folder == str(there(host))
    assert sent.files == 8
    assert sent.size_bytes == sum(len(found[0]) for found in expected.values() if isinstance(found, tuple))


def test_only_changed_files_are_sent(host: Host, project: Path) -> None:
    first = send(host, project)
    again = send(host, project)
    (project / "train.py").write_text("print('hallo')\n")
    (project / "src/new.py").write_text("print('hello')\n")  # known, under another name
    changed = send(host, project)
    assert first.sent_bytes > 0
    assert (again.sent_bytes, again.written) == (0, 0)
    assert (changed.sent_bytes, changed.written) == (15, 2)


def test_another_run_of_the_same_project_sends_no_files(host: Host, project: Path) -> None:
    send(host, project)
    host.requests.clear()
    other = send(host, project, "~/base/runs/other/project")
    assert (other.sent_bytes, len(host.requests)) == (0, 1)
    assert listing(host.home / "base/runs/other/project") == listing(there(host))


def test_files_of_the_training_stay_and_files_that_are_no_longer_sent_are_removed(host: Host, project: Path) -> None:
    send(host, project)
    (there(host) / "src/own.log").write_text("mine")
    (there(host) / "empty/own").write_text("mine")
    (project / "src/run.sh").unlink()
    (project / "latest").unlink()
    (project / "empty").rmdir()
    (project / "nothing").unlink()
    (project / "nothing").mkdir()
    (project / "nothing/deep").write_text("now a folder")
    send(host, project)
    found = listing(there(host))
    assert found["src/own.log"] == (b"mine", False)
    assert found["empty/own"] == (b"mine", False)
    assert "src/run.sh" not in found
    assert "latest" not in found
    assert found["nothing/deep"] == (b"now a folder", False)


def test_a_link_in_place_of_a_sent_folder_is_not_followed(host: Host, project: Path) -> None:
    send(host, project)
    elsewhere = host.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.sh").write_text("not drumline's")
    shutil.rmtree(there(host) / "src")
    (there(host) / "src").symlink_to(elsewhere)
    (project / "src/run.sh").write_text("changed")
    with pytest.raises(EngineError, match=r"src/run.sh cannot be used on gpu1: .*[Nn]ot a directory"):
        send(host, project)
    shutil.rmtree(project / "src")
    send(host, project)
    assert listing(elsewhere) == {"run.sh": (b"not drumline's", False)}


def test_a_file_that_was_replaced_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    project, secret = tmp_path / "project", tmp_path / "secret"
    (project / "src").mkdir(parents=True)
    (project / "src/a").write_text("a")
    (project / "b").write_text("b")
    secret.mkdir()
    (secret / "a").write_text("secret")
    tree = walk_project(project)
    shutil.rmtree(project / "src")
    (project / "src").symlink_to(secret)
    (project / "b").unlink()
    (project / "b").symlink_to(secret / "a")
    found = Snapshot(project, tree)
    assert found.files == 0
    assert not found.sizes


def test_a_broken_connection_leaves_the_folder_unchanged(host: Host, project: Path) -> None:
    host.cut_after = 1
    with pytest.raises(EngineError, match="broke"):
        send(host, project)
    assert not there(host).exists()
    host.cut_after = None
    send(host, project)
    before = listing(there(host))
    (project / "train.py").write_text("print('changed')\n")
    host.cut_after = len(host.requests) + 1
    with pytest.raises(EngineError, match="broke"):
        send(host, project)
    assert listing(there(host)) == before
    assert sorted(path.name for path in there(host).parent.iterdir()) == ["project", "project.carried", "project.lock"]


def test_a_folder_is_restored_after_an_agent_was_killed_while_files_were_moved(host: Host, project: Path) -> None:
    send(host, project)
    note = there(host).with_name("project.carried")
    (project / "nothing").unlink()
    assert (there(host) / "nothing").exists()
    (there(host) / "train.py").write_text("half")
    # The index while files are moved: every file may have changed.
    note.write_text('{"train.py": ["unknown"], "nothing": ["unknown"]}')
    there(host).with_name("project.new").mkdir()
    send(host, project)
    assert (there(host) / "train.py").read_text() == "print('hello')\n"
    assert not (there(host) / "nothing").exists()


def test_contents_that_were_damaged_on_the_host_are_sent_again(host: Host, project: Path) -> None:
    send(host, project)
    for blob in (host.home / "base/blobs").glob("??/*"):
        blob.write_bytes(b"spoiled")
    other = send(host, project, "~/base/runs/other/project")
    assert other.sent_bytes > 0
    assert listing(host.home / "base/runs/other/project") == listing(there(host))


def test_contents_that_are_damaged_on_the_way_are_never_used(host: Host, project: Path) -> None:
    host.change_request = lambda request: request.replace(b"print('hello')", b"print('jello')")
    with pytest.raises(EngineError, match="the project changes faster than it can be sent to gpu1"):
        send(host, project)
    assert not there(host).exists()
    assert not list((host.home / "base/blobs").glob("**/*.part"))


def test_a_file_that_is_written_while_it_is_sent_arrives_in_one_consistent_state(host: Host, project: Path) -> None:
    log = project / "log"
    log.write_text("first\n")
    snapshot = take_snapshot(project)
    log.write_text("another\n")  # after it was listed, before it is sent
    send(host, snapshot)
    assert (there(host) / "log").read_text() == "another\n"
    log.write_text("x")
    snapshot = take_snapshot(project)
    log.unlink()
    send(host, snapshot)
    assert not (there(host) / "log").exists()


def test_large_files_are_sent_in_pieces(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, size in (("one", 19 << 20), ("two", 1 << 20), ("three", 8 << 20)):
        (tmp_path / "data" / name).write_bytes(os.urandom(1 << 20) * (size >> 20))
    sent = send(host, tmp_path / "data")
    assert listing(there(host)) == listing(tmp_path / "data")
    assert sent.sent_bytes == sent.size_bytes == 28 << 20
    assert len(host.requests) > 4
    assert max(map(len, host.requests)) < 9 << 20


def test_several_runs_at_once_do_not_disturb_each_other(host: Host, project: Path) -> None:
    async def all_at_once() -> None:
        folders = [f"~/base/runs/{number % 3}/project" for number in range(6)]
        agents = [await start(host) for _ in folders]
        await asyncio.gather(
            *(
                send_project(agent, take_snapshot(project), folder, store=STORE)
                for agent, folder in zip(agents, folders, strict=True)
            )
        )
        await host.closed()

    asyncio.run(all_at_once())
    expected = listing(project)
    del expected["notes.txt"]
    assert all(listing(host.home / f"base/runs/{number}/project") == expected for number in range(3))
    assert not list((host.home / "base").glob("**/*.part"))


def test_output_of_a_login_script_is_ignored(tmp_path: Path, project: Path) -> None:
    talker = Host(tmp_path / "host", greeting=b"Welcome to gpu1!\n")
    assert send(talker, project).written > 0


def test_contents_that_are_no_longer_used_are_removed(
    host: Host, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(host, project)
    blobs = host.home / "base/blobs"
    stale = blobs / "ab" / ("c" * 62)
    stale.parent.mkdir(exist_ok=True)
    stale.write_text("of a run long ago")
    long_ago = time.time() - sending.KEEP_SECONDS - 60
    os.utime(stale, (long_ago, long_ago))
    os.utime(blobs / "pruned", (long_ago, long_ago))
    send(host, project)
    assert not stale.exists()
    kept = list(blobs.glob("??/*"))
    assert kept
    os.utime(blobs / "pruned", (long_ago, long_ago))
    monkeypatch.setattr(sending, "KEEP_BYTES", 20)
    send(host, project)
    assert 0 < len(list(blobs.glob("??/*"))) < len(kept)
    assert send(host, project, "~/base/runs/other/project").sent_bytes > 0


def test_a_host_without_disk_space_is_named_before_anything_is_sent(host: Host, tmp_path: Path) -> None:
    class HugeSnapshot(Snapshot):
        @property
        def sizes(self) -> dict[str, int]:
            return dict.fromkeys(super().sizes, 1 << 60)

    (tmp_path / "data").mkdir()
    (tmp_path / "data/one").write_text("x")
    with pytest.raises(
        EngineError, match=r"^gpu1 has too little disk space for the project: .* are needed in .*, .* are free$"
    ):
        send(host, HugeSnapshot(tmp_path / "data", walk_project(tmp_path / "data")))
    assert len(host.requests) == 1
    assert not there(host).exists()


def test_a_write_error_names_the_host(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/one").write_bytes(os.urandom(300_000))
    host.prefix = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh"]
    with pytest.raises(EngineError, match=r"cannot be used on gpu1: File too large"):
        send(host, tmp_path / "data")
    assert not there(host).exists()
    assert not list((host.home / "base/blobs").glob("**/*.part"))


def test_a_folder_that_cannot_be_written_is_named(host: Host, project: Path) -> None:
    (host.home / "base").write_text("in the way")
    with pytest.raises(EngineError, match=r"base.* cannot be used on gpu1: (Not a directory|File exists)"):
        send(host, project)


def test_a_host_without_python_is_named(host: Host) -> None:
    with pytest.raises(EngineError, match=r"^gpu1 has no Python that works as `python9`: .*python9.* not found$"):
        ask(host, lambda agent: agent.ask({"do": "clock"}, ClockAnswer), "python9")


def test_an_output_is_written_exactly_and_other_files_are_removed(host: Host, tmp_path: Path) -> None:
    output = tmp_path / "output"
    (output / "checkpoint").mkdir(parents=True)
    (output / "checkpoint/ckpt-3.data").write_bytes(b"3" * 100)
    (output / "checkpoint/checkpoint").write_text("ckpt-3")
    os.utime(output / "checkpoint/ckpt-3.data", (1_000_000_000, 1_000_000_000))
    remote = host.home / "runs/4/output"
    (remote / "checkpoint").mkdir(parents=True)
    (remote / "checkpoint/ckpt-9.data").write_bytes(b"9" * 100)
    (remote / "checkpoint/ckpt-3.data").write_bytes(b"3" * 100)
    (remote / "checkpoint/checkpoint").write_text("ckpt-9")
    sent = ask(host, lambda agent: send_folder(agent, take_snapshot(output, rules=False), "~/runs/4/output"))
    assert listing(remote) == listing(output)
    assert sent.sent_bytes == len("ckpt-3")
    assert sorted(path.name for path in remote.parent.iterdir()) == ["output", "output.carried", "output.lock"]
    shutil.rmtree(remote)
    ask(host, lambda agent: send_folder(agent, take_snapshot(output, rules=False), "~/runs/4/output"))
    assert (remote / "checkpoint/ckpt-3.data").stat().st_mtime == 1_000_000_000


def test_the_same_content_has_the_same_name(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "copy", symlinks=True)
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert take_snapshot(tmp_path / "copy").name == take_snapshot(project).name
    (tmp_path / "copy/train.py").chmod(0o755)
    assert take_snapshot(tmp_path / "copy").name != take_snapshot(project).name


def send_to_liar(project: Path, said: bytes) -> SentFolder:
    """Send a project to a host that sends these answers to any request."""

    async def run() -> SentFolder:
        agent = ScriptedAgent(lambda _: said.replace(b"{", b'{"do": "answer", "id": 0, ', 1) + b"\n").agent()
        return await send_project(agent, take_snapshot(project), "~/p", store="~/b")

    return asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"damaged": []}',
        b"[" * 100_000,
        b'{"damaged": [], "folder": "/p", "free_bytes": 1, "missing": 5, "written": 1}',
        b'{"damaged": [[]], "folder": "/p", "free_bytes": 1, "missing": [], "written": 1}',
        b'{"damaged": [], "folder": ["/p"], "free_bytes": 1, "missing": [], "written": 1}',
        b'{"damaged": [], "folder": "/p", "free_bytes": NaN, "missing": [], "written": 1}',
        b'{"damaged": [], "folder": "/p", "free_bytes": -1, "missing": [], "written": 1}',
        b'{"damaged": [], "folder": "/p", "free_bytes": 1, "missing": [], "written": true}',
        b'{"damaged": [], "folder": "/p", "free_bytes": 1, "missing": [], "written": 1, "more": 1}',
        b'{"damaged": [], "folder": "/p\\ud800", "free_bytes": 1, "missing": [], "written": 1}',
    ],
)
def test_an_invalid_answer_is_an_error_with_the_name_of_the_host(tmp_path: Path, said: bytes) -> None:
    with pytest.raises(EngineError, match="gpu1 has sent something that drumline does not send"):
        send_to_liar(tmp_path, said)


def test_a_host_that_requests_unknown_contents_is_sent_nothing_else(tmp_path: Path) -> None:
    said = b'{"damaged": ["x"], "folder": "/p", "free_bytes": 1, "missing": ["../../etc/passwd"]}'
    with pytest.raises(EngineError, match="changes faster than it can be sent to gpu1"):
        send_to_liar(tmp_path, said)


@pytest.mark.parametrize("said", [b'{"error": ["x"], "errno": [], "path": {}}', b'{"error": "x"}'])
def test_an_invalid_refusal_is_an_error_with_the_name_of_the_host(tmp_path: Path, said: bytes) -> None:
    with pytest.raises(EngineError, match=r"^gpu1"):
        send_to_liar(tmp_path, said)
