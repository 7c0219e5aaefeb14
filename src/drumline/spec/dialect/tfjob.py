"""Translate a TFJob of Kubeflow, in any version of its API, and the other objects of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from drumline.record import Record
from drumline.spec.block import NAME_PATTERN
from drumline.spec.dialect import selectors, tfjob_v1alpha1
from drumline.spec.dialect.draft import ROLES, SpecDraft, node_of, plain
from drumline.spec.dialect.pod import REPLICA, Json, Pod, read_pod, without_mount
from drumline.spec.dialect.storage import Storage
from drumline.spec.dialect.tracked_node import TrackedNode, warn_unread
from drumline.spec.quantity import format_seconds
from drumline.words import nearest

# The restart budget for a TFJob without a limit.
MOST_RESTARTS = 10
_VERSIONS = (
    *(f"kubeflow.org/{version}" for version in ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")),
    *("tensorflow.org/v1alpha1", "mlkube.io/v1beta1"),
)
_KINDS = ("TFJob", "TfJob")
# Keys of `metadata` that the API server sets.
_SERVER_KEYS = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
    "finalizers",
)
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_NONE = (
    "is not a TFJob, and the file contains none; convert files that belong together with one command:"
    " `drumline convert storage.yaml tfjob.yaml`"
)
_QUEUE = "kueue.x-k8s.io/queue-name"


class Member(Record):
    """A role of a TFJob; `name` is its name in the file."""

    name: str
    part: TrackedNode
    replicas: int
    policy: TrackedNode | None
    metadata: TrackedNode | None
    pod: Pod


def translate(objects: Sequence[TrackedNode]) -> SpecDraft:
    """Return the draft for a file with a TFJob; raise SpecError unless there is exactly one."""
    kinds = [(each, each.require("kind").text()) for each in objects]
    jobs = [each for each, kind in kinds if kind in _KINDS]
    if len(jobs) != 1:
        which = jobs[1] if jobs else objects[0]
        raise which.require("kind").error("is a second TFJob: a spec is one training" if jobs else _NONE)
    draft = SpecDraft("the TFJob operator of Kubeflow", jobs[0].location)
    storage = Storage(draft, [(each, kind) for each, kind in kinds if kind not in _KINDS])
    _Translation(jobs[0], draft, storage).translate()
    return draft


class _Translation:
    """Translates one TFJob."""

    def __init__(self, job: TrackedNode, draft: SpecDraft, storage: Storage) -> None:
        self.job = job
        self.draft = draft
        self.storage = storage
        self.spec = job.require("spec")
        version = job.require("apiVersion")
        if version.text() not in _VERSIONS:
            raise version.error(f"expected one of {', '.join(_VERSIONS)}")
        self.is_v1alpha1 = "replicaSpecs" in self.spec.keys
        job.read("status")

    def translate(self) -> None:
        with self.draft.collecting_problems():
            self.metadata()
        members = self.members()
        if not members:
            if not self.draft.problems:
                self.draft.add_problem(self.spec.location, "has no role with replicas: there is nothing to run")
            return
        for read in (self.roles, self.pods, self.grace, self.policies):
            with self.draft.collecting_problems():
                read(members)
        warn_unread(self.draft, self.job, self.spec)

    def metadata(self) -> None:
        metadata = self.job.require("metadata")
        name = metadata.read("name") or metadata.require("generateName")
        project = re.sub(r"[^A-Za-z0-9_-]", "-", name.text())[:63].strip("-_")
        if not re.fullmatch(NAME_PATTERN, project):
            raise name.error(f"expected a name, got `{name.text()}`")
        note = "" if project == name.text() else f"The TFJob is named `{name.text()}`."
        self.draft.put(("project",), project, name.location, note)
        kind = self.job.require("kind").location
        self.draft.put(("framework",), "tensorflow", kind)
        self.draft.put(
            ("engine", "default"), "local", kind, "In a cluster with `--on kubernetes`, `jobset` or `tfjob`."
        )
        if namespace := metadata.read("namespace"):
            self.draft.put(("engine", "kubernetes", "namespace"), namespace.text(), namespace.location)
        self.labels(metadata)
        for key in _SERVER_KEYS:
            metadata.read(key)
        warn_unread(self.draft, metadata)

    def labels(self, metadata: TrackedNode) -> None:
        """Set the labels and annotations of an object for all objects of the run."""
        for kind in ("labels", "annotations"):
            part = metadata.read(kind)
            for key in part.keys if part else ():
                value = part.read(key) if part else None
                if value and key == _QUEUE:
                    self.draft.put(("engine", "kubernetes", "queue"), value.text(), value.location)
                elif value and not key.startswith("kubectl.kubernetes.io/"):
                    self.draft.put(("engine", "kubernetes", kind, key), value.text(), value.location)

    def members(self) -> dict[str, Member]:
        """Return the roles with replicas, in the order of ROLES; add a problem for every invalid role."""
        members: dict[str, Member] = {}
        for name, part in self.written():
            with self.draft.collecting_problems():
                role = ROLES.get(name.lower())
                if role is None:
                    near = nearest(name.lower(), ROLES)
                    raise part.error("is not a role of a TFJob" + (f"; did you mean `{near}`?" if near else ""))
                if role in members:
                    raise part.error(
                        f"there is a second {role}: `Master` and `Chief` are the same"
                        if role == "chief"
                        else "appears twice"
                    )
                if member := self.member(name, part, role, members):
                    members[role] = member
        return {role: members[role] for role in dict.fromkeys(ROLES.values()) if role in members}

    def written(self) -> list[tuple[str, TrackedNode]]:
        """Return every role with its name; one without a template comes last, since it uses the image of another."""
        if self.is_v1alpha1:
            items = self.spec.require("replicaSpecs").items()
            named = [(kind.text() if (kind := each.read("tfReplicaType")) else "MASTER", each) for each in items]
            return sorted(named, key=lambda each: each[1].read("template") is None)
        specs = self.spec.require("tfReplicaSpecs")
        return [(key, specs.require(key)) for key in specs.keys]

    def member(self, name: str, part: TrackedNode, role: str, others: Mapping[str, Member]) -> Member | None:
        """Return one role of the TFJob; None, with a warning, if it has no replicas."""
        replicas = part.read("replicas")
        count = replicas.integer() if replicas else 1
        if count == 0:
            self.draft.warn(part.location, "has no replicas and is left out")
            return None
        image = part.read("tfImage") or self.spec.read("tfImage")
        if self.is_v1alpha1 and role == "ps" and part.read("template") is None:
            pod = tfjob_v1alpha1.server(
                part, image or next((each.pod.image for each in others.values()), None), self.draft
            )
            policy = metadata = None
        else:
            template = part.require("template")
            pod = read_pod(template, self.draft, policy_counts=self.is_v1alpha1)
            policy = template.require("spec").read("restartPolicy") if self.is_v1alpha1 else part.read("restartPolicy")
            metadata = template.read("metadata")
            warn_unread(self.draft, template)
        if (port := part.read("tfPort")) and "port" not in pod.values:
            pod.values["port"] = port.integer(), port.location
        part.read("IsDefaultPS")
        warn_unread(self.draft, part)
        return Member(name, part, count, policy, metadata, pod)

    def roles(self, members: dict[str, Member]) -> None:
        """Set the roles, and their values; values that are the same for all roles are set once."""
        for role, member in members.items():
            note = (
                f"`{member.name}` in the TFJob; TensorFlow 2 uses this name." if member.name.lower() == "master" else ""
            )
            self.draft.put(("roles", role, "replicas"), member.replicas, member.part.location, note)
        for key in ("run", "env", "resources", "port"):
            self.draft.put_by_role(key, {role: member.pod.values.get(key) for role, member in members.items()})

    def grace(self, members: dict[str, Member]) -> None:
        """Set the grace period: the longest of all pods."""
        graces = [member.pod.grace for member in members.values() if member.pod.grace]
        if graces:
            longest = max(graces, key=TrackedNode.integer)
            self.draft.put(("timeouts", "grace"), format_seconds(longest.integer()), longest.location)

    def pods(self, members: dict[str, Member]) -> None:
        """Set the image, and patches with everything that roles have no key for."""
        draft = self.draft
        first = members.get("worker") or next(iter(members.values()))
        image = first.pod.image
        draft.put(("engine", "kubernetes", "image"), image.text(), image.location)
        draft.put(("engine", "kubernetes", "code"), False, image.location, "The image contains the code.")
        taken = self.storage.mounts_of([member.pod for member in members.values()])
        patches: dict[str, Json] = {}
        for role, member in members.items():
            patch = {**member.pod.patch, **selectors.translate_rules(member.pod.scheduling, self.values(members))}
            for mount in member.pod.mounts:
                if (mount.claim, mount.path) in taken:
                    patch = without_mount(patch, mount)
                    if not mount.plain:
                        draft.warn(
                            mount.location, "is mounted as for the other roles: its other options are not carried over"
                        )
            if member.pod.image.text() != image.text():
                patch = _with_image(patch, member.pod.image)
            patches[role] = patch
        shared = [plain(node_of(patch, 0)) for patch in patches.values()]
        alone = any(member.pod.has_sidecars for member in members.values()) or self.storage.prepares
        if not alone and all(each == shared[0] for each in shared):
            if shared[0]:
                draft.put(("engine", "kubernetes", "pod"), patches[next(iter(members))], first.pod.location)
        else:
            for role, patch in patches.items():
                if patch:
                    draft.put(("roles", role, "pod"), patch, members[role].pod.location)
        self.template_labels(members)
        self.lost_selectors(members)

    def lost_selectors(self, members: Mapping[str, Member]) -> None:
        """Warn about every selector that selects pods of other roles in the run than in the job."""
        job, project = self.names()
        carried = self.draft.values["engine"]["kubernetes"].get("labels", {})
        own = {key: node.text for key, node in carried.items()}
        of_job = {role: _labels(each) | selectors.labels_of_operator(job, each.name) for role, each in members.items()}
        of_run = {role: own | selectors.labels_of_drumline(project, role) for role in members}
        for member in members.values():
            for location, message in selectors.find_lost_selectors(
                member.pod.scheduling, of_job, of_run, self.values(members)
            ):
                self.draft.warn(location, message)

    def values(self, members: Mapping[str, Member]) -> selectors.Values:
        """Return the values of drumline's labels by those of the operator."""
        return selectors.values_of(*self.names(), {each.name: role for role, each in members.items()})

    def names(self) -> tuple[str, str]:
        """Return the name of the job and that of the project."""
        metadata = self.job.require("metadata")
        name = (metadata.read("name") or metadata.require("generateName")).text()
        return name, self.draft.values["project"].text if "project" in self.draft.values else name

    def template_labels(self, members: dict[str, Member]) -> None:
        """Set the labels and annotations of the pods for the run; warn if those of the roles differ."""
        written = {role: member.metadata for role, member in members.items() if member.metadata}
        first = next(iter(written.values()), None)
        for metadata in written.values():
            metadata.read("creationTimestamp")
            if first and metadata.value != first.value:
                self.draft.warn(metadata.location, "is not carried over: all pods of a run have the same labels")
            elif metadata is first:
                self.labels(metadata)
                metadata.read("name")
                warn_unread(self.draft, metadata)

    def policies(self, members: dict[str, Member]) -> None:
        """Set restarts, the time limit, success and scheduling; warn about policies that are not carried over."""
        places = [place for place in (self.spec.read("runPolicy"), self.spec) if place]

        def policy(key: str) -> TrackedNode | None:
            return next((part for place in places if (part := place.read(key))), None)

        draft = self.draft
        limit = policy("backoffLimit")
        self.restart(members, limit)
        if deadline := policy("activeDeadlineSeconds"):
            draft.put(("timeouts", "run"), format_seconds(deadline.integer()), deadline.location)
        if self.is_v1alpha1:
            tfjob_v1alpha1.read_end(self.spec, members, draft)
        else:
            self.success(members, self.spec.read("successPolicy"))
        if (clean := policy("cleanPodPolicy")) and clean.text() not in ("All", "Running"):
            if clean.text() != "None":
                raise clean.error(f"expected one of All, Running, None, got `{clean.text()}`")
            draft.warn(
                clean.location,
                "is not carried over: no replica is left running after a run, and its folder keeps all logs",
            )
        if ttl := policy("ttlSecondsAfterFinished"):
            draft.warn(
                ttl.location,
                "is not carried over: a run leaves only claims in a cluster; `drumline rm` removes it on this machine",
            )
        if (suspend := policy("suspend")) and suspend.boolean():
            draft.warn(suspend.location, "is not carried over: a run begins when it is started")
        if (dynamic := self.spec.read("enableDynamicWorker")) and dynamic.boolean():
            draft.warn(dynamic.location, "is not carried over: TF_CONFIG always lists the whole cluster")
        if scheduling := policy("schedulingPolicy"):
            self.scheduling(scheduling, sum(member.replicas for member in members.values()))
        warn_unread(draft, *places[:-1])

    def scheduling(self, policy: TrackedNode, count: int) -> None:
        """Set the priority class; warn about the other keys of a scheduling policy."""
        if (least := policy.read("minAvailable")) and least.integer() != count:
            self.draft.warn(least.location, "is not carried over: a run starts when all its replicas can")
        if priority := policy.read("priorityClass"):
            self.draft.put(("engine", "kubernetes", "priority_class"), priority.text(), priority.location)
        for part in policy.unread():
            self.draft.warn(part.location, "is not carried over: it is for another scheduler")

    def success(self, members: dict[str, Member], policy: TrackedNode | None) -> None:
        """Set the replicas that decide the end of the run."""
        given = policy.text() if policy else ""
        if policy and given not in ("", "AllWorkers"):
            raise policy.error(f"expected AllWorkers, or nothing, got `{given}`")
        if "chief" in members:
            if policy and given:
                self.draft.warn(policy.location, "is ignored, as by the operator: the chief decides")
        elif "worker" in members:
            decides = "all-workers" if given else "worker-0"
            note = "" if given else "Without a chief and a successPolicy, a TFJob is over when its first worker is."
            self.draft.put(("success",), decides, (policy or members["worker"].part).location, note)

    def restart(self, members: dict[str, Member], limit: TrackedNode | None) -> None:
        """Set the restart budgets of the run from the policy of its workers, or of its chief."""
        for member in members.values():
            if member.policy and member.policy.text() not in _POLICIES:
                raise member.policy.error(f"expected one of {', '.join(_POLICIES)}, got `{member.policy.text()}`")
        first = next(members[role] for role in ("worker", "chief", *members) if role in members)
        name = first.policy.text() if first.policy else "Never"
        location = first.policy.location if first.policy else first.part.location
        for role, member in members.items():
            own = member.policy.text() if member.policy else "Never"
            if own != name and role != "evaluator":
                where = (member.policy or member.part).location
                message = f"`{own}` is not carried over: a run has one policy, here `{name}` of `{first.name}`"
                self.draft.warn(where, message)
        if name == "Never":
            if limit:
                self.draft.warn(limit.location, "is not carried over: with `Never` nothing restarts")
            return
        budget = min(limit.integer(), 1000) if limit else MOST_RESTARTS
        note = f"The TFJob has `{name}`."
        if limit is None:
            self.draft.warn(location, f"`{name}` has no limit in the TFJob; here the limit is {MOST_RESTARTS} restarts")
        if name == "Always":
            self.draft.warn(
                location, "`Always` restarts even a replica that exits with 0; here such a replica has finished"
            )
        for key in ("budget", "early", "out_of_memory"):
            self.draft.put(("restart", key), budget, (limit or TrackedNode(first.part.node, location)).location)
        self.draft.note(("restart", "budget"), f"{note} The whole gang restarts, unless it has parameter servers.")
        if name == "ExitCode":
            self.draft.put(("restart", "permanent"), ["1-127"], location)


def _with_image(patch: Json, image: TrackedNode) -> Json:
    """Return the patch with another image for the main container."""
    containers = [plain(node_of(each, 0)) for each in patch.get("containers", ())]
    own = next((each for each in containers if each.get("name") == REPLICA), {"name": REPLICA})
    others = [each for each in containers if each.get("name") != REPLICA]
    return {**patch, "containers": [{**own, "image": image.text()}, *others]}


def _labels(member: Member) -> dict[str, str]:
    """Return the labels in the template of a role."""
    labels = member.metadata.read("labels") if member.metadata else None
    return {key: value.text() for key in labels.keys if (value := labels.read(key))} if labels else {}
