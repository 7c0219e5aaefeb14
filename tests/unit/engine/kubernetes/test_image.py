"""The name of an image depends on its content, and only a working builder is used."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from drumline.engine.kubernetes.image.builder import Builder, explain_no_builder, find_builder, is_loopback, qualified
from drumline.engine.kubernetes.image.helper import with_image_name
from drumline.engine.kubernetes.image.recipe import Recipe, write_dockerfile
from drumline.engine.kubernetes.plan_options import Image, cluster_of
from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.errors import InputError
from drumline.load.engine import known_spec_type, plan_spec
from drumline.plan.bind import bind
from drumline.plan.codec import plan_from_json, plan_to_json
from drumline.plan.types import BUILD
from drumline.spec.read import read_spec

BUILDAH = Builder("buildah", "/usr/bin/buildah")


def project(folder: Path) -> Recipe:
    (folder / "src").mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    (folder / "src/train.py").write_text("print()\n")
    return Recipe(str(folder), Image(dockerfile="Dockerfile"))


def test_the_name_of_an_image_does_not_depend_on_the_folder_of_its_content(tmp_path: Path) -> None:
    first, second = project(tmp_path / "one"), project(tmp_path / "two")
    os.utime(second.file, (1, 1))
    assert first.name("Digits 2") == second.name("Digits 2")
    assert first.name("Digits 2").startswith("localhost/drumline/digits-2:")


def test_a_registry_is_part_of_the_name_and_not_of_the_content(tmp_path: Path) -> None:
    recipe = project(tmp_path / "one")
    pushed = recipe.replace(image=recipe.image.replace(registry="registry.example/team/"))
    assert pushed.name("digits") == f"registry.example/team/digits:{recipe.digest()}"


def test_every_change_of_the_content_changes_the_name_of_the_image(tmp_path: Path) -> None:
    recipe = project(tmp_path / "one")
    known = {recipe.digest()}

    def changed() -> bool:
        before = len(known)
        known.add(recipe.digest())
        return len(known) > before

    (tmp_path / "one/src/train.py").write_text("print(1)\n")
    assert changed()
    (tmp_path / "one/src/train.py").chmod(0o755)
    assert changed()
    (tmp_path / "one/Dockerfile").write_text("FROM scratch\n")
    assert changed()
    (tmp_path / "one/src/new").write_text("")
    assert changed()
    (tmp_path / "one/.gitignore").write_text("*\n")  # which no builder heeds
    assert changed()
    (tmp_path / "one/src/train.py").write_text("print(2)\n")
    assert changed()
    assert not changed()


def test_files_that_dockerignore_excludes_do_not_change_the_name(tmp_path: Path) -> None:
    recipe = project(tmp_path / "one")
    (tmp_path / "one/.dockerignore").write_text("data/\n*.log\n")
    before = recipe.digest()
    (tmp_path / "one/data").mkdir()
    (tmp_path / "one/data/big").write_text("x")
    assert recipe.digest() == before
    (tmp_path / "one/.dockerignore").write_text("data/\n!data/big\n")
    other = recipe.digest()
    (tmp_path / "one/data/big").write_text("y")
    assert recipe.digest() != other


def test_the_error_about_a_missing_file_names_its_key_of_the_spec(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"image\.dockerfile: cannot read .*/Dockerfile: No such file"):
        Recipe(str(tmp_path), Image(dockerfile="Dockerfile")).digest()
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(InputError, match=r"image\.context: .*/gone is not a folder"):
        Recipe(str(tmp_path), Image(dockerfile="Dockerfile", context="gone")).digest()
    with pytest.raises(InputError, match=r"image\.install: cannot read .*/x\.whl"):
        Recipe(str(tmp_path), Image(base="python:3.11", install=("x.whl",))).digest()


def test_a_wheel_of_the_project_counts_with_its_content(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), Image(base="python:3.11", install=("keras", "dist/x-1-py3-none-any.whl")))
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/x-1-py3-none-any.whl").write_bytes(b"one")
    before = recipe.digest()
    (tmp_path / "dist/x-1-py3-none-any.whl").write_bytes(b"two")
    assert recipe.digest() != before


def test_the_dockerfile_that_drumline_writes() -> None:
    assert write_dockerfile("docker.io/library/python:3.11", ["tensorflow==2.16.1", "x>=1; python_version>'3'"]) == (
        "FROM docker.io/library/python:3.11\n"
        "RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir tensorflow==2.16.1"
        """ 'x>=1; python_version>'"'"'3'"'"''\n"""
    )
    assert write_dockerfile("base", ["a.whl"], ["a.whl"]) == (
        'FROM base\nCOPY ["a.whl", "/tmp/drumline-install/"]\n'
        "RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir /tmp/drumline-install/a.whl\n"
    )
    assert write_dockerfile("base", []) == "FROM base\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("python", "docker.io/library/python"),
        ("python:3.11", "docker.io/library/python:3.11"),
        ("tensorflow/tensorflow:2.16.1", "docker.io/tensorflow/tensorflow:2.16.1"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost/mine:1", "localhost/mine:1"),
        ("127.0.0.1:5000/mine:1", "127.0.0.1:5000/mine:1"),
    ],
)
def test_a_short_image_name_is_completed_as_a_cluster_does_it(name: str, meant: str) -> None:
    assert qualified(name) == meant


def test_only_a_registry_of_this_machine_needs_no_certificate() -> None:
    assert BUILDAH.push("127.0.0.1:5000/x:1") == [
        "/usr/bin/buildah",
        "push",
        "--tls-verify=false",
        "127.0.0.1:5000/x:1",
    ]
    assert BUILDAH.push("registry.example/x:1") == ["/usr/bin/buildah", "push", "registry.example/x:1"]
    assert not is_loopback("localhost/drumline/x:1")  # no registry at all: the builder's own store
    assert not is_loopback("127.0.0.1.example.com:5000/x:1")


SPEC = """
project: digits
run: python3 train.py
framework: plain
engine: {default: kubernetes, kubernetes: {image: {dockerfile: Dockerfile, registry: "registry.example/team"}}}
"""


def test_rendered_objects_name_the_image_that_would_be_built(tmp_path: Path) -> None:
    recipe = project(tmp_path / "one")
    plan = plan_spec(read_spec(SPEC.encode(), "drumline.yml", known_spec_type()).spec, run="4")
    engine = open_engine("kubernetes", Site(tmp_path / "one", tmp_path / "home", cores=2))
    text = engine.render(plan, bind(plan, asyncio.run(engine.place(plan))), "json")
    assert f"registry.example/team/digits:{recipe.digest()}" in text
    assert plan.helpers == (BUILD,)


def test_a_plan_keeps_the_name_that_its_image_had_at_launch(tmp_path: Path) -> None:
    project(tmp_path / "one")
    plan = with_image_name(
        plan_spec(read_spec(SPEC.encode(), "drumline.yml", known_spec_type()).spec, run="4"), tmp_path / "one"
    )
    again = plan_from_json(plan_to_json(plan))
    assert again == plan
    assert cluster_of(again).image.is_built
    recipe = Recipe(str(tmp_path / "one"), Image(dockerfile="Dockerfile", registry="registry.example/team"))
    assert cluster_of(again).image.name == recipe.name("digits")


def program(folder: Path, name: str, code: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_docker_without_a_running_daemon_is_not_used(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path / "bin")}
    program(tmp_path / "bin", "docker", 1)
    assert find_builder(environ) is None
    assert explain_no_builder(environ).endswith("docker is installed, but has no running daemon")
    program(tmp_path / "bin", "buildah", 0)
    assert find_builder(environ) == Builder("buildah", str(tmp_path / "bin/buildah"))
    program(tmp_path / "bin", "docker", 0)
    assert find_builder(environ) == Builder("docker", str(tmp_path / "bin/docker"))


def test_the_error_without_any_builder_lists_the_supported_ones(tmp_path: Path) -> None:
    assert explain_no_builder({"PATH": str(tmp_path)}) == (
        "images cannot be built on this machine: docker, podman and buildah are missing"
    )
