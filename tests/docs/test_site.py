"""`make docs`: the pages build as a site without broken links, and without resources of other sites."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT

MKDOCS = Path(sys.executable).parent / "mkdocs"
LOADED = re.compile(r'<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([ROOT / "scripts" / "site", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_built_and_can_be_found(site: Path) -> None:
    built = {str(path.parent.relative_to(site)) for path in site.rglob("index.html")}
    pages = {str(page.relative_to(ROOT).with_suffix("")).removesuffix("README").rstrip("/") or "." for page in PAGES}
    assert pages <= built
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0].rstrip("/") or "." for entry in index["docs"]}
    assert pages <= found


def test_no_page_loads_resources_of_other_sites(site: Path) -> None:
    loaded = {(page, each) for page in site.rglob("*.html") for each in LOADED.findall(page.read_text())}
    assert len(loaded) > 100
    assert not [(page, each) for page, each in loaded if re.match(r"(\w+:)?//", each)]
    assert not [path for path in site.rglob("*.css") if re.search(r"url\((?!data:)[\"']?(\w+:)?//", path.read_text())]


def test_the_recorded_session_is_on_the_first_page(site: Path) -> None:
    assert "docs/session.svg" in (site / "index.html").read_text()
    assert (site / "docs" / "session.svg").read_bytes() == (ROOT / "docs" / "session.svg").read_bytes()


def test_lists_tables_and_code_are_not_left_as_text(site: Path) -> None:
    left = re.compile(r"```|\]\(|^\||\n\s*(?:[-*]|\d+\.) ", re.MULTILINE)
    texts = {page: re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL) for page in site.rglob("*.html")}
    paragraphs = [(page, each) for page, text in texts.items() for each in re.findall(r"<p>(.*?)</p>", text, re.DOTALL)]
    assert len(paragraphs) > 500
    assert not [(page.relative_to(site), each) for page, each in paragraphs if left.search(each)]


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "README.md").write_text("# One\n\n[two](#two)\n")
    config = re.sub(r"^nav:.*", "nav: [README.md]\n", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mkdocs.yml").write_text(config)
    folders = {"DRUMLINE_SITE_SOURCE": str(tree), "DRUMLINE_SITE": str(tmp_path / "site")}
    done = subprocess.run(
        [MKDOCS, "build", "--config-file", tmp_path / "mkdocs.yml"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **folders, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode != 0
    assert "link '#two', but there is no such anchor" in done.stderr
