"""Every command that README and docs show for a cluster is run on a real one, and prints what they show."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from cluster.conftest import Kubectl
from docs.pages import PAGES, ROOT, read_blocks
from docs.terminal import Terminal, try_block

SHOWN = [page for page in PAGES if any("cluster" in block.marks for block in read_blocks(page))]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_for_a_cluster_print_the_output_that_it_shows(
    page: Path, tmp_path: Path, kubectl: Kubectl
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(Path(os.environ["KUBECONFIG"]).read_bytes())
    kubectl("--kubeconfig", str(kubeconfig), "config", "set-context", "--current", "--namespace", kubectl.namespace)
    with closing(Terminal(tmp_path, env={"KUBECONFIG": str(kubeconfig)})) as terminal:
        there = (block for block in read_blocks(page) if {"cluster", "everywhere", "file"} & block.marks.keys())
        wrong = [line for block in there for line in try_block(block, terminal)]
    assert not wrong, "\n".join(wrong)
