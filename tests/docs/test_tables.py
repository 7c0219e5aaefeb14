"""The pages list all variables, targets and commands that exist, and no others; their links have targets."""

from __future__ import annotations

import re

import yaml

from docs.pages import PAGES, ROOT, read_table, sections
from drumline import runtime
from drumline.plan.bind import CONTRACT

README = sections(ROOT / "README.md")
DECISIONS = ROOT / "docs" / "adr"
ADRS = sorted(DECISIONS.glob("0*.md"))
OTHERS = (DECISIONS / "README.md", *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")))


def test_readme_has_every_variable_of_the_contract() -> None:
    shown = {row[0].strip("`") for row in read_table(README["What a training script is given"])}
    assert shown == CONTRACT


def test_runtime_md_has_every_function_of_the_runtime() -> None:
    rows = read_table(sections(ROOT / "docs" / "runtime.md")["In a training script"])
    assert sorted(row[0].strip("`").partition("(")[0] for row in rows) == sorted(runtime.__all__)


def test_readme_has_every_target_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = [row[0].strip("`").removeprefix("make ") for row in read_table(README["Working on drumline"])]
    assert sorted(shown) == sorted(targets)


def test_every_link_of_the_pages_has_a_target() -> None:
    dead = []
    for page in (*PAGES, *ADRS, *OTHERS):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            path = page.parent / name if name else page
            if "://" not in target and not (path.exists() and (not anchor or anchor in anchors(path.read_text()))):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert not dead


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of this page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [page for page in PAGES if page.parent != ROOT and page.name != "README.md"]
    assert not [
        page.name for page in (*pages, DECISIONS / "README.md") if f"{page.relative_to(ROOT / 'docs')})" not in index
    ]


def test_the_index_of_decisions_names_every_decision() -> None:
    index = (DECISIONS / "README.md").read_text()
    assert not [page.name for page in ADRS if f"]({page.name})" not in index]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [adr.name[:4] for adr in ADRS] == [f"{number:04}" for number in range(1, len(ADRS) + 1)]


def test_every_decision_that_is_referred_to_exists() -> None:
    known = {adr.name[:4] for adr in ADRS}
    folders = ("src", "tests", "bench", "docs", "scripts", "examples")
    texts = [path for folder in folders for kind in ("*.py", "*.md", "*.txt") for path in (ROOT / folder).rglob(kind)]
    named = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in (*texts, *OTHERS, ROOT / "README.md")
        for number in re.findall(r"\b(?:ADR |adr/)(\d{4})", path.read_text("utf-8", "replace"))
        if number not in known
    }
    assert not named


def test_paths_and_make_targets_that_the_pages_for_contributors_name_exist() -> None:
    text = "".join((ROOT / name).read_text() for name in ("CONTRIBUTING.md", ".github/pull_request_template.md"))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = re.findall(r"`make ([a-z-]+)`", text)
    assert set(made) <= set(targets)
    named = re.findall(r"[` ]((?:src|tests|docs|bench|scripts|cli|run|engine)/[a-z_./-]+)`", text)
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name).exists() and not (ROOT / "src/drumline" / name).exists()]


def test_the_workflow_runs_existing_targets_and_actions_of_pinned_versions() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", each) for each in used)
    made = {step["run"].removeprefix("make ") for step in steps if step.get("run", "").startswith("make ")}
    assert made == {"test", "test-hosts", "test-cluster"}


def test_the_changelog_has_a_section_for_unreleased_changes() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
