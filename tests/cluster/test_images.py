"""Images built by a real builder, and pushed to a real registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from cluster.builders import BUSYBOX, PYTHON, Store, make_store, registry
from drumline.engine.kubernetes.image.recipe import Recipe
from wheels import make_wheel


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
    """Build as a run's helper does; return its exit code and its log."""
    words = [sys.executable, "-P", "-m", "drumline.engine.kubernetes.image.build", name or recipe.name("test")]
    words += [str(lock / "lock"), json.dumps(recipe._asdict())]
    done = subprocess.run(
        words, env=store.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def own(folder: Path, text: str, registry: str | None = None) -> Recipe:
    (folder / "Dockerfile").write_text(text)
    return Recipe(str(folder), dockerfile="Dockerfile", registry=registry)


def test_a_file_of_the_users_is_built_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    recipe = own(tmp_path, f"FROM {PYTHON}\nCOPY train.py /train.py\nRUN python3 /train.py\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert "trained" in log
    assert log.splitlines()[0] == f"drumline: building {recipe.name('test')} with buildah"
    code, log = build(store, recipe, tmp_path.parent)
    assert (code, log) == (0, f"drumline: {recipe.name('test')} is there already, built by buildah\n")
    (tmp_path / "train.py").write_text("print('trained anew')\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0
    assert "trained anew" in log


def test_a_build_that_fails_says_why_and_leaves_no_image(store: Store, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo on the way && exit 7\n")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 1
    assert "on the way" in log
    assert log.splitlines()[-1].startswith(
        f"drumline: cannot build {recipe.name('test')}: `buildah build` failed (exit code"
    )
    assert recipe.name("test") not in store.run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}")


def test_files_that_changed_since_the_launch_are_not_built_under_its_name(store: Store, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\n")
    name = recipe.name("test")
    (tmp_path / "more").write_text("x")
    code, log = build(store, recipe, tmp_path.parent, name)
    assert code == 1
    assert "its files have changed since the run was launched" in log


def test_a_base_gets_what_pip_installs(store: Store, tmp_path: Path) -> None:
    packages = Path(pip.__file__).parent
    with_pip = own(tmp_path, f"FROM {PYTHON}\nCOPY pip /usr/lib/python3/dist-packages/pip\n")
    subprocess.run(["cp", "-r", str(packages), str(tmp_path / "pip")], check=True)
    base = with_pip.name("pip")
    assert build(store, with_pip, tmp_path.parent, base)[0] == 0
    project = tmp_path / "project"
    wheel = make_wheel(project / "dist", "metronome", code="print('tick')\n")
    recipe = Recipe(str(project), base=base, install=(str(wheel.relative_to(project)),))
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert "Successfully installed metronome-1.0" in log
    container = store.run("buildah", "from", "--pull-never", recipe.name("test")).strip()
    try:
        assert store.run("buildah", "run", container, "python3", "-c", "import metronome") == "tick\n"
    finally:
        store.run("buildah", "rm", container)


def test_an_image_goes_to_the_registry_that_is_named_and_only_once(store: Store, address: str, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo hi > /hi\n", registry=f"{address}/team")
    name = recipe.name("test")
    assert name.startswith(f"{address}/team/test:")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 0, log
    assert f"drumline: pushed {name}" in log
    store.run("buildah", "rmi", name)
    assert build(store, recipe, tmp_path.parent) == (0, f"drumline: {name} is in the registry already\n")
    store.run("buildah", "pull", "--tls-verify=false", name)  # it is whole


def test_a_registry_that_is_away_is_a_build_that_failed(store: Store, tmp_path: Path) -> None:
    recipe = own(tmp_path, f"FROM {BUSYBOX}\nRUN echo away > /away\n", registry="127.0.0.1:1/team")
    code, log = build(store, recipe, tmp_path.parent)
    assert code == 1
    assert "`buildah push` failed" in log.splitlines()[-1]
    assert "`buildah login 127.0.0.1:1`" in log.splitlines()[-1]


def test_without_a_builder_it_says_what_to_install(store: Store, tmp_path: Path) -> None:
    nobody = Store({**store.environ, "PATH": str(tmp_path)})
    code, log = build(nobody, own(tmp_path, f"FROM {BUSYBOX}\n"), tmp_path.parent)
    assert code == 1
    assert log.startswith(
        "drumline: nothing on this machine builds images: there is no docker, podman or buildah; install"
    )


def test_two_runs_that_want_the_same_image_build_it_once(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    recipe = own(folder, f"FROM {BUSYBOX}\nRUN echo counted; sleep 1\n")
    words = [sys.executable, "-P", "-m", "drumline.engine.kubernetes.image.build", recipe.name("test")]
    words += [str(tmp_path / "lock"), json.dumps(recipe._asdict())]
    logs = [tmp_path / str(number) for number in range(2)]
    running = []
    for log in logs:
        with log.open("w") as file:
            running.append(subprocess.Popen(words, env=store.environ, stdout=file, stderr=file))
    assert [each.wait() for each in running] == [0, 0]
    texts = [log.read_text() for log in logs]
    assert sum(text.count("\ncounted\n") for text in texts) == 1
    assert sum("is there already" in text for text in texts) == 1
