"""The location of the output of a run in a cluster, as `status` shows it."""

from __future__ import annotations

import pytest

from drumline.engine.kubernetes.claims import describe_output
from drumline.load.engine import plan_spec
from scaffold.plans import spec_of


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "/drumline/output in the pods, deleted with them: `engine.kubernetes.output` keeps it"),
        (", output: {size: 1GiB}", "/drumline/output on the claim digits-4-output: `drumline cp 4: .` fetches it"),
        (", output: {claim: mine}", "/drumline/output/digits-4 on the claim mine: `drumline cp 4: .` fetches it"),
    ],
)
def test_the_output_of_a_run_in_a_cluster_is_described_as_on_a_volume_or_lost(output: str, words: str) -> None:
    spec = spec_of(f"project: digits\nrun: a\nengine: {{kubernetes: {{image: a{output}}}}}")
    assert describe_output(plan_spec(spec, run="4", on="kubernetes")) == words
