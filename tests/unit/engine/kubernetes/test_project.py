"""A project's folder is packed into parts for the API, and unpacked in a pod."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.kubernetes import project
from drumline.engine.kubernetes.project import PackedProject, pack
from drumline.errors import InputError
from drumline.runtime.ready import wait_for
from unit.engine.agent.host import listing


def make(root: Path) -> Path:
    (root / "src").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "src/run.sh").write_text("#!/bin/sh\n")
    (root / "src/run.sh").chmod(0o755)
    (root / "latest").symlink_to("src/run.sh")
    (root / "empty").mkdir()
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("not UTF-8")
    (root / ("d" * 90) / ("e" * 90)).mkdir(parents=True)
    (root / ("d" * 90) / ("e" * 90) / "long.txt").write_text("deep")
    return root


def carry(packed: PackedProject, folder: Path) -> Path:
    """Write the parts as they are mounted in a pod."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    for content in packed.contents:
        for name, data in content.items():
            (parts / name).write_bytes(data)
    return parts


def unpack(
    packed: PackedProject, folder: Path, path: str | None = None, peers: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the script of the init container; with only the programs of `path` if it is given."""
    parts = carry(packed, folder)
    command = ["sh", str(parts / "ready.sh"), str(parts), str(folder / "project"), str(folder / "runtime")]
    env = {"PATH": path or os.environ["PATH"], "DRUMLINE_PEERS": peers}
    return subprocess.run(
        [shutil.which("sh") or "sh", *command[1:]], env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """Return a PATH as in an image without Python: a shell, tar, gzip, and little else."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "tar", "gzip", "cat", "mkdir", "date", "sleep", "tr", "getent"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return str(programs)


def test_a_project_is_unpacked_by_python(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    done = unpack(pack(project), tmp_path / "pod")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert listing(tmp_path / "pod/project") == listing(project)


def test_a_project_is_unpacked_without_python(tmp_path: Path, bare: str) -> None:
    project = make(tmp_path / "project")
    done = unpack(pack(project), tmp_path / "pod", bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert listing(tmp_path / "pod/project") == listing(project)


def test_a_python_that_cannot_unpack_is_not_used(tmp_path: Path, bare: str) -> None:
    """One Python has no zlib; the other is of version 2, and called `python`."""
    program = (
        "import runpy, sys; sys.modules['zlib'] = None; sys.argv = sys.argv[2:];"
        " open(sys.argv[1] + '/tried', 'w').close(); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    stand_in = tmp_path / "bin/python3"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -ISc "{program}" "$@"\n')
    stand_in.chmod(0o755)
    project = make(tmp_path / "project")
    done = unpack(pack(project), tmp_path / "pod", bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "pod/parts/tried").exists()
    assert listing(tmp_path / "pod/project") == listing(project)

    stand_in.rename(tmp_path / "bin/python").write_text("#!/bin/sh\nexit 1\n")
    done = unpack(pack(project), tmp_path / "again", bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert listing(tmp_path / "again/project") == listing(project)


def test_an_image_without_python_and_tar_gives_an_error(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = unpack(pack(make(tmp_path / "project")), tmp_path / "pod", str(tmp_path / "bin"))
    assert done.returncode == 1
    assert "neither python3 nor tar" in done.stdout


@pytest.mark.parametrize("python", ["with", "without"])
def test_unpacking_again_changes_nothing(tmp_path: Path, bare: str, python: str) -> None:
    packed = pack(make(tmp_path / "project"))
    path = bare if python == "without" else None
    assert unpack(packed, tmp_path / "pod", path).returncode == 0
    before = listing(tmp_path / "pod/project")
    shutil.rmtree(tmp_path / "pod/parts")
    assert unpack(packed, tmp_path / "pod", path).returncode == 0
    assert listing(tmp_path / "pod/project") == before


def test_the_runtime_is_included_and_can_be_imported(tmp_path: Path) -> None:
    assert unpack(pack(None), tmp_path).returncode == 0
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import drumline.runtime as r; print(r.is_chief(), r.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-ISc", program, tmp_path / "runtime"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"True {tmp_path}/runtime/drumline/runtime/__init__.py\n"
    assert not (tmp_path / "project").exists()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first = pack(make(tmp_path / "one"))
    second = make(tmp_path / "two")
    for path in second.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (second / "train.py").chmod(0o600)
    assert pack(second) == first
    (second / "train.py").write_text("print('hallo')\n")
    assert pack(second).parts != first.parts


def test_links_are_valid_after_unpacking_or_left_out(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "inside").symlink_to(project / "src")
    (project / "src/up").symlink_to("../train.py")
    (project / "outside").symlink_to(tmp_path)
    (project / "src/out").symlink_to("../../elsewhere")
    (project / "dangling").symlink_to("nothing")
    packed = pack(project)
    assert unpack(packed, tmp_path / "pod").returncode == 0
    found = listing(tmp_path / "pod/project")
    assert (found["inside"], found["src/up"], found["dangling"]) == ("-> src", "-> ../train.py", "-> nothing")
    assert "outside" not in found
    assert packed.warnings == (
        f"outside is left out: it points out of the project, to {tmp_path}",
        "src/out is left out: it points out of the project, to ../../elsewhere",
    )


def test_sockets_and_pipes_are_left_out_with_a_warning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert pack(tmp_path).warnings == (
            "pipe is left out: it is not a regular file",
            "s is left out: it is not a regular file",
        )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Root could read the file: the test changes its effective user."""
    make(tmp_path)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(InputError, match=r"cannot read closed: Permission denied"), as_other_user(tmp_path):
        pack(tmp_path)
    (tmp_path / "closed").rmdir()
    with pytest.raises(InputError, match=r"cannot read secret: Permission denied") as caught, as_other_user(tmp_path):
        pack(tmp_path)
    assert ".drumlineignore" in caught.value.hint


class as_other_user:  # noqa: N801
    """Run as a user without permissions to the files, if this process is root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._was = os.geteuid()
        if self._was == 0:
            for each in (self._folder, *self._folder.parents):
                if each != Path("/") and each.stat().st_uid == 0 and not each.stat().st_mode & 0o005:
                    each.chmod(each.stat().st_mode | 0o055)
            os.seteuid(65_534)

    def __exit__(self, *_: object) -> None:
        os.seteuid(self._was)


def test_parts_fit_into_objects_of_the_api(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(os.urandom(3_000_000))
    packed = pack(tmp_path)
    assert len(packed.parts) == 5
    assert all(sum(map(len, content.values())) <= project.PART_BYTES for content in packed.contents)
    assert (packed.files, packed.size_bytes) == (1, 3_000_000)
    assert unpack(packed, tmp_path / "pod").returncode == 0
    assert (tmp_path / "pod/project/weights").read_bytes() == (tmp_path / "weights").read_bytes()


def test_a_project_that_is_too_large_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    (tmp_path / "a/deep/data").mkdir(parents=True)
    (tmp_path / "a/deep/data/one").write_bytes(os.urandom(5_000_000))
    (tmp_path / "a/deep/data/two").write_bytes(os.urandom(4_000_000))
    (tmp_path / "model.h5").write_bytes(os.urandom(1_000_000))
    (tmp_path / "train.py").write_text("x")
    with pytest.raises(InputError) as caught:
        pack(tmp_path)
    first, *largest = caught.value.message.splitlines()
    assert first.startswith("the project is 10.0 MB in 4 files, 10.0 MB compressed; at most 8.4 MB compressed")
    assert largest == ["  a/deep/data/  9.0 MB", "  model.h5  1.0 MB", "  train.py  1 byte"]
    (tmp_path / ".drumlineignore").write_text("data/\n")
    assert pack(tmp_path).files == 3


def test_a_very_large_project_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "images.tar").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"the project is 1099\.5 GB in 1 file; at most"):
        pack(tmp_path)


def test_a_peer_without_a_name_record_is_waited_for_and_named(tmp_path: Path, bare: str) -> None:
    parts = carry(pack(None), tmp_path)
    command = ["sh", str(parts / "ready.sh"), str(parts), str(tmp_path / "project"), str(tmp_path / "runtime")]
    env = {"PATH": bare, "DRUMLINE_PEERS": "localhost,worker-1.never.invalid"}
    shell = shutil.which("sh") or "sh"
    with subprocess.Popen([shell, *command[1:]], env=env, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout
        line = waiting.stdout.readline()
        waiting.terminate()
    assert line.startswith("drumline: waiting for worker-1.never.invalid to resolve, for ")
    assert waiting.returncode in (143, -15)


def test_all_peers_are_waited_for_and_a_known_one_is_not_resolved_again() -> None:
    clock, asked = [0.0], []
    answers: dict[str, Iterator[bool]] = {"a": iter([True]), "b": iter([False, False, True])}

    def known(name: str) -> bool:
        asked.append(name)
        return next(answers[name])

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    wait_for(["a", "b"], lambda: False, known, lambda: clock[0], sleep)
    assert asked == ["a", "b", "b", "b"]


@pytest.mark.parametrize("has_python", [True, False])
def test_waiting_ends_when_a_replica_has_ended(tmp_path: Path, bare: str, *, has_python: bool) -> None:
    parts = carry(pack(None), tmp_path)
    command = ["sh", str(parts / "ready.sh"), str(parts), str(tmp_path / "project"), str(tmp_path / "runtime")]
    env = {
        "PATH": os.environ["PATH"] if has_python else bare,
        "DRUMLINE_PEERS": "worker-1.never.invalid,worker-2.invalid",
    }
    shell = shutil.which("sh") or "sh"
    with subprocess.Popen([shell, *command[1:]], env=env, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout
        assert "waiting for worker-1.never.invalid" in waiting.stdout.readline()
        (parts / "begun").write_text("a replica has ended")
    assert waiting.returncode == 0


def test_the_missing_peers_are_printed_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    wait_for(
        [f"worker-{number}" for number in range(6)], lambda: False, lambda _: clock[0] >= 11, lambda: clock[0], sleep
    )
    names = "worker-0, worker-1, worker-2, worker-3 and 2 more"
    assert capsys.readouterr().out.splitlines() == [
        f"drumline: waiting for {names} to resolve, for {seconds} s so far" for seconds in (5, 10)
    ]
