"""Hints for common exceptions with a message that suggests no solution."""

from __future__ import annotations

import re

from drumline.run.event import Cause

_OWN_PYTHON = "give the run a Python of its own with `environment` in the spec"
_WHICH = "<which>"  # replaced by the interpreter and the reason for its choice, or by nothing if they are not known
_HINTS = {
    r"ModuleNotFoundError: No module named '([\w.]+)'": (
        rf"the Python that ran this{_WHICH} has no `\1`: install it there, activate the environment that has it,"
        f" or {_OWN_PYTHON}"
    ),
    r"ValueError: Error initializing torch\.distributed using env:// rendezvous: environment variable \w+ expected": (
        "a single rank is not given the variables of torchrun: `torch: {rendezvous: always}` in the spec sets them"
    ),
    r"ValueError: Attempt to convert a value \(PerReplica:": (
        "`fit` of Keras 3 does not support several workers (keras#20585): use `strategy()` of"
        " drumline.runtime.tensorflow, or tf-keras; see docs/runtime.md"
    ),
    r"ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator": (
        "`fit` of Keras 3 does not support parameter servers: write a training loop with a ClusterCoordinator, as"
        " `drumline init --template ps` does, or use tf-keras; see docs/runtime.md"
    ),
    r"(?:\w+\.)*TBNotInstalledError: ": (
        "TensorFlow no longer installs TensorBoard, which writes its summaries: `pip install tensorboard`"
    ),
    r"AttributeError: module 'tensorflow' has no attribute 'estimator'": (
        f"TensorFlow 2.16 removed Estimator: install 2.15, or {_OWN_PYTHON}; see docs/examples.md"
    ),
}
_UNREACHABLE = (
    "check the network between the machines, and whether one of them was too busy to answer; with `restart: {lost: 1}`"
    " in the spec the run restarts from its last checkpoint"
)


def hint_for(cause: Cause, python: tuple[str, str] | None = None) -> str:
    """Return the hint for the cause of a failure; empty if there is none.

    `python` is the interpreter that ran the replica, and the reason for its choice.
    """
    for pattern, hint in _HINTS.items():
        if found := re.match(pattern, cause.said):
            which = f", {python[0]} ({python[1]})," if python else ""
            return found.expand(hint).replace(_WHICH, which)
    return _UNREACHABLE if cause.reason == "Unreachable" else ""
