"""Every command that README and docs show for hosts is run with such hosts, and prints what they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT, read_blocks
from docs.terminal import Terminal, try_block
from hosts.host_cluster import HostCluster

SHOWN = [page for page in PAGES if any("hosts" in block.marks for block in read_blocks(page))]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the ssh configuration of two hosts with the names that the pages use."""
    with HostCluster(2) as host_cluster:
        config = tmp_path_factory.mktemp("ssh") / "config"
        config.write_text(host_cluster.config.read_text().replace("Host h", "Host gpu"))
        for name in host_cluster.names:
            host_cluster.run(name, "hostname", name.replace("h", "gpu"))
        yield config


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_for_hosts_print_the_output_that_it_shows(
    page: Path, tmp_path: Path, config: Path
) -> None:
    with closing(Terminal(tmp_path, env={"DRUMLINE_SSH_CONFIG": str(config)})) as terminal:
        there = (block for block in read_blocks(page) if {"hosts", "everywhere", "file"} & block.marks.keys())
        wrong = [line for block in there for line in try_block(block, terminal)]
    assert not wrong, "\n".join(wrong)
