"""Where the output of a run comes from."""

from __future__ import annotations

import pytest

from drumline.run.origin import Origin, fetched_folder


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("out", "/project/out"),
        ("a/../out", "/project/out"),
        ("/project/out", "/project/out"),
        (None, None),
        (".", None),
        ("../out", None),
        ("/project2", None),
    ],
)
def test_output_is_fetched_into_a_folder_within_the_project_and_no_other(path: str | None, folder: str | None) -> None:
    assert fetched_folder("/project/", path) == folder


def test_an_output_of_which_nothing_is_fetched_is_shared() -> None:
    assert Origin("h1", "/out").is_shared
    assert not Origin("h1", "/out", {"out": "/out"}).is_shared
