"""Requirements are normalized to lines that mean the same later and on other machines."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from drumline.spec.requirements import BadRequirement, read_requirements


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==1.26.4",
        "numpy >= 1.2, < 2",
        "tensorflow[and-cuda]==2.15.1",
        "tensorflow-cpu==2.15.1; sys_platform == 'linux'",
        "six==1.16.0 --hash=sha256:abc --hash=sha256:def",
        "snare @ https://example.org/snare-1.0-py3-none-any.whl",
        "git+https://example.org/snare.git@v1",
        "https://example.org/snare-1.0.tar.gz",
        "--no-index",
        "--index-url https://${TOKEN}@example.org/simple",
        "--pre",
    ],
)
def test_a_requirement_that_pip_accepts_is_kept_unchanged(tmp_path: Path, line: str) -> None:
    assert read_requirements([line], tmp_path) == (line,)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tensorflow 2.15", "is no requirement"),
        ("numpy=1.2", "is no requirement"),
        ("", "is no requirement"),
        ("{{ name }}", "is no requirement"),
        ("numpy\nsix", "more than a line"),
        ("-e .", "an environment is shared and kept"),
        ("--editable=src", "an environment is shared and kept"),
        ("--target /usr", "has no meaning in a list of requirements"),
        (".", "is a folder"),
        ("./package", "cannot be read: No such file"),
        ("-r none.txt", "there is no file"),
        ("-r .", "cannot be read: Is a directory"),
    ],
)
def test_an_unsupported_requirement_is_refused_with_its_position_in_the_list(
    tmp_path: Path, line: str, words: str
) -> None:
    with pytest.raises(BadRequirement, match=words) as caught:
        read_requirements(["numpy", line], tmp_path)
    assert caught.value.index == 1


def test_a_requirements_file_is_read_without_comments_and_with_the_files_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "more.txt").write_text("snare==2\n-f wheels\n")
    (tmp_path / "limits.txt").write_text("six<2  # not the next\n")
    (tmp_path / "all.txt").write_text(
        "\ufeff# all of it\nnumpy # and its friends\n\nsix==1.16.0 \\\n    --hash=sha256:abc\r\n-r below/more.txt\n"
        "--constraint=limits.txt\nhttps://example.org/x-1.zip#sha256=abc\n"
    )
    assert read_requirements("all.txt", tmp_path) == (
        "numpy",
        "six==1.16.0  --hash=sha256:abc",
        "snare==2",
        f"--find-links {tmp_path}/below/wheels",
        "-c six<2",
        "https://example.org/x-1.zip#sha256=abc",
    )


def test_a_wheel_is_identified_by_its_content(tmp_path: Path) -> None:
    for file in ("snare-1-py3-none-any.whl", "snare-1.0.tar.gz"):
        wheel = tmp_path / file
        for content in (b"one", b"another"):
            wheel.write_bytes(content)
            expected = (f"snare @ {wheel.as_uri()}#sha256={sha256(content).hexdigest()}",)
            assert read_requirements([wheel.name], tmp_path) == expected
            assert read_requirements([f"./{wheel.name}"], tmp_path) == expected


def test_a_bad_line_of_a_file_is_named_with_its_file_and_number(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("numpy\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("# more\nsix==1.0 \\\n  --hash=sha256:a\nwhat is this\n")
    with pytest.raises(BadRequirement, match=r"^in .*more\.txt, line 4: `what is this` is no requirement"):
        read_requirements("all.txt", tmp_path)


def test_a_requirements_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("-r all.txt\n")
    with pytest.raises(BadRequirement, match="includes itself"):
        read_requirements("all.txt", tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b", b"x" * (1 << 21)])
def test_a_requirements_file_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "all.txt").write_bytes(content)
    with pytest.raises(BadRequirement, match=r"cannot be read: not UTF-8|is no list of requirements"):
        read_requirements("all.txt", tmp_path)


def test_a_pipe_or_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "all.txt")
    with pytest.raises(BadRequirement, match=r"all\.txt cannot be read: not a regular file"):
        read_requirements("all.txt", tmp_path)
    for device in ("/dev/zero", "./all.txt"):
        with pytest.raises(BadRequirement, match="cannot be read: not a regular file"):
            read_requirements([device], tmp_path)


def test_a_wheel_of_an_impossible_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "snare-1.0-py3-none-any.whl").open("wb") as wheel:
        wheel.truncate(1 << 40)
    with pytest.raises(BadRequirement, match="is larger than any wheel"):
        read_requirements(["./snare-1.0-py3-none-any.whl"], tmp_path)


def test_too_many_included_requirements_files_are_refused(tmp_path: Path) -> None:
    """Each of eight files includes the next one a thousand times: without a limit this takes years."""
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n" * 1000)
    (tmp_path / "8.txt").write_text("six\n")
    with pytest.raises(BadRequirement, match="too many, or too long"):
        read_requirements("0.txt", tmp_path)


@pytest.mark.parametrize(
    "line", ["a" + " " * 100_000 + "!", "a[" + "]" * 100_000, "a" * 100_000 + "!", "a@" + " " * 9999]
)
def test_an_invalid_requirement_is_refused_without_backtracking(tmp_path: Path, line: str) -> None:
    """With a pattern that backtracks, the first line takes years."""
    with pytest.raises(BadRequirement, match="is no requirement"):
        read_requirements([line], tmp_path)
