"""Data folders: private files, secrets, several users, and simultaneous launches."""

from __future__ import annotations

import stat
from pathlib import Path

from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

SECRET = "wq7-never-on-disk-7qw"
WAITING = "run: until [ -e $HERE/go ]; do sleep 0.05; done"


def everything(folder: Path) -> list[Path]:
    return [folder, *(path for path in folder.rglob("*"))]


def test_files_of_a_run_are_accessible_to_its_user_only(workspace: Workspace) -> None:
    workspace.command_prefix = ("sh", "-c", 'umask 000; exec "$@"', "sh")
    run = workspace.train("run: echo said; mkdir $OUTPUT_DIR/theirs; exit $((1 - DRUMLINE_ATTEMPT))\nrestart: 1")
    run.wait_for(Phase.FINISHED)
    workspace.run("status")
    wait_until(lambda: not workspace.processes())  # a process may still look up the revision and record it
    for path in everything(workspace.home):
        if path.name == "theirs":
            assert stat.S_IMODE(path.stat().st_mode) == 0o777  # a replica's own umask is its user's
        elif path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        else:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_an_existing_home_keeps_its_mode(workspace: Workspace) -> None:
    workspace.home.mkdir(mode=0o755)
    workspace.train("run: 'true'").wait_for(Phase.FINISHED)
    assert stat.S_IMODE(workspace.home.stat().st_mode) == 0o755
    assert stat.S_IMODE((workspace.home / "runs").stat().st_mode) == 0o700


def test_a_secret_reaches_its_replica_and_no_disk(workspace: Workspace) -> None:
    spec = 'run: test "$TOKEN" = "$EXPECTED"; exit $?\nenv: {TOKEN: {from: MY_TOKEN}}'
    run = workspace.train(spec, env={"MY_TOKEN": SECRET, "EXPECTED": SECRET})
    run.wait_for(Phase.FINISHED)
    wait_until(lambda: not workspace.processes())
    holding = [path for path in everything(workspace.path) if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []


def test_a_secret_that_is_not_set_is_reported_before_a_run_is_created(workspace: Workspace) -> None:
    workspace.write_spec("run: 'true'\nenv: {TOKEN: {from: MY_TOKEN}}")
    answer = workspace.run("train")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "error: worker.0 needs the secret TOKEN from the variable MY_TOKEN, which is not set",
        "hint: set it where you launch: `export MY_TOKEN=…`",
    ]
    assert workspace.runs() == []


def test_a_supervisor_without_the_secrets_watches_running_replicas_and_starts_none(workspace: Workspace) -> None:
    spec = "run: until [ -e $HERE/go ]; do sleep 0.05; done; exit 1\nenv: {TOKEN: {from: MY_TOKEN}}\nrestart: 1"
    run = workspace.train(spec, env={"MY_TOKEN": SECRET})
    run.wait_started()
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    wait_until(run.supervisor)
    assert run.state.ending is None
    workspace.write("go", "")
    state = run.wait_for(Phase.FAILED)
    assert state.attempt == 1
    assert "needs the secret TOKEN from the variable MY_TOKEN" in run.cause.exit.message


def test_twenty_simultaneous_launches_have_different_numbers_and_all_finish(workspace: Workspace) -> None:
    workspace.write_spec("run: echo $DRUMLINE_RUN >> $HERE/ran")
    commands = [workspace.command("train", "-d") for _ in range(20)]
    answers = [command.communicate(timeout=PATIENCE_SECONDS) for command in commands]
    assert [command.returncode for command in commands] == [0] * 20, answers
    numbers = sorted(int(out) for out, _ in answers)
    assert numbers == list(range(1, 21))
    for number in numbers:
        Run(workspace, str(number)).wait_for(Phase.FINISHED)
    assert sorted(workspace.numbers("ran")) == numbers


def test_the_number_of_a_removed_run_is_not_used_for_another_run(workspace: Workspace) -> None:
    for number in ("1", "2"):
        run = workspace.train("run: 'true'")
        assert run.id == number
        run.wait_for(Phase.FINISHED)
        assert workspace.run("rm", number).code == 0


def test_a_home_that_cannot_be_created_is_named(workspace: Workspace) -> None:
    workspace.write("file", "")
    workspace.write_spec("run: 'true'")
    answer = workspace.run("train", env={"DRUMLINE_HOME": str(workspace.project / "file" / "home")})
    assert answer.code == 3
    assert f"cannot keep runs in {workspace.project}/file/home: Not a directory" in answer.err


def test_a_home_without_read_or_write_permission_is_named_by_every_command(stranger: Workspace) -> None:
    stranger.write_spec("run: 'true'")
    stranger.home.mkdir(mode=0o755)  # root's
    (stranger.home / "runs" / "1").mkdir(parents=True)
    (stranger.home / "runs").chmod(0o700)
    for words in (["train"], ["logs", "1"], ["kill", "1"], ["wait", "1"], ["supervise", "1"], ["status"]):
        answer = stranger.run(*words)
        assert answer.code in (3, 4), words
        assert answer.err.startswith("error: "), words
    (stranger.home / "runs" / "1").rmdir()


def test_a_run_without_read_permission_is_named(stranger: Workspace) -> None:
    run = stranger.train("run: 'true'")
    run.wait_for(Phase.FINISHED)
    for name in ("events.jsonl", "plan.json"):
        (run.path / name).chmod(0)
        for words in (["logs", "1"], ["kill", "1"], ["wait", "1"], ["supervise", "1"], ["status", "1"]):
            answer = stranger.run(*words)
            assert answer.code == 3, (words, answer)
            assert "Permission denied" in answer.err, words
        (run.path / name).chmod(0o600)


def test_two_users_neither_see_nor_disturb_each_other(workspace: Workspace, stranger: Workspace) -> None:
    runs = [workspace.train(WAITING), stranger.train(WAITING)]
    assert [run.id for run in runs] == ["1", "1"]
    for run in runs:
        run.wait_started()
    first, second = (_ports(run) for run in runs)
    assert not set(first) & set(second)
    denied = stranger.run("logs", "1", env={"DRUMLINE_HOME": str(workspace.home)})
    assert denied.code in (3, 4)
    assert workspace.run("kill", "1").code == 0
    stranger.write("go", "")
    runs[1].wait_for(Phase.FINISHED)


def _ports(run: Run) -> list[str]:
    return [
        address.rpartition(":")[2]
        for event in run.events
        if isinstance(event, AttemptPlaced)
        for address in event.addresses
    ]
