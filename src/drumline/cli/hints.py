"""What to do about an error that people meet again and again, and whose words do not say it."""

from __future__ import annotations

import re

from drumline.run.event import Cause

_OWN_PYTHON = "let the run have a Python of its own, with `environment` in the spec"
_WHICH = "<which>"  # replaced by the interpreter and why it was chosen, where that is known
_REMEDIES = {
    r"ModuleNotFoundError: No module named '([\w.]+)'": (
        rf"the Python that ran this{_WHICH} has no `\1`: install it there, activate the environment that has it,"
        f" or {_OWN_PYTHON}"
    ),
    r"ValueError: Error initializing torch\.distributed using env:// rendezvous: environment variable \w+ expected": (
        "a rank that is alone has no variables of torchrun: `torch: {rendezvous: always}` in the spec sets them"
    ),
    r"ValueError: Attempt to convert a value \(PerReplica:": (
        "Keras 3 cannot `fit` with several workers by itself (keras#20585): with `strategy()` of"
        " drumline.runtime.tensorflow it can, and so can tf-keras; see docs/runtime.md"
    ),
    r"ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator": (
        "Keras 3 cannot `fit` with parameter servers: take a loop of your own with a ClusterCoordinator, as"
        " `drumline init --template ps` writes it, or tf-keras; see docs/runtime.md"
    ),
    r"(?:\w+\.)*TBNotInstalledError: ": (
        "TensorFlow no longer brings TensorBoard, which writes its summaries: `pip install tensorboard`"
    ),
    r"AttributeError: module 'tensorflow' has no attribute 'estimator'": (
        f"Estimator is gone since TensorFlow 2.16: install 2.15, or {_OWN_PYTHON}; see docs/examples.md"
    ),
}
_UNREACHABLE = (
    "look at the network between them, and whether a machine was too busy to answer; with `restart: {lost: 1}` in the"
    " spec such a line starts again, from its last checkpoint"
)


def hint_for(cause: Cause, python: tuple[str, str] | None = None) -> str:
    """What helps against a replica's last word, or against this kind of end; nothing where that is in doubt.

    `python` is the interpreter that ran it, and why this one.
    """
    for pattern, words in _REMEDIES.items():
        if found := re.match(pattern, cause.said):
            which = f", {python[0]} ({python[1]})," if python else ""
            return found.expand(words).replace(_WHICH, which)
    return _UNREACHABLE if cause.reason == "Unreachable" else ""
