"""What cannot be had in a cluster, and what is unwise there. Pure: nobody is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from drumline.engine.argument_limits import too_long_arguments
from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.pod import REPLICA
from drumline.engine.kubernetes.manifests.tfjob import tfjob_problems
from drumline.engine.kubernetes.place import PARTS, PROJECT, RUNTIME, data_mount, output_mount
from drumline.engine.kubernetes.plan_options import Cluster, cluster_of
from drumline.plan.types import Launch, Plan
from drumline.words import listed


def find_problems(plan: Plan, launches: Sequence[Launch]) -> Iterator[str]:
    """Say what would be refused, or would not do what the spec says."""
    yield from too_long_arguments(launches)
    yield from _about_mounts(plan)
    yield from _about_commands(plan)
    if plan.engine == "tfjob":
        yield from tfjob_problems(plan)


def find_warnings(plan: Plan) -> Iterator[str]:
    """Say what is otherwise than one would think."""
    yield from _about_output(plan)
    yield from _about_data(plan)
    yield from _about_restarts(plan)
    if plan.environment:
        yield (
            f"`environment` is for this machine: the pods have what their image has; `engine.{plan.engine}.image`"
            " with `base` and `install` builds one"
        )
    if plan.engine == "tfjob" and plan.replicas_of("evaluator") and not plan.evaluator_in_cluster:
        yield "the operator of TFJobs lists the evaluator in everyone's TF_CONFIG, whatever the spec says"
    if cluster_of(plan).queue and plan.engine == "kubernetes" and len(plan.replicas) > 1:
        yield "each Job waits in the queue by itself, and half of a line may be let in; with `jobset` all are or none"


def _about_mounts(plan: Plan) -> Iterator[str]:
    volumes = cluster_of(plan).data
    where = [data_mount(data.variable, data.path) for data in plan.data if data.variable in volumes]
    paths = Counter([output_mount(plan), PROJECT, RUNTIME, PARTS, *where])
    for path in [path for path, several in paths.items() if several > 1]:
        yield f"two volumes would be at {path}: give one of them another path"


def _about_commands(plan: Plan) -> Iterator[str]:
    """A template of several pods has a shell that works out their numbers; without it they would not know them."""
    cluster = cluster_of(plan)
    is_shared = plan.engine == "jobset" or (plan.engine == "kubernetes" and cluster.jobs == "indexed")
    counted = {group.replicas[0].id.role for group in names.groups(plan) if group.first_index}
    if is_shared and counted and any("command" in each for each in _own_containers(cluster, counted)):
        yield (
            f"{listed(sorted(counted))} would run the command of `pod`, or that of the image, which nobody tells their"
            " index; give it as `run`, or use `--on kubernetes` with `jobs: single`"
        )


def _own_containers(cluster: Cluster, roles: set[str]) -> Iterator[Mapping[str, object]]:
    patches = (cluster.pod, *(patch for role, patch in cluster.pods.items() if role in roles))
    for patch in patches:
        several = patch.get("containers")
        for each in several if isinstance(several, list) else ():
            if isinstance(each, Mapping) and each.get("name") == REPLICA:
                yield each


def _about_output(plan: Plan) -> Iterator[str]:
    output = cluster_of(plan).output
    several = len(plan.replicas) > 1
    if output is None:
        kept = "models and checkpoints are lost with the pods"
        yield f"no output volume: {kept}; `engine.{plan.engine}.output: {{size: 10GiB}}` keeps them"
    elif not output.is_shared and several:
        yield (
            f"the output volume is ReadWriteOnce: only {plan.chief} has it, and what others write to OUTPUT_DIR is lost"
            f" with their pods{_after_a_restart(plan)}; with `access: ReadWriteMany` everybody has it"
        )


def _after_a_restart(plan: Plan) -> str:
    if not plan.restart.is_allowed:
        return ""
    return f"; after a restart only {plan.chief} finds its checkpoints, and others begin anew unless it tells them"


def _about_data(plan: Plan) -> Iterator[str]:
    volumes = cluster_of(plan).data
    for data in plan.data:
        volume = volumes.get(data.variable)
        made = any(each.variable == data.variable for each in plan.preparations)
        if volume and volume.claim is None and not made:
            yield f"the volume of {data.variable} is made empty, and nothing fills it: give the data a `prepare`"
        if volume and volume.access == "ReadWriteOnce" and len(plan.replicas) > 1:
            yield f"the volume of {data.variable} is ReadWriteOnce: all pods have to be on one node to read it"


def _about_restarts(plan: Plan) -> Iterator[str]:
    """What somebody else than drumline counts."""
    budget = plan.restart
    kinds = {budget.crash, budget.lost, budget.preempted} - {0}
    codes = budget.permanent_codes
    if plan.engine == "jobset" and codes and kinds:
        yield "a JobSet starts again after any exit code; `restart.permanent` is not looked at"
    if plan.engine == "tfjob" and codes and budget.crash and codes != ("1-127",):
        yield "a TFJob takes exit codes from 1 to 127 for permanent, and no others, whatever `restart.permanent` says"
    if plan.engine == "jobset" and len(kinds) > 1:
        yield f"a JobSet has one number for restarts: {max(kinds)}, whatever the failures are"
