"""The top of a template for several workers, as a spec: what its Services and Jobs would have trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drumline.spec.dialect.draft import Draft
from drumline.spec.dialect.jinja import Parameter, Template
from drumline.spec.spot import Spot

# Of the templates' siblings, these became variables of the program.
_VARIABLES = {
    "data_dir": "DATA_DIR",
    "model_dir": "MODEL_DIR",
    "log_dir": "LOG_DIR",
    "train_log_dir": "TRAIN_LOG_DIR",
    "batch_size": "BATCH_SIZE",
    "num_train_epoch": "NUM_TRAIN_EPOCH",
}
_SIZE = "10GB"


def translate(template: Template) -> Draft:
    """The spec that a template's parameters come to; raise SpecError where its rules are broken."""
    template.check()
    draft = Draft("the Jinja templates of tensorflow/ecosystem", Spot(template.source, 1))
    if "worker_replicas" not in template.parameters or "script" not in template.parameters:
        draft.refuse(draft.spot, "sets no `worker_replicas` and no `script`: only a template that does can be a spec")
        return draft
    _Translation(template, draft).translate()
    return draft


class _Translation:
    """One template on its way to a draft."""

    def __init__(self, template: Template, draft: Draft) -> None:
        self.template = template
        self.draft = draft
        self.known: dict[str, Callable[[Parameter], None]] = {
            "name": self.name,
            "image": self.image,
            "worker_replicas": self.workers,
            "ps_replicas": self.servers,
            "has_coordinator": self.role("chief"),
            "has_eval": self.role("evaluator"),
            "script": self.script,
            "cmdline_args": self.nothing,  # with the script
            "port": self.port,
            "model_checkpoint_dir": self.output,
            "checkpoint_pvc_name": self.claim,
            "deploy": self.nothing,  # passes of the template: a spec always trains
            "create_pvc_checkpoint": self.nothing,
            "create_volume_inspector": self.inspector,
            "has_tensorboard": self.tensorboard,
            "run_tensorboard": self.tensorboard,
        }

    def translate(self) -> None:
        for name, parameter in self.template.parameters.items():
            if name in self.known:
                self.known[name](parameter)
            elif name in _VARIABLES:
                self.variable(_VARIABLES[name], parameter)
            else:
                self.draft.lose(parameter.spot, "is not carried over")

    def put(self, path: tuple[str, ...], value: object, parameter: Parameter, note: str = "") -> None:
        self.draft.put(path, value, parameter.spot, note)

    def name(self, parameter: Parameter) -> None:
        self.put(("project",), parameter.value, parameter)
        self.put(("framework",), "tensorflow", parameter)

    def image(self, parameter: Parameter) -> None:
        self.put(("engine", "default"), "local", parameter, "In a cluster with `--on kubernetes`, `jobset` or `tfjob`.")
        self.put(("engine", "kubernetes", "image"), parameter.value, parameter)
        self.put(("engine", "kubernetes", "code"), False, parameter, "The image has the code, as it had.")

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
        self.put(("output",), parameter.value, parameter, "OUTPUT_DIR names it, so that no program has to know it.")

    def claim(self, parameter: Parameter) -> None:
        if not parameter.value:
            return
        if self.template.value("create_pvc_checkpoint"):
            note = f"A claim of the run's own, which stays when it is over; `{parameter.value}` there."
            self.put(("engine", "kubernetes", "output", "size"), _SIZE, parameter, note)
        else:
            self.put(("engine", "kubernetes", "output", "claim"), parameter.value, parameter)

    def inspector(self, parameter: Parameter) -> None:
        if parameter.value:
            self.draft.lose(
                parameter.spot, "needs no pod of its own: `drumline inspect ID` looks at what a run has written"
            )

    def tensorboard(self, parameter: Parameter) -> None:
        self.put(("tensorboard",), bool(parameter.value), parameter)

    def variable(self, name: str, parameter: Parameter) -> None:
        if parameter.value not in ("", None):
            value = str(parameter.value)
            own = {"value": value, "override": True} if name == "DATA_DIR" else value
            self.put(("env", name), own, parameter)

    def nothing(self, parameter: Parameter) -> None:
        """Said elsewhere, or by being here at all."""
