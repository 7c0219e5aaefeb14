"""Verbs of an agent that need no open run, in requests to a real agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drumline.engine.agent.answers import Done, FactsAnswer, FilesAnswer, PackagesAnswer
from drumline.engine.agent.client import Agent
from drumline.errors import EngineError
from unit.engine.agent.host import Host, ask, listing


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def put(host: Host, source: dict[str, str], target: str) -> dict[str, object]:
    """Put `new` of a scratch folder at a target in the output; return the content of the output after that."""
    output, scratch = host.home / "output", host.home / "output.put"
    for name, text in source.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text(text)
    (host.home / "output.put.lock").touch()
    message = {"do": "put", "scratch": str(scratch), "name": "new", "target": str(output / target)}
    ask(host, lambda agent: agent.ask(message, Done))
    assert sorted(path.name for path in host.home.iterdir()) == [".cache", "output"]
    return listing(output)


def test_a_file_is_put_under_a_name_or_into_a_folder(host: Host) -> None:
    (host.home / "output/old").mkdir(parents=True)
    assert put(host, {"new": "1"}, "a/b")["a/b"] == (b"1", False)
    assert put(host, {"new": "2"}, "a/b")["a/b"] == (b"2", False)
    assert put(host, {"new": "3"}, "old")["old/new"] == (b"3", False)


def test_a_folder_is_merged_into_an_existing_one_of_its_name(host: Host) -> None:
    (host.home / "output/new").mkdir(parents=True)
    (host.home / "output/new/kept").write_text("0")
    found = put(host, {"new/x/y": "1"}, ".")
    assert found == {
        "new": "folder",
        "new/kept": (b"0", False),
        "new/x": "folder",
        "new/x/y": (b"1", False),
    }


def test_the_error_for_a_failed_put_names_the_path_and_the_host(host: Host) -> None:
    (host.home / "output").mkdir()
    (host.home / "output/file").touch()
    with pytest.raises(EngineError, match=r"output/file.* cannot be used on gpu1"):
        put(host, {"new": "1"}, "file/inner")


def test_facts_and_installed_packages_of_a_host_are_answered(host: Host) -> None:
    async def questions(agent: Agent) -> tuple[FactsAnswer, PackagesAnswer]:
        facts = await agent.ask({"do": "facts", "folder": "~/not/there"}, FactsAnswer)
        asked = {"do": "packages", "python": sys.executable, "packages": ["pytest", "no-such-package"]}
        return facts, await agent.ask(asked, PackagesAnswer)

    facts, packages = ask(host, questions)
    assert facts.base == f"{host.home}/not/there"
    assert facts.is_writable
    assert facts.cpus > 0
    assert packages.packages == {"pytest": pytest.__version__}


def test_files_are_written_read_and_removed(host: Host) -> None:
    path = str(host.home / "note")

    async def questions(agent: Agent) -> tuple[FilesAnswer, FilesAnswer]:
        await agent.ask({"do": "write", "path": path, "text": "h1"}, Done)
        before = await agent.ask({"do": "read", "paths": [path], "seconds": 0}, FilesAnswer)
        await agent.ask({"do": "remove", "paths": [path, f"{path}2"]}, Done)
        return before, await agent.ask({"do": "read", "paths": [path], "seconds": 0}, FilesAnswer)

    before, after = ask(host, questions)
    assert (before.found, after.found) == ({path: "h1"}, {})


@pytest.mark.parametrize("verb", ["no-such-verb", "_answer", "__init__"])
def test_an_agent_answers_an_unknown_request_with_an_error_and_continues(host: Host, verb: str) -> None:
    async def questions(agent: Agent) -> FilesAnswer:
        with pytest.raises(EngineError, match="gpu1: KeyError"):
            await agent.ask({"do": verb}, Done)
        return await agent.ask({"do": "read", "paths": [], "seconds": 0}, FilesAnswer)

    assert ask(host, questions).found == {}
