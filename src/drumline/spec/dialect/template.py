"""Translate a Jinja template to a spec: roles from its parameters, commands from its rendered text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from drumline.spec.dialect.arguments import DifferentArguments, command_of
from drumline.spec.dialect.draft import NOT_CARRIED, LocatedValue, SpecDraft
from drumline.spec.dialect.jinja import CLAIMS, Parameter, Template
from drumline.spec.dialect.rendered import Process, processes
from drumline.spec.location import Location
from drumline.words import listed

# Parameters of related templates that become variables of the program.
_VARIABLES = {
    "data_dir": "DATA_DIR",
    "model_dir": "MODEL_DIR",
    "log_dir": "LOG_DIR",
    "train_log_dir": "TRAIN_LOG_DIR",
    "batch_size": "BATCH_SIZE",
    "num_train_epoch": "NUM_TRAIN_EPOCH",
}
_SIZE = "10GB"


def translate(template: Template) -> SpecDraft:
    """Return the draft for a template; raise SpecError if a value is not allowed or it cannot be rendered."""
    template.check()
    draft = SpecDraft("the Jinja templates of tensorflow/ecosystem", Location(template.source, 1))
    started = processes(template.render_training(), template.source)
    missing = [f"`{name}`" for name in ("worker_replicas", "script") if name not in template.parameters]
    if missing and not started:
        draft.add_problem(
            draft.location,
            f"sets no {' and no '.join(missing)}, and renders no pod, Job or service of a role with a command:"
            " a template needs one or the other",
        )
        return draft
    _Translation(template, draft, started).translate()
    return draft


class _Translation:
    """Translates one template."""

    def __init__(self, template: Template, draft: SpecDraft, started: Sequence[Process]) -> None:
        self.template = template
        self.draft = draft
        self.started = started
        self.known: dict[str, Callable[[Parameter], None]] = {
            "name": self.name,
            "image": self.image,
            "worker_replicas": self.workers,
            "ps_replicas": self.servers,
            "has_coordinator": self.role("chief"),
            "has_eval": self.role("evaluator"),
            "script": self.nothing if started else self.script,
            "cmdline_args": self.nothing,  # read with the script
            "port": self.port,
            "model_checkpoint_dir": self.output,
            "checkpoint_pvc_name": self.claim,
            "pvc_name": self.claim,
            "deploy": self.nothing,  # a spec always trains
            "create_pvc_checkpoint": self.nothing,
            "create_pvc": self.nothing,
            "create_volume_inspector": self.inspector,
            "has_tensorboard": self.tensorboard,
            "tensorboard": self.tensorboard,
            "run_tensorboard": self.tensorboard,
        }

    def translate(self) -> None:
        for name, parameter in self.template.parameters.items():
            if name in self.known:
                self.known[name](parameter)
            elif name in _VARIABLES and not self.started:
                self.variable(_VARIABLES[name], parameter)
            elif not self.started or not self.is_used(parameter.value):
                self.draft.warn(parameter.location, NOT_CARRIED)
        if self.started:
            self.processes()
            image = self.started[0].image
            if image and "image" not in self.template.parameters:
                self.image(Parameter(image, self.draft.location))

    def is_used(self, value: object) -> bool:
        """Return whether a command or variable that is carried over contains this value; True for an empty one."""
        if isinstance(value, list):
            return all(map(self.is_used, value))
        if value in ("", None) or value is False:
            return True
        words = [word for each in self.started for word in (*each.argv, *each.env.values())]
        if isinstance(value, int):
            return any(each.gpus == value for each in self.started) or any(
                re.search(rf"(?<![\w.]){value}(?![\w.])", word) for word in words
            )
        return any(str(value) in word for word in words)

    def processes(self) -> None:
        """Set the commands, variables and resources of the rendered processes, once if they are the same."""
        location = (
            self.template.parameters["script"].location if "script" in self.template.parameters else self.draft.location
        )
        roles: dict[str, list[Process]] = {}
        for each in self.started:
            roles.setdefault(each.role, []).append(each)
        values: dict[str, dict[str, LocatedValue]] = {}
        lost: dict[str, list[str]] = {}
        for role, replicas in roles.items():
            if role not in self.draft.values.get("roles", {}):
                self.draft.put(("roles", role, "replicas"), len(replicas), location)
            values[role] = {}
            try:
                values[role]["run"] = self.run(replicas, location), location
            except DifferentArguments as error:
                self.draft.add_problem(
                    location, f"the replicas of {role} have different arguments, but a role has one command: {error}"
                )
            if env := {name: _value(name, text) for name, text in replicas[0].env.items()}:
                values[role]["env"] = env, location
            if replicas[0].gpus is not None:
                values[role]["resources"] = {"gpus": replicas[0].gpus}, location
            known = {str(self.template.value(name)) for name in CLAIMS}
            claims = [f"the claim `{name}`" for name in replicas[0].claims if name not in known]
            for words in (*replicas[0].unread, *claims):
                lost.setdefault(words, []).append(role)
        for words, of_roles in lost.items():
            self.draft.warn(location, f"{words} of {listed(of_roles)} is not carried over")
        for key in ("run", "env", "resources"):
            self.draft.put_by_role(key, {role: each.get(key) for role, each in values.items()})

    def run(self, replicas: Sequence[Process], location: Location) -> object:
        """Return the command of a role; add a problem if the pod has no command, since then that of the image runs."""
        if not replicas[0].argv or replicas[0].argv[0].startswith("-"):
            self.draft.add_problem(
                location, f"{replicas[0].role} has no `command`, only that of its image: add one to the template"
            )
        command = command_of(replicas, self.started)
        if isinstance(command, list):
            return {"argv": command}
        if "$(hosts" in command:
            self.draft.put(("tensorflow", "tf_config"), "always", location)
        return command

    def put(self, path: tuple[str, ...], value: object, parameter: Parameter, note: str = "") -> None:
        self.draft.put(path, value, parameter.location, note)

    def name(self, parameter: Parameter) -> None:
        self.put(("project",), parameter.value, parameter)
        self.put(("framework",), "tensorflow", parameter)

    def image(self, parameter: Parameter) -> None:
        self.put(("engine", "default"), "local", parameter, "In a cluster with `--on kubernetes`, `jobset` or `tfjob`.")
        self.put(("engine", "kubernetes", "image"), parameter.value, parameter)
        self.put(("engine", "kubernetes", "code"), False, parameter, "The image contains the code.")

    def workers(self, parameter: Parameter) -> None:
        self.put(("roles", "worker", "replicas"), parameter.value, parameter)

    def servers(self, parameter: Parameter) -> None:
        if parameter.value:
            self.put(("roles", "ps", "replicas"), parameter.value, parameter)

    def role(self, role: str) -> Callable[[Parameter], None]:
        def put(parameter: Parameter) -> None:
            if parameter.value:
                self.put(("roles", role, "replicas"), 1, parameter)

        return put

    def script(self, parameter: Parameter) -> None:
        words: Any = self.template.value("cmdline_args") or ()
        several = words.split() if isinstance(words, str) else [str(word) for word in words]
        self.put(("run", "argv"), ["python", str(parameter.value), *several], parameter)

    def port(self, parameter: Parameter) -> None:
        self.put(("port",), parameter.value, parameter)

    def output(self, parameter: Parameter) -> None:
        self.put(("output",), parameter.value, parameter, "Programs find it in OUTPUT_DIR.")

    def claim(self, parameter: Parameter) -> None:
        if not parameter.value:
            return
        if self.template.value("create_pvc_checkpoint") or self.template.value("create_pvc"):
            note = f"A claim for the run, which is kept when the run is over; the template has `{parameter.value}`."
            self.put(("engine", "kubernetes", "output", "size"), _SIZE, parameter, note)
        else:
            self.put(("engine", "kubernetes", "output", "claim"), parameter.value, parameter)

    def inspector(self, parameter: Parameter) -> None:
        if parameter.value:
            self.draft.warn(
                parameter.location, "needs no pod of its own: `drumline inspect ID` shows the files of a run"
            )

    def tensorboard(self, parameter: Parameter) -> None:
        self.put(("tensorboard",), bool(parameter.value), parameter)

    def variable(self, name: str, parameter: Parameter) -> None:
        if parameter.value not in ("", None):
            self.put(("env", name), _value(name, str(parameter.value)), parameter)

    def nothing(self, parameter: Parameter) -> None:
        """Set nothing for a parameter that is read with another, or that a spec does not need."""


def _value(name: str, text: str) -> object:
    return {"value": text, "override": True} if name in ("DATA_DIR", "CHECKPOINT_DIR") else text
