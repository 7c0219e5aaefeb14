"""Event files of TensorBoard are found without reading the whole of a large folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.store.tfevents import has_summaries
from scaffold.summaries import write_scalars


@pytest.mark.parametrize("where", ["", "summaries", "summaries/train", "a/b/c/d/e"])
def test_event_files_are_found_in_nested_folders(where: str, tmp_path: Path) -> None:
    assert not has_summaries(tmp_path)
    (tmp_path / "model.keras").touch()
    (tmp_path / "checkpoint").mkdir()
    assert not has_summaries(tmp_path)
    write_scalars(tmp_path / where, "loss", [1.0])
    assert has_summaries(tmp_path)


def test_a_missing_folder_and_a_file_have_no_summaries(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not has_summaries(tmp_path / "nowhere")
    assert not has_summaries(tmp_path / "file")
    assert not has_summaries("")


def test_folders_are_searched_breadth_first_and_only_up_to_the_limit(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / "deep" / str(number)).mkdir(parents=True)
    write_scalars(tmp_path / "deep" / "3", "loss", [1.0])
    assert has_summaries(tmp_path)
    assert not has_summaries(tmp_path, most=20)
    write_scalars(tmp_path / "summaries", "loss", [1.0])
    assert has_summaries(tmp_path / "summaries", most=20)


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    write_scalars(tmp_path / "elsewhere", "loss", [1.0])
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "output" / "round").symlink_to(tmp_path / "output")
    assert not has_summaries(tmp_path / "output")
