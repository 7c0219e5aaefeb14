"""The frameworks' environments have all packages that their packages require, as after an installation by a user."""

from __future__ import annotations

import subprocess

import pytest

from scaffold.environments import find_python


# The environment of TensorFlow is left out: it has tensorflow-cpu instead of tensorflow, which tf-keras requires.
@pytest.mark.parametrize("environment", ["torch", "jax", "tensorboard"])
def test_constraints_contain_every_required_package(environment: str) -> None:
    argv = [str(find_python(environment)), "-m", "pip", "--disable-pip-version-check", "check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("No broken requirements found.\n", 0)
