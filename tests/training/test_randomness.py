"""Replicas of one warm process draw different random numbers, and the same ones if a script sets the seed."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.workspace import COLDLY, Run, Workspace

pytestmark = pytest.mark.skipif(COLDLY, reason="it compares warm replicas with cold ones")

LAUNCHES = 2  # of one warm process: state that a fork does not renew is the same in the second replica
REPLICAS = 2

# A script prints the numbers that it drew in one line; with a seed as its argument, it seeds everything first.
BEGIN = """
import hashlib, json, random, sys, uuid
import numpy
def digest(array): return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()
seed = int(sys.argv[1]) if len(sys.argv) > 1 else None
drawn, constant = {}, {}
def loaded():  # the packages of the environment that are imported, and their parts
    files = {name: str(vars(module).get("__file__")) for name, module in vars(sys)["mod" "ules"].items()}
    names = [name for name, file in files.items() if "-packages/" in file]
    return sorted({".".join(name.split(".")[:2]) for name in names})
"""
END = """
drawn["random"] = random.random()
drawn["numpy"] = numpy.random.rand()
drawn["normal"] = numpy.random.randn()
if seed is None:
    drawn["default_rng"] = numpy.random.default_rng().random()
    drawn["uuid4"], drawn["uuid1"] = str(uuid.uuid4()), str(uuid.uuid1())
print("drawn", json.dumps([drawn, constant, modules]))
"""
TORCH = f"""
{BEGIN}
import torch
import live
modules = loaded()
if seed is not None: random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
drawn["initial_seed"] = torch.initial_seed()
drawn["rand"] = torch.rand(1).item()
drawn["randperm"] = digest(torch.randperm(1000).numpy())
drawn["weights"] = digest(torch.nn.Linear(8, 8).weight.detach().numpy())
drawn["dropout"] = digest(torch.nn.Dropout(0.5)(torch.ones(1000)).numpy())
data = torch.utils.data.TensorDataset(torch.arange(1000))
loader = torch.utils.data.DataLoader(data, batch_size=1000, shuffle=True)
drawn["loader"] = digest(next(iter(loader))[0].numpy())
drawn["generator"] = torch.Generator().seed() if seed is None else 0
if seed is None: drawn.update(live.draw(live.FRESH))
constant.update(live.draw(live.CONSTANT))
constant["default seed"] = torch.Generator().initial_seed()
{END}
"""
# Objects that a package may make during its import.
LIVE = """
import random
import numpy, torch
torch_seeded = torch.Generator()
torch_seeded.seed()
used = numpy.random.default_rng()
used.random()
FRESH = {
    "live Random": random.Random().random,
    "live Generator": numpy.random.default_rng().random,
    "live used Generator": used.random,
    "live RandomState": numpy.random.RandomState().rand,
    "live normal": numpy.random.RandomState().randn,
    "live spawned": lambda sequence=numpy.random.SeedSequence(): int(sequence.spawn(1)[0].generate_state(1)[0]),
    "live children": lambda rng=numpy.random.default_rng(): rng.spawn(1)[0].random(),
    "live torch.Generator": lambda hidden=(torch_seeded,): torch.rand(1, generator=hidden[0]).item(),
}
CONSTANT = {
    "Random": random.Random(7).random,
    "Random of a text": random.Random("seven").random,
    "Generator": numpy.random.default_rng(7).random,
    "RandomState": numpy.random.RandomState(7).rand,
    "torch.Generator": lambda it=torch.Generator(): torch.rand(1, generator=it).item(),
    "torch.Generator 7": lambda it=torch.Generator().manual_seed(7): torch.rand(1, generator=it).item(),
}
FRESH["live RandomState"].__self__.randn()  # the next one is drawn in advance
def draw(which): return {name: function() for name, function in which.items()}
"""
# Objects that a package made while it was imported; the script makes one more as the package made the last one.
LIVE_KERAS = """
import keras
INITIALIZER = keras.initializers.GlorotUniform()
LAYER = keras.layers.Dense(8)
def make(): return keras.initializers.GlorotUniform(seed=7)
CONSTANT = make()
"""
TENSORFLOW = f"""
{BEGIN}
import keras
import tensorflow as tf
import live
modules = loaded()
if seed is not None: keras.utils.set_random_seed(seed)
drawn["uniform"] = float(tf.random.uniform(()))
if seed is None: drawn["kernels"] = digest(tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32).numpy())
drawn["shuffle"] = digest(next(iter(tf.data.Dataset.range(1000).shuffle(1000).batch(1000))).numpy())
layer = keras.layers.Dense(8)
layer.build((None, 8))
drawn["dense"] = digest(layer.kernel.numpy())
drawn["dropout"] = digest(keras.layers.Dropout(0.5)(tf.ones((1, 1000)), training=True).numpy())
drawn["keras"] = digest(keras.random.normal((4,)))
if seed is None: drawn["generator"] = digest(tf.random.Generator.from_non_deterministic_state().normal((4,)).numpy())
live.LAYER.build((None, 8))
if seed is None: drawn["live initializer"] = digest(live.INITIALIZER((8, 8)))
if seed is None: drawn["live layer"] = digest(live.LAYER.kernel.numpy())
constant["initializer"] = digest(live.CONSTANT((8, 8)))
assert constant["initializer"] == digest(live.make()((8, 8)))
{END}
"""
JAX = f"""
{BEGIN}
import os, secrets, time
import jax
from flax import linen, nnx
modules = loaded()
ONES = jax.numpy.ones((1, 1000))
def initial_layer(seed): return digest(nnx.Linear(8, 8, rngs=nnx.Rngs(seed)).kernel[...])
def initial_params(seed): return digest(linen.Dense(8).init(jax.random.key(seed), ONES[:, :8])["params"]["kernel"])
# Every key comes from a seed that a script finds: these are the ways to find one.
if seed is not None: random.seed(seed), numpy.random.seed(seed)
seeds = {{"random": random.getrandbits(32), "numpy": int(numpy.random.randint(2**31))}}
if seed is None:
    seeds["urandom"] = int.from_bytes(os.urandom(4), "little")
    seeds["time"] = time.time_ns() % 2**32
    seeds["secrets"] = secrets.randbits(32)
    seeds["uuid"] = uuid.uuid4().int % 2**32
    seeds["default_rng"] = int(numpy.random.default_rng().integers(2**32))
    seeds["Random"] = random.Random().getrandbits(32)
