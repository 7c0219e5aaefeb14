"""The folders in the plan that a host receives for its local engine."""

from __future__ import annotations

import pytest

from drumline.engine.ssh.host_placement import host_plan
from drumline.engine.ssh.plan_options import hosts_of, with_hosts
from drumline.plan.types import Plan
from scaffold.plans import plan_of


def part_of(more: str, options: str = "") -> Plan:
    plan = plan_of(f"engine: {{default: ssh, ssh: {{hosts: [a, b]{options}}}}}\n{more}")
    return host_plan(with_hosts(plan, hosts_of(plan).replace(unique="u")), "/base")


@pytest.mark.parametrize(
    ("more", "alone", "shared"),
    [
        ("", ("/base/runs/u/output", None), ("/nfs/runs/u/output", None)),
        ("output: results", ("results", None), ("/nfs/digits/results", None)),
        ("output: /data/out", ("/data/out", None), ("/data/out", None)),
        ("checkpoint: ckpt", ("/base/runs/u/output", "ckpt"), ("/nfs/runs/u/output", "/nfs/digits/ckpt")),
    ],
)
def test_output_and_checkpoints_are_in_the_shared_folder_if_there_is_one(
    more: str, alone: tuple[str, str | None], shared: tuple[str, str | None]
) -> None:
    for options, expected in (("", alone), (", shared: /nfs", shared)):
        own = part_of(more, options)
        assert (own.output, own.checkpoint) == expected


def test_prepared_data_is_in_a_folder_that_is_kept_between_runs() -> None:
    made = "data: [{name: x, path: sets/x, prepare: fetch}, {name: y, path: y}, {name: z, path: /z, prepare: fetch}]"
    assert [each.path for each in part_of(made).data] == ["/base/data/digits/sets/x", "y", "/z"]
    assert [each.path for each in part_of(made, ", shared: /nfs").data] == ["/nfs/data/digits/sets/x", "y", "/z"]
