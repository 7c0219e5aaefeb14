"""`drumline inspect` and `drumline cp` of runs on this machine: a folder, and plain copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.cli import run
from scaffold.past_runs import finished, write_run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def output(home: Path) -> Path:
    folder = write_run(home, 1, finished())
    (folder.output_dir / "checkpoint").mkdir(parents=True)
    (folder.output_dir / "checkpoint/step").write_text("7\n")
    return folder.output_dir


def test_inspect_runs_a_command_in_the_output_folder_of_the_run(output: Path, capfd: Captured) -> None:
    assert run(["inspect", "1", "sh", "-c", 'pwd; echo "$OUTPUT_DIR"; ls -x']) == 0
    assert capfd.readouterr().out == f"{output}\n{output}\ncheckpoint\n"
    assert run(["inspect", "1", "sh", "-c", "exit 5"]) == 5
    assert run(["inspect", "1", "sh", "-c", "kill -KILL $$"]) == 137


def test_inspect_without_a_command_starts_the_users_shell(
    output: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.setenv("SHELL", "/bin/pwd")
    assert run(["inspect", "1"]) == 0
    assert capfd.readouterr().out == f"{output}\n"


def test_options_after_the_command_are_passed_to_the_command(output: Path, capfd: Captured) -> None:
    assert run(["inspect", "1", "ls", "-1", "checkpoint"]) == 0
    assert capfd.readouterr().out == "step\n"


def test_cp_copies_a_folder_into_an_existing_folder_or_else_under_the_new_name(output: Path) -> None:
    assert run(["cp", "1:checkpoint", "."]) == 0
    assert Path("checkpoint/step").read_text() == "7\n"
    assert run(["cp", "1:checkpoint", "copy"]) == 0
    assert Path("copy/step").read_text() == "7\n"
    assert run(["cp", "1:checkpoint/step", "deep/renamed"]) == 0
    assert Path("deep/renamed").read_text() == "7\n"
    (output / "checkpoint/more").write_text("8\n")
    assert run(["cp", "1:checkpoint", "."]) == 0
    assert sorted(path.name for path in Path("checkpoint").iterdir()) == ["more", "step"]


def test_a_file_is_copied_to_a_run(output: Path) -> None:
    Path("model").mkdir()
    Path("model/weights").write_text("w")
    Path("model/latest").symlink_to("weights")
    assert run(["cp", "model", "1:"]) == 0
    assert (output / "model/weights").read_text() == "w"
    assert (output / "model/latest").readlink() == Path("weights")
    assert run(["cp", "model/weights", f"1:{output}/best"]) == 0
    assert (output / "best").read_text() == "w"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("cp", "1:nothing", "."), 4, "error: run 1 has no "),
        (("cp", "7:x", "."), 4, "error: there is no run 7"),
        (("cp", "1:x", "1:y"), 2, "error: both paths are of a run"),
        (("cp", "x", "y"), 2, "error: neither path is of a run"),
        (("cp", "missing", "1:"), 2, "error: there is no missing"),
        (("inspect", "1.worker.0"), 2, "error: 1.worker.0: all replicas of a run share one output folder"),
        (("inspect", "1", "no-such-command"), 3, "error: cannot run no-such-command: No such file"),
    ],
)
def test_an_impossible_inspect_or_cp_is_refused_with_a_message(
    output: Path, capsys: Captured, words: tuple[str, ...], code: int, message: str
) -> None:
    assert run(list(words)) == code
    assert capsys.readouterr().err.startswith(message)


def test_a_run_on_this_machine_has_no_volumes(output: Path, capsys: Captured) -> None:
    assert run(["rm", "1", "--volumes"]) == 0
    assert capsys.readouterr() == ("removed run 1\n", "there is no volume that was created for these runs\n")
