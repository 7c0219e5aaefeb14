"""Validate a plan for a cluster, without contacting it. Pure."""

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
    """Yield a problem for each part of the plan that the cluster would refuse, or treat differently from the spec."""
    yield from too_long_arguments(launches)
    yield from _about_mounts(plan)
    yield from _about_commands(plan)
    if plan.engine == "tfjob":
        yield from tfjob_problems(plan)


def find_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about the plan."""
    yield from _about_output(plan)
    yield from _about_data(plan)
    yield from _about_restarts(plan)
    if plan.environment:
        yield (
            f"`environment` does not apply to pods, which use their image: `engine.{plan.engine}.image`"
            " with `base` and `install` builds one"
        )
    if plan.engine == "tfjob" and plan.replicas_of("evaluator") and not plan.evaluator_in_cluster:
        yield "the TFJob operator lists the evaluator in the TF_CONFIG of every replica, whatever the spec says"
    if cluster_of(plan).queue and plan.engine == "kubernetes" and len(plan.replicas) > 1:
        yield "each Job waits in the queue separately, so only some replicas may start; `jobset` starts all or none"


def _about_mounts(plan: Plan) -> Iterator[str]:
    volumes = cluster_of(plan).data
    where = [data_mount(data.variable, data.path) for data in plan.data if data.variable in volumes]
    paths = Counter([output_mount(plan), PROJECT, RUNTIME, PARTS, *where])
    for path in [path for path, several in paths.items() if several > 1]:
        yield f"two volumes would be mounted at {path}: change the path of one"


def _about_commands(plan: Plan) -> Iterator[str]:
    """Yield a problem for roles with a command from a patch: such a command would not get the index of its pod."""
    cluster = cluster_of(plan)
    is_shared = plan.engine == "jobset" or (plan.engine == "kubernetes" and cluster.jobs == "indexed")
    counted = {group.replicas[0].id.role for group in names.groups(plan) if group.first_index}
    if is_shared and counted and any("command" in each for each in _own_containers(cluster, counted)):
        yield (
            f"{listed(sorted(counted))} would run the command of `pod` or of the image without their index;"
            " set it as `run`, or use `--on kubernetes` with `jobs: single`"
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
            f"the output volume is ReadWriteOnce: only {plan.chief} mounts it, and what others write to OUTPUT_DIR is"
            f" lost with their pods{_after_a_restart(plan)}; `access: ReadWriteMany` mounts it in all pods"
        )


def _after_a_restart(plan: Plan) -> str:
    if not plan.restart.is_allowed:
        return ""
    begin = "the others begin anew unless the script sends them the state"
    return f"; after a restart only {plan.chief} finds its checkpoints, and {begin}"


def _about_data(plan: Plan) -> Iterator[str]:
    volumes = cluster_of(plan).data
    for data in plan.data:
        volume = volumes.get(data.variable)
        made = any(each.variable == data.variable for each in plan.preparations)
        if volume and volume.claim is None and not made:
            yield f"the volume of {data.variable} is created empty, and nothing fills it: add `prepare` to the data"
        if volume and volume.access == "ReadWriteOnce" and len(plan.replicas) > 1:
            yield f"the volume of {data.variable} is ReadWriteOnce: only pods on one node can mount it"


def _about_restarts(plan: Plan) -> Iterator[str]:
    """Yield warnings about restarts that an operator counts instead of drumline."""
    budget = plan.restart
    kinds = {budget.crash, budget.lost, budget.preempted} - {0}
    codes = budget.permanent_codes
    if plan.engine == "jobset" and codes and kinds:
        yield "a JobSet restarts after any exit code; `restart.permanent` is ignored"
    if plan.engine == "tfjob" and codes and budget.crash and codes != ("1-127",):
        yield "a TFJob treats exactly the exit codes 1 to 127 as permanent, whatever `restart.permanent` says"
    if plan.engine == "jobset" and len(kinds) > 1:
        yield f"a JobSet has one limit for restarts after all classes of failure: {max(kinds)}"
