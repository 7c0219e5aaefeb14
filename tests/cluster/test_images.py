"""Images built by a real builder, and pushed to a real registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pip
import pytest

from cluster.builders import BUSYBOX, PYTHON, Store, make_store, registry
from cluster.conftest import Kubectl
from drumline.engine.kubernetes.image.recipe import Recipe
from drumline.engine.kubernetes.plan_options import Image
from drumline.record import to_dict
from scaffold.processes import kill_and_wait, lock_holder
from scaffold.waiting import wait_until
from scaffold.wheels import make_wheel


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    made = make_store(folder)
    yield made
    made.run("buildah", "rmi", "--all", "--force")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def build(store: Store, recipe: Recipe, lock: Path, name: str | None = None) -> tuple[int, str]:
    """Build an image as a run's helper does; return its exit code and log."""
    words = [sys.executable, "-P", "-m", "drumline.engine.kubernetes.image.build", name or recipe.name("test")]
    words += [str(lock / "lock"), recipe.directory, json.dumps(to_dict(recipe.image))]
    done = subprocess.run(
        words, env=store.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def own(folder: Path, text: str, registry: str | None = None) -> Recipe:
    (folder / "Dockerfile").write_text(text)
    return Recipe(str(folder), Image(dockerfile="Dockerfile", registry=registry))


def test_a_dockerfile_of_the_user_is_built_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    recipe = own(tmp_path, f"FROM {PYTHON}\nCOPY train.py /train.py\nRUN python3 /train.py\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert "trained" in log
    assert log.splitlines()[0] == f"drumline: building {recipe.name('test')} with buildah"
    code, log = build(store, recipe, tmp_path.parent)
    assert (code, log) == (0, f"drumline: {recipe.name('test')} exists already, built by buildah\n")
    (tmp_path / "train.py").write_text("print('trained anew')\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0
    assert "trained anew" in log


def test_a_failed_build_logs_the_reason_and_leaves_no_image(store: Store, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo on the way && exit 7\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 1
    assert "on the way" in log
    assert log.splitlines()[-1].startswith(
        f"drumline: cannot build {recipe.name('test')}: `buildah build` failed (exit code"
    )
    assert recipe.name("test") not in store.run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}")


def test_files_that_changed_since_the_launch_are_not_built_under_the_name_of_the_launched_image(
    store: Store, tmp_path: Path
) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\n")
    name = recipe.name("test")
    (tmp_path / "more").write_text("x")
    code, log = build(store, recipe, tmp_path.parent, name)
    assert code == 1
    assert "its files have changed since the run was launched" in log


def test_packages_are_installed_by_pip_into_the_base_image(store: Store, tmp_path: Path) -> None:
    packages = Path(pip.__file__).parent
    with_pip = own(tmp_path, f"FROM {PYTHON}\nCOPY pip /usr/lib/python3/dist-packages/pip\n")
    subprocess.run(["cp", "-r", str(packages), str(tmp_path / "pip")], check=True)
    base = with_pip.name("pip")
    assert build(store, with_pip, tmp_path.parent, base)[0] == 0
    project = tmp_path / "project"
    wheel = make_wheel(project / "dist", "metronome", code="print('tick')\n")
    recipe = Recipe(str(project), Image(base=base, install=(str(wheel.relative_to(project)),)))
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert "Successfully installed metronome-1.0" in log
    container = store.run("buildah", "from", "--pull-never", recipe.name("test")).strip()
    try:
        assert store.run("buildah", "run", container, "python3", "-c", "import metronome") == "tick\n"
    finally:
        store.run("buildah", "rm", container)


def test_an_image_is_pushed_once_to_the_configured_registry(store: Store, address: str, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo hi > /hi\n", registry=f"{address}/team")
    name = recipe.name("test")
    assert name.startswith(f"{address}/team/test:")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert f"drumline: pushed {name}" in log
    store.run("buildah", "rmi", name)
    assert build(store, recipe, tmp_path.parent) == (0, f"drumline: {name} is in the registry already\n")
    store.run("buildah", "pull", "--tls-verify=false", name)  # it is complete


def test_a_build_fails_if_the_registry_cannot_be_reached(store: Store, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo away > /away\n", registry="127.0.0.1:1/team")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 1
    assert "`buildah push` failed" in log.splitlines()[-1]
    assert "`buildah login 127.0.0.1:1`" in log.splitlines()[-1]


def test_without_a_builder_the_build_fails_and_names_the_programs_to_install(store: Store, tmp_path: Path) -> None:
    without_builder = Store({**store.environ, "PATH": str(tmp_path)})
    code, log = build(without_builder, own(tmp_path, f"FROM {BUSYBOX}\n"), tmp_path.parent)
    assert code == 1
    assert log.startswith(
        "drumline: images cannot be built on this machine: docker, podman and buildah are missing; install"
    )


def test_two_runs_with_the_same_image_build_it_once(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    recipe = own(folder, f"FROM {BUSYBOX}\nRUN echo counted; sleep 1\n")
    words = [sys.executable, "-P", "-m", "drumline.engine.kubernetes.image.build", recipe.name("test")]
    words += [str(tmp_path / "lock"), recipe.directory, json.dumps(to_dict(recipe.image))]
    logs = [tmp_path / str(number) for number in range(2)]
    running = []
    for log in logs:
        with log.open("w") as file:
            running.append(subprocess.Popen(words, env=store.environ, stdout=file, stderr=file))
    assert [each.wait() for each in running] == [0, 0]
    texts = [log.read_text() for log in logs]
    assert sum(text.count("\ncounted\n") for text in texts) == 1
    assert sum("exists already" in text for text in texts) == 1


class Launched(NamedTuple):
    """A launched run, and the output of its command."""

    code: int
    said: str
    home: Path

    def drumline(self, *words: str) -> str:
        command = [sys.executable, "-m", "drumline", *words]
        env = {**os.environ, "DRUMLINE_HOME": str(self.home)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout

    def state(self) -> str:
        """Return the state of the first run."""
        return str(json.loads(self.drumline("status", "1", "-o", "json"))["state"])


def train(folder: Path, store: Store, spec: str) -> Launched:
    (folder / "drumline.yml").write_text(spec)
    home = folder.parent / "home"
    env = {**store.environ, "DRUMLINE_HOME": str(home), "XDG_CACHE_HOME": str(folder.parent / "cache")}
    command = [sys.executable, "-m", "drumline", "train", "--on", "kubernetes"]
    # Both in one pipe, to keep their order.
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        said = running.communicate()[0].decode()
    return Launched(running.returncode, said, home)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


ALL_EXAMPLES = """
project: examples
run: python3 -c "import os; print(sorted(os.listdir('/examples')), open('/built').read())"
framework: plain
roles: {{worker: {{replicas: 2}}}}
engine:
  kubernetes:
    namespace: {namespace}
    image: {{dockerfile: Dockerfile, registry: "{address}/team"}}
    code: false
"""


def test_one_image_with_all_examples_is_built_pushed_and_run(
    kubectl: Kubectl, store: Store, address: str, project: Path
) -> None:
    examples = Path(__file__).parents[2] / "examples"
    shutil.copytree(examples, project / "examples")
    text = f"FROM {PYTHON}\nCOPY examples /examples\nRUN echo {kubectl.namespace} > /built && echo building it\n"
    (project / "Dockerfile").write_text(text)
    spec = ALL_EXAMPLES.format(namespace=kubectl.namespace, address=address)
    run = train(project, store, spec)
    assert run.code == 0, run.said
    assert "--> BUILDING" in run.said
    names = sorted(path.name for path in examples.iterdir())
    assert run.said.count(f"{names} {kubectl.namespace}") == 2
    assert "building it" in run.drumline("logs", "1.build")
    again = train(project, store, spec)
    assert again.code == 0, again.said
    assert "is in the registry already" in again.drumline("logs", "2.build")


def test_a_run_with_a_failed_build_has_failed_and_shows_the_log_of_the_build(
    kubectl: Kubectl, store: Store, project: Path
) -> None:
    (project / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo no such package && exit 9\n")
    run = train(project, store, ALL_EXAMPLES.format(namespace=kubectl.namespace, address="127.0.0.1:1"))
    assert run.code == 1
    assert "--> FAILED" in run.said
    assert "no such package" in run.drumline("logs", "1.build")
    assert "1.build" in run.drumline("status", "1")
    assert kubectl.items("jobs,pods,services") == []


def test_projects_that_cannot_be_sent_and_images_that_cannot_be_built_are_refused_before_a_run_is_created(
    kubectl: Kubectl, store: Store, project: Path
) -> None:
    spec = ALL_EXAMPLES.format(namespace=kubectl.namespace, address="127.0.0.1:1")
    run = train(project, store, spec)
    assert run.code == 2
    assert "image.dockerfile: cannot read" in run.said
    (project / "Dockerfile").write_text(f"FROM {BUSYBOX}\n")
    without_builder = Store({**store.environ, "PATH": str(project)})
    run = train(project, without_builder, spec)
    assert run.code == 3
    assert "images cannot be built on this machine" in run.said
    (project / "data").write_bytes(os.urandom(9_000_000))
    run = train(project, store, spec.replace("code: false", "code: true"))
    assert run.code == 2
    assert "  data  9.0 MB" in run.said
    assert not (run.home / "runs").exists()


CARRIED = """
project: carried
run: python3 train.py
framework: plain
roles: {{worker: {{replicas: 2}}}}
engine: {{kubernetes: {{namespace: {namespace}, image: "python:local"}}}}
"""


def test_an_edited_script_runs_in_its_current_version(kubectl: Kubectl, store: Store, project: Path) -> None:
    spec = CARRIED.format(namespace=kubectl.namespace)
    (project / ".gitignore").write_text("big/\n")
    (project / "big").mkdir()
    (project / "big/data").write_bytes(os.urandom(9_000_000))
    (project / "lib").mkdir()
    (project / "outside").symlink_to("/etc/hostname")
    for number in (1, 2):
        (project / "lib/words.py").write_text(f"TEXT = 'edited {number}'\n")
        (project / "train.py").write_text(
            "import os, drumline.runtime as r; from lib.words import TEXT\n"
            "print(TEXT, r.role(), r.index(), sorted(os.listdir('.')), flush=True)\n"
        )
        run = train(project, store, spec)
        assert run.code == 0, run.said
        for index in (0, 1):
            assert f"edited {number} worker {index} ['.gitignore', 'drumline.yml', 'lib', 'train.py']" in run.said
        assert "Syncing project (" in run.said
        assert "4 files)... done" in run.said
        assert "Warning: outside is left out: it points out of the project, to /etc/hostname" in run.said


def launch(folder: Path, store: Store, spec: str) -> Launched:
    """Launch a run in the background with an image that builds slowly."""
    (folder / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo slowly; until [ -e /go ]; do sleep 0.1; done\n")
    (folder / "drumline.yml").write_text(spec)
    home = folder.parent / "home"
    env = {**store.environ, "DRUMLINE_HOME": str(home), "XDG_CACHE_HOME": str(folder.parent / "cache")}
    command = [sys.executable, "-m", "drumline", "train", "--on", "kubernetes", "-d"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    run = Launched(done.returncode, done.stderr, home)
    wait_until(lambda: "slowly" in run.drumline("logs", "1.build"))
    return run


def builders(folder: Path) -> list[str]:
    """Return the processes that build in this folder."""
    found = subprocess.run(["pgrep", "-af", f"build.*{folder}"], capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "pgrep" not in line]


def test_a_run_that_is_killed_while_its_image_is_built_leaves_nothing(
    kubectl: Kubectl, store: Store, project: Path
) -> None:
    run = launch(project, store, ALL_EXAMPLES.format(namespace=kubectl.namespace, address="127.0.0.1:1"))
    assert run.state() == "BUILDING"
    assert builders(project)
    run.drumline("kill", "1")
    assert run.state() == "KILLED"
    assert builders(project) == []
    assert kubectl.items("jobs,pods,services") == []


def test_a_new_supervisor_adopts_the_running_build(kubectl: Kubectl, store: Store, project: Path) -> None:
    run = launch(project, store, ALL_EXAMPLES.format(namespace=kubectl.namespace, address="127.0.0.1:1"))
    before = builders(project)
    assert before
    kill_and_wait(wait_until(lambda: lock_holder(run.home / "runs/1/supervisor.lock")))
    run.drumline("supervise", "1")
    assert builders(project) == before
    run.drumline("kill", "1")
    assert run.state() == "KILLED"
    assert builders(project) == []