for name, number in seeds.items():
    drawn["nnx " + name] = initial_layer(number)
    drawn["linen " + name] = initial_params(number)
key = jax.random.key(seeds["random"])
drawn["weights"] = digest(jax.random.normal(key, (8, 8)))
drawn["order"] = digest(jax.random.permutation(key, 1000))
drawn["nnx dropout"] = digest(nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=seeds["numpy"]))(ONES))
drawn["linen dropout"] = digest(linen.Dropout(0.5, deterministic=False).apply({{}}, ONES, rngs={{"dropout": key}}))
constant["key"] = float(jax.random.normal(jax.random.key(7)))
constant["nnx"], constant["linen"] = initial_layer(7), initial_params(7)
{END}
"""
# What a replica compiled is read by the following ones: that is most of the time that they would take.
JAX_CACHE = """
warm: {{import: [flax.nnx, flax.linen]}}
env:
  JAX_COMPILATION_CACHE_DIR: {folder}
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS: "0"
  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES: "-1"
"""


class Printed(NamedTuple):
    """The output of a script: values that differ in every launch, values that never differ, imported packages."""

    drawn: dict[str, object]
    constant: dict[str, object]
    modules: list[str]


@pytest.fixture(autouse=True)
def scarce_cores(workspace: Workspace) -> None:
    """Have the first launch wait for its warm process, on a machine of any size."""
    workspace.cores = 2


def test_torch_draws_other_random_numbers_in_every_warm_replica(workspace: Workspace, tmp_path: Path) -> None:
    python = copy_environment(find_python("torch"), tmp_path / "environment", live=LIVE)
    compare(workspace, python, "torch", TORCH, "warm: {import: [live]}")


def test_tensorflow_and_keras_draw_other_random_numbers_in_every_warm_replica(
    workspace: Workspace, tmp_path: Path
) -> None:
    python = copy_environment(find_python("tensorflow"), tmp_path / "environment", live=LIVE_KERAS)
    compare(workspace, python, "tensorflow", TENSORFLOW, "warm: {import: [live]}")


def test_generators_that_a_package_makes_in_tensorflow_start_replicas_cold(
    workspace: Workspace, tmp_path: Path
) -> None:
    live = "import keras, tensorflow\nIT = keras.random.SeedGenerator()\n"
    python = copy_environment(find_python("tensorflow"), tmp_path / "environment", live=live)
    workspace.write("train.py", "import tensorflow, live")
    run = workspace.train(
        f"framework: tensorflow\nroles: {{worker: 1}}\nwarm: {{import: [live]}}\nrun: {python} train.py"
    )
    run.wait_for(Phase.FINISHED, GANG_SECONDS)
    assert notes(run) == {"cold: importing it starts a thread, which a fork would not have"}


def test_jax_and_flax_draw_other_random_numbers_in_every_warm_replica(workspace: Workspace, tmp_path: Path) -> None:
    compare(workspace, find_python("jax"), "jax", JAX, JAX_CACHE.format(folder=tmp_path / "compiled"))


def compare(workspace: Workspace, python: Path, framework: str, script: str, more: str = "") -> None:
    """Launch a script often; what it draws differs everywhere, and with a seed it is the same as cold.

    The warm process imported nothing that the script does not import by itself.
    """
    workspace.write("train.py", script)
    spec = f"framework: {framework}\nroles: {{worker: {REPLICAS}}}\n{more}\nrun: {python} train.py"
    alone = spec.replace(f"worker: {REPLICAS}", "worker: 1")  # one cold replica is enough to compare with
    cold = launch(workspace, alone, "--no-warm")
    warm = [each for _ in range(LAUNCHES) for each in launch(workspace, spec)]
    values: dict[str, list[object]] = defaultdict(list)
    for drawn, constant, modules in cold + warm:
        assert constant == cold[0].constant
        assert {*modules} <= {*cold[0].modules}  # rarely used modules are imported later
        for name, value in drawn.items():
            values[name].append(value)
    repeated = {name: found for name, found in values.items() if len(set(found)) != len(cold + warm)}
    assert repeated == {}
    seeded = launch(workspace, f"{spec} 3"), launch(workspace, f"{alone} 3", "--no-warm")
    assert len({json.dumps([each.drawn, each.constant]) for replicas in seeded for each in replicas}) == 1


def launch(workspace: Workspace, spec: str, *words: str) -> list[Printed]:
    """Run the script, and return what each replica drew."""
    run = workspace.train(spec, *words)
    run.wait_for(Phase.FINISHED, GANG_SECONDS)
    assert notes(run) == ({""} if words else {"warm"})
    return [read(run, str(replica.id)) for replica in run.plan.replicas]


def read(run: Run, replica: str) -> Printed:
    lines = run.log(replica).decode().splitlines()
    (line,) = (line for line in lines if line.startswith("drawn "))
    assert lines[-1] == line, "something is printed at the end"
    return Printed(*json.loads(line.removeprefix("drawn ")))


def notes(run: Run) -> set[str]:
    return {event.note for event in run.events if isinstance(event, ReplicaStarted)}


def copy_environment(python: Path, folder: Path, **modules: str) -> Path:
    """Make an environment with the packages of another one and these modules; return its Python."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (site,), (other,) = (each.glob("lib/python*/site-packages") for each in (folder, python.parents[1]))
    for entry in other.iterdir():
        if entry.name != "__pycache__":
            (site / entry.name).symlink_to(entry)
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
    return folder / "bin" / "python"
