"""What a warm process imports, and that its replicas print what cold ones print."""

from __future__ import annotations

import pytest

from drumline.run.event import ReplicaStarted
from integration.local.runs import COLDLY, House
from training.examples import said, train_to_the_end
from training.line import find_python

pytestmark = pytest.mark.skipif(COLDLY, reason="it is about what is warm")

# It must neither name who is imported for a few, nor where Python keeps what is loaded: both are looked for before.
SCRIPT = """
import sys
import keras, tensorflow
rare, loaded = "sk" "learn", vars(sys)["mod" "ules"]
print("begun")
print("loaded", rare in loaded)
print(type(keras.wrappers), keras.wrappers is tensorflow.keras.wrappers, type(keras.wrappers.__loader__))
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(tensorflow.ones((4, 3)), tensorflow.ones((4, 1)), verbose=0)
print("trained", rare in loaded)
print(dir(keras.wrappers), getattr(keras.wrappers, "SK" "LearnClassifier").__mro__)
print("used", rare in loaded)
"""


def test_what_takes_long_and_few_use_is_executed_for_who_uses_it(house: House) -> None:
    cold, cold_said = run(house, SCRIPT, "--no-warm")
    quick, quick_said = run(house, SCRIPT)
    known, known_said = run(house, f"{SCRIPT}# uses SKLearnClassifier\n")
    assert (cold, quick, known) == ("", "warm", "warm")
    assert known_said == cold_said
    for line in ("loaded", "trained", "used"):
        assert f"{line} True\n" in cold_said
    cold_said = cold_said.replace("loaded True", "loaded False").replace("trained True", "trained False")
    assert quick_said == cold_said


# triton's library prints a report at the end of a process in which the objects of an import are not collected.
COMPILES = """
import torch
compiled = torch.compile(lambda number: number * 2 + 1, backend="eager")
print(compiled(torch.ones(2)))
import triton
print(triton.language.float32)
"""
IMPORTS = """
import torch
print(torch.ones(2))
"""


@pytest.mark.parametrize(("script", "more"), [(COMPILES, ""), (IMPORTS, "warm: {import: [triton]}")])
def test_a_warm_replica_of_torch_prints_what_a_cold_one_prints_to_its_end(house: House, script: str, more: str) -> None:
    house.cores = 1  # then the first launch waits for its warm process
    cold, printed = train(house, script, "torch", more, "--no-warm")
    assert "tensor" in printed
    assert train(house, script, "torch", more) == ("warm", printed)
    assert cold == ""


def run(house: House, script: str, *words: str) -> tuple[str, str]:
    """How a script was started, and what it said."""
    note, printed = train(house, script, "tensorflow", "", *words)
    return note, printed.partition("begun\n")[2]  # behind TensorFlow's own words, which have a time


def train(house: House, script: str, framework: str, more: str, *words: str) -> tuple[str, str]:
    """Run a script to its end; return how its replica was started, and everything that it printed."""
    house.write("train.py", script)
    house.write(
        "drumline.yml",
        f"project: few\nframework: {framework}\nrun: {find_python(framework)} train.py\nroles: {{worker: 1}}\n{more}\n",
    )
    trained = train_to_the_end(house, *words)
    (note,) = {event.note for event in trained.events if isinstance(event, ReplicaStarted)}
    return note, said(trained, "worker.0")
