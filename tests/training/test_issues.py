"""The data of `examples/issue_summarization`: downloaded completely despite interruptions, and numbered once."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from scaffold.environments import ROOT
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.waiting import wait_until
from training.loopback import Loopback, serving

MADE = {"github_issues.csv", "held_out.txt", "train.txt", "vocabulary.json"}


def make_csv(count: int = 4000) -> bytes:
    """Return issues in the format of the data set; their texts have commas, quotes and several lines."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["issue_url", "issue_title", "body"])
    for number in range(count):
        table.writerow(["https://example.com", f"Title {number % 7}", f'Body, "quoted"\n and of two lines: é {number}'])
    return text.getvalue().encode()


class Preparation(NamedTuple):
    """A folder in which data is prepared."""

    here: Path

    @property
    def data(self) -> Path:
        return self.here / "data"

    def start(self, *words: str) -> subprocess.Popen[str]:
        script = ROOT / "examples" / "issue_summarization" / "prepare.py"
        env = {"PATH": os.environ["PATH"], "DATA_DIR": str(self.data), "no_proxy": "127.0.0.1"}
        return subprocess.Popen(
            [sys.executable, script, *words],
            cwd=self.here,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        with self.start(*words) as process:
            printed, _ = process.communicate(timeout=GANG_SECONDS)
        assert process.returncode == code, printed
        return printed

    def fetched(self) -> bytes:
        assert {path.name for path in self.data.iterdir()} == MADE
        return (self.data / "github_issues.csv").read_bytes()


@pytest.fixture
def preparation(tmp_path: Path) -> Preparation:
    return Preparation(tmp_path)


@pytest.fixture
def site() -> Iterator[Loopback]:
    with serving(make_csv(), "github_issues.csv") as site:
        yield site


def test_a_download_that_is_cut_continues_at_the_same_byte(preparation: Preparation, site: Loopback) -> None:
    site.cut = 70_000
    printed = preparation.run("--url", site.url, "--sha256", hashlib.sha256(site.content).hexdigest())
    assert "the download was cut" in printed
    assert site.ranges == ["", "bytes=70000-"]
    assert preparation.fetched() == site.content


def test_a_killed_preparation_continues_when_it_runs_again_and_a_complete_one_does_nothing(
    preparation: Preparation, site: Loopback
) -> None:
    site.hold = 200_000
    with preparation.start("--url", site.url) as process:
        assert site.held.wait(GANG_SECONDS)
        part = preparation.data / "download.part"
        assert process.stdout
        assert "from byte 0 of" in process.stdout.readline()
        wait_until(lambda: part.stat().st_size > 100_000)  # the download arrives in pieces
        process.kill()
    assert not (preparation.data / "github_issues.csv").exists()

    preparation.run("--url", site.url)
    assert len(site.ranges) == 2
    assert int(site.ranges[1].removeprefix("bytes=").removesuffix("-")) > 100_000
    assert preparation.fetched() == site.content

    numbered = (preparation.data / "vocabulary.json").stat()
    assert "is there already" in preparation.run("--url", site.url)
    assert len(site.ranges) == 2
    assert (preparation.data / "vocabulary.json").stat() == numbered


def test_a_file_that_changed_on_the_server_is_downloaded_from_the_start(
    preparation: Preparation, site: Loopback
) -> None:
    preparation.data.mkdir()
    (preparation.data / "download.part").write_bytes(b"what it was before")
    (preparation.data / "download.version").write_text('"0"')
    preparation.run("--url", site.url)
    assert site.ranges == ["bytes=18-"]
    assert preparation.fetched() == site.content


def test_a_partial_file_that_is_already_complete_is_used(preparation: Preparation, site: Loopback) -> None:
    preparation.data.mkdir()
    (preparation.data / "download.part").write_bytes(site.content)
    (preparation.data / "download.version").write_text(site.version)
    preparation.run("--url", site.url)
    assert preparation.fetched() == site.content


def test_a_missing_file_or_a_wrong_checksum_is_refused(preparation: Preparation, site: Loopback) -> None:
    assert "404" in preparation.run("--url", f"{site.url}.gone", code=1)
    printed = preparation.run("--url", site.url, "--sha256", "0" * 64, code=1)
    assert f"has the SHA-256 {hashlib.sha256(site.content).hexdigest()} and not 000" in printed
    assert list(preparation.data.iterdir()) == []


def test_an_existing_csv_file_is_used_and_its_words_are_numbered(preparation: Preparation) -> None:
    (preparation.here / "github_issues.csv").write_bytes(make_csv())
    preparation.run("--issues", "1000")
    assert preparation.fetched() == make_csv()
    vocabulary = json.loads((preparation.data / "vocabulary.json").read_text())
    assert (vocabulary["train"], vocabulary["held_out"]) == (900, 100)
    assert set(vocabulary["title"]) == {"", "?", "title", *"0123456"}
    assert {"body", "quoted", "lines", "é"} <= set(vocabulary["body"])
    # Decoded issues have their original words, cut to the maximum length and with `?` for unknown words.
    for name in ("train", "held_out"):
        for line in (preparation.data / f"{name}.txt").read_text().splitlines():
            numbers = [int(word) for word in line.split()]
            body, title = numbers[: vocabulary["body_length"]], numbers[vocabulary["body_length"] :]
            words = [vocabulary["body"][number] for number in body]
            assert words[:-1] == ["body", "quoted", "and", "of", "two", "lines", "é"]
            assert words[-1] == "?" or int(words[-1]) % 7 == int(vocabulary["title"][title[1]])
            assert vocabulary["title"][title[0]] == "title"
            assert title[2:] == [3]


def test_a_file_without_the_columns_is_refused_also_in_a_zip(preparation: Preparation) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/github_issues.csv", "title,text\na,b\n")
    with serving(packed.getvalue(), "github-issues.zip") as site:
        assert "have no columns `issue_title` and `body`" in preparation.run("--url", site.url, code=1)
    assert list(preparation.data.iterdir()) == []
