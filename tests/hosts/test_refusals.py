"""What is wrong with a host is said before there is a run, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.run.state import Phase
from hosts.world import World
from integration.local.runs import Answer, House

SPEC = "run: echo hello\nroles: {worker: 2}\n"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two hosts with little disk."""
    with World(2, disk="8m") as world:
        yield world


def refused(house: House, *words: str, code: int = 2, spec: str = SPEC) -> Answer:
    """What `train` says that starts nothing; the code is 2 where something has to be mended first."""
    house.write_spec(spec)
    answer = house.run("train", *(words or ("--hosts", "h1,h2")))
    assert answer.code == code, answer
    assert not house.runs()
    return answer


def test_a_host_whose_key_has_changed(house: House, world: World) -> None:
    world.new_host_key("h2")
    answer = refused(house)
    assert "the key of h2 is another than the one in" in answer.err
    assert f"ssh-keygen -f {world.known_hosts} -R 10.89.0.12" in answer.err
    world.trust(*world.names)
    assert house.run("train", "--hosts", "h1,h2").code == 0


def test_a_host_whose_key_nobody_knows(house: House, world: World) -> None:
    world.trust("h1")
    answer = refused(house)
    world.trust(*world.names)
    assert "the key of h2 is not known" in answer.err
    assert f"ssh-keyscan 10.89.0.12 >> {world.known_hosts}" in answer.err


def test_a_user_who_is_not_let_in(house: House) -> None:
    answer = refused(house, "--hosts", "h1,somebody@h2")
    assert "does not let somebody in" in answer.err
    assert "ssh-copy-id" in answer.err


def test_a_host_that_is_switched_off(house: House, world: World) -> None:
    world.link("h2", up=False)
    answer = refused(house, code=3)
    assert "h2" in answer.err
    assert "`ssh h2 true`" in answer.err


def test_a_host_without_an_sshd(house: House, world: World) -> None:
    world.kill_sshd("h2")
    answer = refused(house, code=3)
    world.start_sshd("h2")
    assert "h2 cannot be reached: connection refused" in answer.err


def test_all_that_is_wrong_with_several_hosts_is_said_at_once(house: House, world: World) -> None:
    world.trust("h2")
    world.kill_sshd("h2")
    answer = refused(house)
    world.start_sshd("h2")
    world.trust(*world.names)
    assert answer.err.splitlines() == [
        "error: the key of h1 is not known",
        f"hint: `ssh-keyscan 10.89.0.11 >> {world.known_hosts}` adds it, once you know that it is the host's own",
        "error: h2 cannot be reached: connection refused",
        "hint: try `ssh h2 true`",
    ]


def test_a_host_without_the_python_that_is_named(house: House, world: World) -> None:
    house.write_spec(f"{SPEC}engine: {{ssh: {{hosts: [h1, h2], python: python3.99}}}}\n")
    answer = house.run("train")
    assert answer.code == 2
    assert "python3.99" in answer.err
    assert "ssh: {python: PATH}" in answer.err


def test_a_host_with_an_old_python_is_told_which(house: House, world: World) -> None:
    pretend = "import sys; sys.version_info = (3, 9, 18); code = sys.argv.pop(1); exec(code)"
    for name in world.names:
        path = world.path(name, "/run/old")
        path.write_text(f'#!/bin/sh\nwhile [ "$1" != -c ]; do shift; done; shift\nexec python3 -c \'{pretend}\' "$@"\n')
        path.chmod(0o755)
    house.write_spec(f"{SPEC}engine: {{ssh: {{hosts: [h1, h2], python: /run/old}}}}\n")
    answer = house.run("train")
    assert answer.code == 2
    assert "Python 3.9.18" in answer.err
    assert "3.11 or newer" in answer.err


def test_a_host_with_a_full_disk(house: House, world: World) -> None:
    world.run("h2", "rm", "-rf", "/home/me/.cache", "/home/me/.local")  # that of the tests before
    world.fill_disk("h2")
    answer = refused(house)
    world.empty_disk("h2")
    assert "h2" in answer.err
    assert "No space left on device" in answer.err
    assert "ssh: {folder: PATH}" in answer.err


def test_a_disk_that_fills_up_under_a_run_ends_it_with_the_hosts_name(house: House, world: World) -> None:
    house.write(
        "train.py",
        """
        import os

        model = os.environ["OUTPUT_DIR"] + "/model"
        try:
            open(model, "wb").write(bytes(64 << 20))
        except OSError:
            os.unlink(model)  # or there would be no room for what it says
            raise
        """,
    )
    house.write_spec("run: python3 train.py\nroles: {worker: 2}\nengine: {ssh: [h1, h2]}\n")
    answer = house.run("train")
    assert answer.code == 1
    assert "No space left on device" in answer.out
    (run,) = house.runs()
    run.wait_for(Phase.FAILED)  # and nobody of it is on a host any more
    assert run.cause.failure in ("crash", "early")
    for name in world.names:
        world.run(name, "sh", "-c", "rm -rf /home/me/.local/share/drumline/runs")


def test_a_host_that_has_no_python_at_all(house: House, tmp_path: Path) -> None:
    with World(2) as bare:
        bare.without_python("h2")
        house.env |= bare.env
        answer = refused(house)
    assert "h2 has no Python that works as `python3`" in answer.err
    assert "install Python 3.11 or newer there" in answer.err
