"""Translate the claims beside a TFJob, and the Job that fills one of them before the training."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.dialect.pod import Mount, Pod, claim_mounts
from drumline.spec.dialect.tracked_node import TrackedNode, warn_unread
from drumline.spec.quantity import format_bytes

_CLAIM = "persistentVolumeClaim"


class Storage:
    """The claims of a file by name, and the Job that prepares data."""

    def __init__(self, draft: SpecDraft, objects: Sequence[tuple[TrackedNode, str]]) -> None:
        self._draft = draft
        self._claims: dict[str, TrackedNode] = {}
        self._job: TrackedNode | None = None
        for each, kind in objects:
            name = each.require("metadata").require("name").text()
            version = each.require("apiVersion")
            wanted = {"PersistentVolumeClaim": "v1", "Job": "batch/v1"}.get(kind)
            if wanted and version.text() != wanted:
                draft.warn(version.location, f"there is no `{version.text()}`; it is read as `{wanted}`")
            if kind == "PersistentVolumeClaim":
                self._claims[name] = each
            elif kind == "Job" and self._job is None:
                self._job = each
            else:
                draft.warn(
                    each.require("kind").location,
                    f"the {kind} `{name}` is not carried over: create it with `kubectl`",
                )

    @property
    def prepares(self) -> bool:
        """Return whether a Job prepares data before the training."""
        return self._job is not None

    def mounts_of(self, pods: Sequence[Pod]) -> set[tuple[str, str]]:
        """Set `data` and `output` of the spec; return the claims that they use, each with its mount path."""
        mounts = {(mount.claim, mount.path): mount for pod in pods for mount in pod.mounts if mount.plain}
        taken: set[tuple[str, str]] = set()
        if self._job and (made := self._prepare(self._job)):
            taken.add(made)
        for (claim, path), mount in mounts.items():
            if claim in self._claims and (claim, path) not in taken and not self._has_output():
                self._put_output(claim, mount)
                taken.add((claim, path))
        for name, each in self._claims.items():
            if name not in {claim for claim, _ in taken}:
                self._draft.warn(
                    each.location, f"the claim `{name}` is not created by drumline: create it with `kubectl`"
                )
        return taken

    def _has_output(self) -> bool:
        return "output" in self._draft.values

    def _put_output(self, claim: str, mount: Mount) -> None:
        self._draft.put(("output",), mount.path, mount.location, f"The claim `{claim}` of the file.")
        self._draft.put(("engine", "kubernetes", "output"), self._volume(claim), self._claims[claim].location)

    def _volume(self, claim: str) -> dict[str, object]:
        """Return a claim of the file as a volume to create, or the name of a claim that exists already."""
        part = self._claims.get(claim)
        if part is None:
            return {"claim": claim, "access": "ReadWriteMany"}
        spec = part.require("spec")
        volume: dict[str, object] = {}
        volume["size"] = format_bytes(int(spec.require("resources").require("requests").require("storage").quantity()))
        if kind := spec.read("storageClassName"):
            volume["class"] = kind.text()
        modes = [mode.text() for mode in spec.require("accessModes").items()]
        volume["access"] = "ReadWriteMany" if "ReadWriteMany" in modes else "ReadWriteOnce"
        wanted = spec.require("resources")
        warn_unread(self._draft, part, part.require("metadata"), spec, wanted, wanted.require("requests"))
        return volume

    def _prepare(self, job: TrackedNode) -> tuple[str, str] | None:
        """Set the data that a Job makes; return the claim and its mount path, None if the Job is not carried over."""
        draft, name = self._draft, job.require("metadata").require("name").text()
        spec = job.require("spec")
        pod = spec.require("template").require("spec")
        containers = pod.require("containers")
        if not containers.items():
            raise containers.error("is empty")
        container = containers.items()[0]
        container.require("name")
        words = [word.text() for key in ("command", "args") if (part := container.read(key)) for word in part.items()]
        inside = [mount for mount in claim_mounts(pod, container) if mount.plain]
        location = (container.read("command") or container).location
        if not words or not inside:
            draft.warn(
                job.require("kind").location,
                f"the Job `{name}` is not carried over: it has no command that fills a claim",
            )
            return None
        named = [each for each in inside if any(_is_in(word, each.path) for word in words)]
        mount = (named or inside)[0]
        target = (mount.claim, mount.path)
        commands = [f"export {key}={shlex.quote(value)}" for key, value in _env(container).items()]
        commands.append(" ".join(_word(word, mount.path) for word in words))
        note = f"The Job `{name}` of the file. It fills DATA_DIR, which appears when it is complete."
        draft.put(("data", "path"), mount.path, mount.location, note)
        draft.put(("data", "volume"), self._volume(mount.claim), mount.location)
        draft.put(("data", "prepare"), commands[0] if len(commands) == 1 else commands, location)
        draft.warn(
            mount.location,
            f"in a cluster {mount.path} is mounted read-only, and the data are in DATA_DIR, {mount.path}/prepared",
        )
        pod.read("restartPolicy")
        template = spec.require("template")
        self._warn_image(container)
        warn_unread(draft, job, job.require("metadata"), spec, template, pod, container, *_further(container, pod))
        return target

    def _warn_image(self, container: TrackedNode) -> None:
        if container.require("image").text() != self._image():
            self._draft.warn(
                container.require("image").location,
                "is not carried over: the data are prepared in the image of the training",
            )

    def _image(self) -> object:
        node = self._draft.values.get("engine", {}).get("kubernetes", {}).get("image")
        return node.text if node else None


def _env(container: TrackedNode) -> dict[str, str]:
    """Return the variables that have a value in the file."""
    part = container.read("env")
    named = {each.require("name").text(): each.read("value") for each in (part.items() if part else ())}
    return {name: value.text() for name, value in named.items() if value}


def _further(container: TrackedNode, pod: TrackedNode) -> list[TrackedNode]:
    """Return the other items of a Job's pod and of its container's lists."""
    variables, volumes, mounts = container.read("env"), pod.read("volumes"), container.read("volumeMounts")
    lists = (pod.require("containers"), variables, volumes, mounts)
    items = [item for each in lists if each for item in each.items() if item is not container]
    return [*items, *(claim for each in (volumes.items() if volumes else ()) if (claim := each.read(_CLAIM)))]


def _is_in(word: str, path: str) -> bool:
    return word == path or word.startswith(f"{path.rstrip('/')}/")


def _word(word: str, path: str) -> str:
    """Return an argument quoted for a shell, with DATA_DIR instead of the path of the mount."""
    if not _is_in(word, path):
        return shlex.quote(word)
    rest = word[len(path.rstrip("/")) :]
    return '"$DATA_DIR"' + (shlex.quote(rest) if rest.strip("/") else "")
