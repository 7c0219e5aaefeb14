"""Frequent commands load few modules; checked by names, which do not depend on the load of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drumline.store.summary import record_run
from scaffold.past_runs import finished, write_run

HEAVY = {
    "asyncio",
    "asyncssh",
    "importlib.metadata",
    "lightkube",
    "logging",
    "msgspec",
    "psutil",
    "rich",
    "starlette",
    "yaml",
}
CORE = ("drumline.engine", "drumline.plan", "drumline.spec")

TELL_MODULES = """
import sys
before = set(sys.modules)
from drumline.cli import run
code = run(sys.argv[1:])
print("code", code, *sorted(set(sys.modules) - before), file=sys.stderr)
"""


def modules_of(argv: list[str], home: Path) -> set[str]:
    """Return the modules that a command loads, without those of a bare interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", TELL_MODULES, *argv],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "DRUMLINE_HOME": str(home)},
    )
    _, code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0"
    assert {"drumline.cli", "click"} <= set(modules)
    return set(modules)


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("--help", CORE),
        ("--version", CORE),
        ("completion bash", CORE),
        ("completion zsh", CORE),
        ("completion fish", CORE),
        ("help", CORE),
        ("help ids", CORE),
        ("help exit-codes", CORE),
        ("status", ("drumline.engine", "drumline.spec")),
    ],
)
def test_a_light_command_loads_nothing_heavy(command: str, forbidden: tuple[str, ...], tmp_path: Path) -> None:
    modules = modules_of(command.split(), tmp_path)
    assert not modules & HEAVY
    assert not [module for module in modules if module.startswith(forbidden)]


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("status -a", ("drumline.engine", "drumline.spec", "subprocess")),
        ("status -a -n 0 -o json", ("drumline.engine", "drumline.spec", "subprocess")),
    ],
)
def test_commands_about_finished_runs_load_only_needed_modules(
    command: str, forbidden: tuple[str, ...], tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        record_run(write_run(tmp_path, number, finished()))
    modules = modules_of(command.split(), tmp_path)
    assert not modules & HEAVY
    assert not [module for module in modules if module.startswith(forbidden)]


@pytest.mark.parametrize(
    "command", ["status 1", "status 1.chief -o json", "events 1", "monitor 1", "monitor 1 --history"]
)
def test_a_command_about_one_run_loads_no_engine_and_no_optional_library(command: str, tmp_path: Path) -> None:
    record_run(write_run(tmp_path, 1, finished()))
    modules = modules_of(command.split(), tmp_path)
    assert not modules & {"asyncssh", "lightkube", "msgspec", "pynvml", "yaml"}
    engines = ("drumline.engine.local", "drumline.engine.ssh", "drumline.engine.kubernetes")
    assert not [module for module in modules if module.startswith(engines)]


def test_loaded_modules_are_detected(tmp_path: Path) -> None:
    (tmp_path / "drumline.yml").write_text("project: digits\nrun: python train.py\n")
    modules = modules_of(["check"], tmp_path)
    assert {"yaml", "msgspec"} <= modules
    assert {module for module in CORE if module not in modules} == set()


def test_a_gang_is_planned_without_the_modules_that_start_it(tmp_path: Path) -> None:
    (tmp_path / "drumline.yml").write_text("project: digits\nrun: python train.py\nresources: {memory: 1GiB}\n")
    modules = modules_of(["check"], tmp_path)
    assert "drumline.engine.local.place" in modules
    assert "drumline.engine.local.processes" not in modules
    assert "drumline.engine.local.cgroup" not in modules


@pytest.mark.parametrize("command", ["check", "render", "render --run-id 4 -o json"])
def test_objects_for_a_cluster_are_made_without_loading_a_client(command: str, tmp_path: Path) -> None:
    (tmp_path / "drumline.yml").write_text("project: digits\nrun: python train.py\nengine: {kubernetes: {image: a}}\n")
    modules = modules_of(command.split(), tmp_path)
    assert "drumline.engine.kubernetes.place" in modules
    assert not modules & {"httpx", "lightkube"}


def test_training_on_this_machine_imports_no_module_for_clusters(tmp_path: Path) -> None:
    (tmp_path / "drumline.yml").write_text("project: digits\nrun: python train.py\n")
    modules = modules_of(["check"], tmp_path)
    kubernetes = {module.rpartition(".")[2] for module in modules if "kubernetes" in module}
    assert kubernetes == {"kubernetes", "options", "plan_options"}
    assert not modules & {"asyncssh", "importlib.metadata", "lightkube"}


def test_only_a_template_loads_jinja2(tmp_path: Path) -> None:
    (tmp_path / "riseml.yml").write_text("project: digits\ntrain: {run: python train.py}\n")
    modules = modules_of(["check"], tmp_path)
    assert "drumline.spec.dialect.riseml" in modules
    assert "jinja2" not in modules
