"""`drumline rm` of runs written by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from drumline.cli import run
from drumline.run.traces import TRACE
from drumline.runtime.lock import take_lock
from drumline.store.folder import create_folder
from drumline.store.index import Index, use_index
from drumline.store.summary import record_run
from scaffold.past_runs import finished, moments, running, write_run

Captured = pytest.CaptureFixture[str]


def rm(*ids: str) -> int:
    return run(["rm", *ids])


def left(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "runs").iterdir())


def test_a_finished_run_is_removed_with_all_its_files(home: Path, capsys: Captured) -> None:
    for number in (1, 2):
        folder = write_run(home, number, finished())
        (folder.path / "attempts" / "0" / "worker.0").mkdir(parents=True)
        (folder.path / "attempts" / "0" / "worker.0" / "log").write_text("hello\n")
        folder.output_dir.mkdir()
        record_run(folder)
    assert rm("1") == 0
    assert capsys.readouterr() == ("removed run 1\n", "")
    assert left(home) == ["2"]
    assert use_index(home, Index.ids) == {"2"}


def test_several_runs_are_removed_and_an_id_may_be_repeated(home: Path, capsys: Captured) -> None:
    for number in (1, 2, 3):
        write_run(home, number, finished(code=number % 2))
    assert rm("3", "1", "3") == 0
    assert capsys.readouterr().out == "removed run 3\nremoved run 1\n"
    assert left(home) == ["2"]


def test_a_run_that_is_not_over_is_kept_and_so_are_all_others(home: Path, capsys: Captured) -> None:
    accepted, started, *_ = moments()
    write_run(home, 1, finished())
    write_run(home, 2, running(accepted, started))
    assert rm("1", "2") == 2
    assert capsys.readouterr() == ("", "error: run 2 is not over: RUNNING\nhint: `drumline kill 2` stops it\n")
    assert left(home) == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("7", 4, "error: there is no run 7"),
        ("1.worker.0", 2, "error: 1.worker.0: only whole runs can be removed"),
        ("all", 2, "error: `all` is not a run's id"),
    ],
)
def test_all_ids_are_checked_before_anything_is_removed(
    home: Path, capsys: Captured, text: str, code: int, message: str
) -> None:
    write_run(home, 1, finished())
    assert rm("1", text) == code
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", message)
    assert left(home) == ["1"]


def test_an_output_folder_in_the_spec_is_not_removed(home: Path, tmp_path: Path, capsys: Captured) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "model").write_text("weights")
    write_run(home, 1, finished(), spec="framework: plain\noutput: results", directory=tmp_path)
    assert rm("1") == 0
    assert capsys.readouterr() == ("removed run 1\n", f"its output stays in {results}\n")
    assert (results / "model").read_text() == "weights"


def test_a_link_in_a_runs_folder_is_not_followed(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "model").write_text("weights")
    folder = write_run(home, 1, finished())
    folder.output_dir.symlink_to(precious)
    assert rm("1") == 0
    assert (precious / "model").read_text() == "weights"


def test_a_run_that_never_began_can_be_removed(home: Path) -> None:
    write_run(home, 1)
    assert rm("1") == 0
    assert left(home) == []


def test_the_number_of_a_removed_run_is_not_used_again(home: Path) -> None:
    last = create_folder(home)
    write_run(home, 2, finished())
    last.path.rmdir()
    assert create_folder(home).id == "3"
    assert rm("2") == 0
    assert create_folder(home).id == "4"


def test_a_removed_run_is_not_found(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished())
    assert rm("1") == 0
    assert run(["status", "1"]) == 4
    assert "hint: there are no runs yet" in capsys.readouterr().err


def test_a_run_is_removed_even_if_the_index_cannot_be_used(home: Path) -> None:
    write_run(home, 1, finished())
    (home / "index.sqlite").mkdir()
    assert rm("1") == 0
    assert left(home) == []


def test_of_a_run_folder_that_is_a_link_only_the_link_is_removed(home: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = write_run(home, 1, finished())
    elsewhere = tmp_path / "elsewhere"
    folder.path.rename(elsewhere)
    folder.path.symlink_to(elsewhere)
    (home / "runs" / "2").symlink_to(tmp_path / "project")
    (tmp_path / "project" / "model").write_text("weights")
    before = sorted(path.name for path in elsewhere.iterdir())
    assert rm("1", "2") == 0
    assert capsys.readouterr().out == "removed run 1\nremoved run 2\n"
    assert left(home) == []
    assert sorted(path.name for path in elsewhere.iterdir()) == before
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["model"]


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_every_kind_of_damage_is_shown_in_one_sentence_beside_the_other_runs_and_can_be_removed(
    home: Path, capsys: Captured
) -> None:
    write_run(home, 1, finished(), directory=Path.cwd())
    texts = ("", "{", "[]", '{"v": 1}', '{"v": 2}', "[" * 99999, "9" * 9999)
    damages: list[Callable[[Path], object]] = [
        Path.unlink,
        make_link,
        make_folder,
        *(partial(Path.write_text, data=text) for text in texts),
        lambda path: path.write_bytes(b"\xff\xfe\0"),
    ]
    for name in ("plan.json", "launch.json", "events.jsonl", "supervisor.lock"):
        for number, damage in enumerate(damages, start=2):
            folder = write_run(home, number, finished(), directory=Path.cwd())
            folder.lock_file.touch()
            damage(folder.path / name)
        for words in (["status", "-a"], ["status", "-o", "json"]):
            assert run(words) == 0, (name, words)
            out, err = capsys.readouterr()
            assert "Traceback" not in err
            assert out.count("FINISHED") >= 1
        for number in range(2, 2 + len(damages)):
            for command in ("status", "events", "logs", "stacks"):
                assert run([command, str(number)]) in (0, 1, 3, 4), (name, number, command)
                assert "Traceback" not in capsys.readouterr().err, (name, number, command)
            assert rm(str(number)) == 0, (name, number, capsys.readouterr().err)
        assert left(home) == ["1"]
    assert status_ids(capsys) == ["1"]


ABSURD = [
    ("memory_bytes", 10**400),
    ("output", "a\0b"),
    ("output", "\ud800"),
    ("replicas", []),
    ("replicas", [7]),
    ("timeouts", {"grace_seconds": float("nan")}),
    ("project", []),
]


@pytest.mark.parametrize(("key", "value"), ABSURD, ids=[f"{key}-{number}" for number, (key, _) in enumerate(ABSURD)])
def test_a_plan_with_absurd_values_is_shown_in_one_sentence_and_can_be_removed(
    home: Path, capsys: Captured, key: str, value: object
) -> None:
    folder = write_run(home, 1, finished(), spec="framework: plain\nresources: {memory: 1GiB}", directory=Path.cwd())
    plan = json.loads(folder.plan_file.read_text())
    if key == "memory_bytes":
        plan["replicas"][0]["resources"][key] = value
    else:
        plan[key] = value
    folder.plan_file.write_text(json.dumps(plan))
    assert run(["status", "1"]) == 3
    (error, hint) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: the plan of run 1 cannot be read: ")
    assert hint == "hint: `drumline rm 1` removes the run"
    assert rm("1") == 0
    assert left(home) == []


def test_a_folder_without_a_plan_can_be_removed_and_is_named(home: Path, capsys: Captured) -> None:
    folder = create_folder(home)
    assert run(["status", folder.id]) == 4
    assert (
        capsys.readouterr().err == "error: run 1 has no plan; it was never started\nhint: `drumline rm 1` removes it\n"
    )
    (home / "runs" / "2").write_text("no folder at all")
    assert rm("1", "2") == 0
    assert left(home) == []


@pytest.mark.parametrize("lock", ["supervisor.lock", f"attempts/0/worker.0/{TRACE}"])
def test_a_damaged_run_is_kept_while_one_of_its_processes_is_alive(home: Path, capsys: Captured, lock: str) -> None:
    folder = write_run(home, 1, finished())
    folder.plan_file.write_text("{")
    (folder.path / lock).parent.mkdir(parents=True, exist_ok=True)
    held = take_lock(folder.path / lock)
    assert held is not None
    what = "its supervisor" if lock == "supervisor.lock" else "worker.0"
    assert rm("1") == 2
    assert capsys.readouterr().err.startswith(f"error: run 1 is damaged, but {what} is alive\nhint: ")
    assert left(home) == ["1"]
    os.close(held)
    assert rm("1") == 0


def test_a_run_that_other_users_can_write_can_be_removed_but_not_read(home: Path, capsys: Captured) -> None:
    folder = write_run(home, 1, finished(), directory=Path.cwd())
    folder.path.chmod(0o777)
    write_run(home, 2, finished(), directory=Path.cwd())
    for command in ("status", "logs", "resume", "supervise", "kill", "wait", "stacks", "events"):
        assert run([command, "1"]) == 3
        assert f"{folder.path} can be written by others (mode 0777)\n" in capsys.readouterr().err
    assert status_ids(capsys) == ["2"]
    assert rm("1") == 0


def status_ids(capsys: Captured) -> list[str]:
    capsys.readouterr()
    assert run(["status", "-a", "-o", "json"]) == 0
    return [row["id"] for row in json.loads(capsys.readouterr().out)]
