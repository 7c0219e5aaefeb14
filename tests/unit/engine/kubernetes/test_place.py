"""The addresses and folders of replicas in a cluster."""

from __future__ import annotations

import pytest

from drumline.engine.kubernetes.place import place, place_helper
from drumline.engine.kubernetes.plan_options import Image, cluster_of, with_cluster
from drumline.errors import InputError
from unit.engine.kubernetes.cluster_objects import plan_of


@pytest.mark.parametrize(
    ("engine", "options", "hosts"),
    [
        ("kubernetes", "", ("chief-0.digits-4", "worker-0.digits-4", "worker-1.digits-4")),
        (
            "kubernetes",
            "jobs: indexed",
            ("digits-4-chief-0.digits-4", "digits-4-worker-0.digits-4", "digits-4-worker-1.digits-4"),
        ),
        (
            "jobset",
            "",
            ("digits-4-chief-0-0.digits-4", "digits-4-worker-0-0.digits-4", "digits-4-worker-0-1.digits-4"),
        ),
        ("tfjob", "", ("digits-4-chief-0", "digits-4-worker-0", "digits-4-worker-1")),
    ],
)
def test_replicas_have_the_names_that_each_kind_of_object_gives_its_pods(
    engine: str, options: str, hosts: tuple[str, ...]
) -> None:
    plan = plan_of("roles: {chief: 1, worker: 2}", engine, options=options)
    assert tuple(where.host for where in place(plan).values()) == hosts
    again = tuple(where.host for where in place(plan, attempt=2).values())
    if engine == "jobset":  # it starts its line again by itself, under the same names
        assert again == hosts
    else:
        assert not set(again) & set(hosts)


@pytest.mark.parametrize(
    ("text", "options", "output", "checkpoint"),
    [
        ("", "", "/drumline/output", "/drumline/output/checkpoint"),
        ("", "output: {size: 1GiB}", "/drumline/output", "/drumline/output/checkpoint"),
        ("", "output: models", "/drumline/output/digits-4", "/drumline/output/digits-4/checkpoint"),
        ("output: runs/{{ run }}", "", "/drumline/output/runs/4", "/drumline/output/runs/4/checkpoint"),
        ("output: ../../beside", "", "/drumline/output/beside", "/drumline/output/beside/checkpoint"),
        ("output: /models/{{ run }}", "", "/models/4", "/models/4/checkpoint"),
        ("checkpoint: kept", "", "/drumline/output", "/drumline/output/kept"),
        ("output: /models\ncheckpoint: /kept", "", "/models", "/kept"),
    ],
)
def test_folders_are_on_the_output_volume(text: str, options: str, output: str, checkpoint: str) -> None:
    where = place_helper(plan_of(text, options=options))
    assert (where.output_dir, where.checkpoint_dir) == (output, checkpoint)


@pytest.mark.parametrize(
    ("text", "options", "workdir"),
    [
        ("", "", "/drumline/project"),
        ("workdir: src/deep", "", "/drumline/project/src/deep"),
        ("workdir: ../..", "", "/drumline/project"),
        ("workdir: /app", "", "/app"),
        ("", "code: false", ""),
        ("workdir: /app", "code: false", "/app"),
    ],
)
def test_commands_run_in_the_project_or_in_the_folder_of_the_image(text: str, options: str, workdir: str) -> None:
    assert place_helper(plan_of(text, options=options)).workdir == workdir


def test_a_folder_of_a_project_that_is_not_carried_is_refused() -> None:
    with pytest.raises(InputError, match="not copied"):
        place(plan_of("workdir: src", options="code: false"))


def test_the_error_about_a_missing_image_names_its_key() -> None:
    plan = plan_of("", "jobset")
    with pytest.raises(InputError, match=r"`engine\.jobset\.image` is missing"):
        place(with_cluster(plan, cluster_of(plan).replace(image=Image())))


def test_data_that_pods_cannot_share_is_refused() -> None:
    with pytest.raises(InputError, match="other pods cannot read it"):
        place(plan_of("data: {path: data, prepare: make-data}"))


def test_data_without_a_volume_is_in_the_project_or_in_the_image() -> None:
    where = place_helper(plan_of("data: [{name: a, path: a}, {name: b, path: /b}]"))
    assert where.data_dirs == ("/drumline/project/a", "/b")
