"""Translate a riseml.yml, in which `worker: 3` includes the master and memory is counted in megabytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from drumline.spec.block import Block, Count, Name, ParameterName, Scalar, Text
from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.dialect.install import is_tensorflow_requirement, pip_requirements
from drumline.spec.document import Path
from drumline.spec.location import Location
from drumline.spec.quantity import format_bytes
from drumline.spec.struct import Meta

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?)\s*\}\}")
# An example of the RiseML guide has a command in several lines; YAML keeps their line breaks, since they are indented.
_CONTINUATION = re.compile(r"(?<![ \t])[ \t]*+\\?\n[ \t]*+(?=-)")
_VERSION = re.compile(r"(latest|(?P<version>(?P<major>\d+)\.(?P<minor>\d+)(\.\d+)?))(?P<kind>([-.a-z][-.\w]*)?)")
_OLDEST = (2, 5)  # the first TensorFlow for a Python that drumline supports


class Resources(Block, frozen=True):
    """The resources that a replica is granted at least."""

    cpus: Annotated[float, Meta(ge=0.01)] | None = None
    mem: Annotated[float, Meta(ge=0.01)] | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None


class Members(Block, frozen=True):
    """The number of replicas of a role, and the resources of each."""

    short: ClassVar[str | None] = "count"
    count: Count = 1
    resources: Resources | None = None


class Distributed(Block, frozen=True):
    """The roles of a distributed training."""

    worker: Members | None = None
    ps: Members | None = None
    master: Members | None = None


class TensorFlow(Block, frozen=True):
    """The version of TensorFlow and the roles."""

    version: Scalar | None = None
    tensorboard: bool | None = None
    distributed: bool | Distributed | None = None
    horovod: Any = None


class Image(Block, frozen=True):
    """An image, as older files name it."""

    short: ClassVar[str | None] = "name"
    name: Text
    install: Text | tuple[Text, ...] = ()


class Train(Block, frozen=True):
    """The `train` section."""

    run: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    framework: Literal["tensorflow"] | None = None
    resources: Resources = Resources()
    tensorflow: TensorFlow | None = None
    image: Image | None = None
    install: Text | tuple[Text, ...] = ()
    parameters: dict[ParameterName, Scalar] = {}  # noqa: RUF012 - msgspec copies it for each object
    concurrency: Count | None = None


class File(Block, frozen=True):
    """A riseml.yml."""

    project: Name
    train: Train
    deploy: Any = None
    service: Any = None


def translate(file: File, source: str, lines: Mapping[Path, int]) -> SpecDraft:
    """Return the draft for a riseml.yml."""
    return _Translation(file, source, lines).draft


class _Translation:
    """Translates one riseml.yml; `draft` is the result."""

    def __init__(self, file: File, source: str, lines: Mapping[Path, int]) -> None:
        self.source = source
        self.lines = lines
        self.train = file.train
        self.draft = draft = SpecDraft("RiseML", self.location())
        draft.put(("project",), file.project, self.location("project"))
        self.is_tensorflow = self.train.framework == "tensorflow" or self.train.tensorflow is not None
        framework = "tensorflow" if self.is_tensorflow else "plain"
        draft.put(("framework",), framework, self.location("train", "framework"))
        self.roles()
        self.parameters()
        self.run()
        self.resources(("resources",), self.train.resources, self.location("train", "resources"))
        version = self.version()
        self.image(version, self.environment())
        board = self.train.tensorflow.tensorboard if self.train.tensorflow else None
        if board is not None:
            draft.put(("tensorboard",), board, self.location("train", "tensorflow", "tensorboard"))
        if self.train.concurrency not in (None, 1):
            draft.warn(
                self.location("train", "concurrency"),
                "is not carried over: it is for sweeps, and this is one run",
            )
        for key, value in (("deploy", file.deploy), ("service", file.service)):
            if value is not None:
                draft.warn(self.location(key), "is not carried over: drumline does not serve models")

    def location(self, *path: str | int) -> Location:
        """Return the location of a key, or of the nearest key above it that is in the file."""
        written = path
        while written and written not in self.lines:
            written = written[:-1]
        return Location(self.source, self.lines.get(written, 1), path)

    def roles(self) -> None:
        tensorflow = self.train.tensorflow
        path = ("train", "tensorflow", "distributed")
        if tensorflow and tensorflow.horovod is not None:
            self.draft.add_problem(
                self.location("train", "tensorflow", "horovod"),
                "Horovod needs MPI, which drumline does not start; use `tensorflow.distributed` with"
                " MultiWorkerMirroredStrategy instead",
            )
        distributed = tensorflow.distributed if tensorflow else None
        if distributed is True:
            self.draft.add_problem(self.location(*path), "has no number of replicas: write it, such as `{worker: 2}`")
        if not isinstance(distributed, Distributed):
            return
        if distributed == Distributed():
            self.draft.add_problem(self.location(*path), "names no role: write `{worker: 2}`, or remove it")
            return
        if distributed.master and distributed.master.count != 1:
            self.draft.add_problem(
                self.location(*path, "master"), "there is exactly one master; the others are workers"
            )
        worker = distributed.worker or Members()
        note = "The workers include the master: it is worker.0, which acts as the chief."
        self.draft.put(("roles", "worker", "replicas"), worker.count, self.location(*path, "worker"), note)
        self.role("worker", distributed.worker)
        if distributed.master and distributed.master.resources:
            self.master(distributed.master.resources, worker.resources or self.train.resources)
        if distributed.ps:
            self.draft.put(("roles", "ps", "replicas"), distributed.ps.count, self.location(*path, "ps"))
            self.role("ps", distributed.ps)

    def role(self, role: str, members: Members | None) -> None:
        if members and members.resources is not None:
            location = self.location("train", "tensorflow", "distributed", role, "resources")
            self.resources(("roles", role, "resources"), members.resources, location)

    def master(self, own: Resources, of_workers: Resources) -> None:
        location = self.location("train", "tensorflow", "distributed", "master", "resources")
        self.resources(("roles", "worker", "first", "resources"), own, location)
        for key in ("cpus", "mem"):
            if getattr(own, key) is None and getattr(of_workers, key) is not None:
                self.draft.warn(location, f"has no `{key}`: the master gets that of the workers")

    def resources(self, path: Path, asked: Resources, location: Location) -> None:
        if asked == Resources():
            return

        def at(key: str) -> Location:
            exact = (*location.path, key)
            return Location(self.source, self.lines.get(exact, location.line), exact)

        if asked.cpus is not None:
            self.draft.put((*path, "cpus"), _number(asked.cpus), at("cpus"))
        if asked.mem is not None:
            self.draft.put((*path, "memory"), format_bytes(int(asked.mem * 1024**2)), at("mem"))
            if path == ("resources",):
                self.draft.note(
                    (*path, "memory"),
                    "RiseML counts megabytes and grants at least this; here it is also the limit of a replica.",
                )
        self.draft.put((*path, "gpus"), asked.gpus or 0, at("gpus"))

    def parameters(self) -> None:
        declared = self.train.parameters
        for name, value in declared.items():
            self.draft.put(("parameters", name), value, self.location("train", "parameters", name))
        wanted = dict.fromkeys(match[1] for command in self.commands() for match in _PLACEHOLDER.finditer(command))
        for name in wanted:
            if name not in declared:
                note = f"Has no value yet: give it with `-p {name}=…`, or write it here."
                self.draft.put(("parameters", name), None, self.location("train", "run"), note)

    def commands(self) -> Iterator[str]:
        """Yield the commands, each with its continuation lines joined to one line."""
        run = self.train.run
        for command in (run,) if isinstance(run, str) else run:
            yield command if "<<" in command else _CONTINUATION.sub(" ", command)

    def run(self) -> None:
        several = list(self.commands())
        location = self.location("train", "run")
        self.draft.put(("run",), several[0] if len(several) == 1 else several, location)
        original = (self.train.run,) if isinstance(self.train.run, str) else self.train.run
        if tuple(several) != original:
            self.draft.note(("run",), "Lines that begin with an option continue the command before them.")

    def version(self) -> str | None:
        """Set the version of TensorFlow; return it as the file has it, None if it has none."""
        given = self.train.tensorflow.version if self.train.tensorflow else None
        if given is None:
            return None
        location = self.location("train", "tensorflow", "version")
        match = _VERSION.fullmatch(given)
        if not match:
            self.draft.add_problem(
                location, f"expected a version such as 2.15.1 or 2.15.1-gpu, or latest, got `{given}`"
            )
        elif match["version"] and (int(match["major"]), int(match["minor"])) < _OLDEST:
            used = "the newest TensorFlow, in the environment that `install` makes," if self.requirements() else ""
            self.draft.warn(
                location,
                f"drumline supports no Python on which TensorFlow {match['version']} runs: on this machine"
                f" {used or 'the installed TensorFlow'} is used instead; to choose its version, set 2.5 or newer",
            )
        elif match["version"]:
            note = f"For this machine. The image in a cluster is {_tag(given, gpus=self.wants_gpus())}."
            self.draft.put(("tensorflow", "version"), match["version"], location, note)
        return given

    def environment(self) -> list[str]:
        """Set the requirements that `install` installs with pip; return those that are not files."""
        lines = self.requirements()
        location = self.location("train", "install")
        for command in self.installs():
            if pip_requirements(command) is None:
                self.draft.warn(
                    location, f"`{command}` is not run: only `pip install` of packages is; do the rest in an image"
                )
        files = [line for line in lines if line.startswith("-r ")]
        for file in files:
            self.draft.warn(
                location, f"`{file}` is for this machine: in a cluster the image must contain the packages of this file"
            )
        if not lines:
            return []
        named = "version" in self.draft.values.get("tensorflow", {})
        if self.is_tensorflow and not named and not any(map(is_tensorflow_requirement, lines)):
            note = "An environment contains only the listed packages, so TensorFlow is listed."
            self.draft.put(("environment", "requirements"), ["tensorflow", *lines], location, note)
        else:
            self.draft.put(("environment", "requirements"), lines, location)
        return [line for line in lines if line not in files]

    def requirements(self) -> list[str]:
        """Return the requirements that `install` installs with pip."""
        return list(dict.fromkeys(line for command in self.installs() for line in pip_requirements(command) or ()))

    def installs(self) -> list[str]:
        own = self.train.install
        of_image = self.train.image.install if self.train.image else ()
        several = [(each,) if isinstance(each, str) else each for each in (of_image, own)]
        return [command for each in several for command in each]

    def image(self, version: str | None, packages: list[str]) -> None:
        image = self.train.image
        if image:
            location, name = self.location("train", "image"), image.name
        elif self.is_tensorflow:
            location = self.location("train", "tensorflow", "version")
            name = _tag(version or "latest", gpus=self.wants_gpus())
        else:
            return
        self.draft.put(("engine", "default"), "local", location, "`--on kubernetes` runs the same in a cluster.")
        made = {"base": name, "install": packages} if packages else name
        self.draft.put(("engine", "kubernetes", "image"), made, location)

    def wants_gpus(self) -> bool:
        distributed = self.train.tensorflow.distributed if self.train.tensorflow else None
        several = [self.train.resources]
        if isinstance(distributed, Distributed):
            members = (distributed.worker, distributed.ps, distributed.master)
            several += [each.resources for each in members if each and each.resources]
        return any(each.gpus for each in several)


def _tag(version: str, *, gpus: bool) -> str:
    """Return the TensorFlow image of a version."""
    return f"tensorflow/tensorflow:{version}{'-gpu' if gpus and 'gpu' not in version else ''}"


def _number(amount: float) -> float:
    return int(amount) if amount == int(amount) else amount
