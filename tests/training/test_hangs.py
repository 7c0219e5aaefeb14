"""Gangs of real frameworks that hang: the rank that the others wait for is named with its position in the code."""

from __future__ import annotations

from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from drumline.run.traces import STACKS
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.workspace import COMMAND, Run, Workspace

TORCH = """
import time
import torch, torch.distributed as dist

def load_batch(step):
    if step == 2 and dist.get_rank() == 1:
        time.sleep(1000)
    return torch.ones(4)

dist.init_process_group("gloo")
for step in range(9):
    loss = load_batch(step).sum()
    dist.all_reduce(loss)
    print("step", step, "loss", loss.item())
"""

TENSORFLOW = """
import json, os, sys, time
import tensorflow as tf
task = json.loads(os.environ["TF_CONFIG"])["task"]
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()

def read_files():
    time.sleep(1000)

# It reports until another is about to wait for it, however long that takes on a busy machine.
comes = os.path.join(os.environ["OUTPUT_DIR"], "comes")
if [task["type"], str(task["index"])] == sys.argv[1:]:
    while not os.path.exists(comes):
        print("looking for files", flush=True)
        time.sleep(0.1)
    read_files()
if task["type"] == "worker" and resolver.cluster_spec().num_tasks("worker") == 1:
    tf.distribute.Server(resolver.cluster_spec(), job_name="worker", task_index=0, protocol="grpc").join()
open(comes, "w").close()
if task["type"] == "chief":
    tf.distribute.ParameterServerStrategy(resolver)
else:
    tf.distribute.MultiWorkerMirroredStrategy()
"""


def train(workspace: Workspace, framework: str, script: str, words: str, spec: str) -> Run:
    """Run a gang until it has failed."""
    workspace.write("script.py", script)
    python = find_python(framework)
    workspace.write_spec(f"framework: {framework}\nrun: {python} script.py {words}\ntensorboard: false\n{spec}")
    # The framework's environment has no py-spy, so that Python's faulthandler has to print the stacks.
    program = (str(python), "-m", "drumline") if framework == "tensorflow" else COMMAND
    command = workspace.command("train", "-d", program=program)
    out, err = command.communicate(timeout=GANG_SECONDS)
    assert command.returncode == 0, err
    run = Run(workspace, out.split()[-1])
    run.wait_for(Phase.FAILED, GANG_SECONDS)
    return run


def test_a_sleeping_rank_of_torch_is_the_cause_of_a_hang_of_the_others_in_all_reduce(workspace: Workspace) -> None:
    run = train(workspace, "torch", TORCH, "", "roles: {worker: 2}\ntimeouts: {progress: 4s, grace: 1s}")
    assert (str(run.cause.replica), run.cause.reason) == ("worker.1", "Hung")
    assert run.cause.exit.message.endswith("(script.py:7), worker.0 waits in all_reduce")
    assert "load_batch" in (run.trace_dir("worker.1") / STACKS).read_text()


def test_a_replica_that_tensorflow_waits_for_until_the_timeout_is_the_cause(workspace: Workspace) -> None:
    timeouts = "timeouts: {rendezvous: 5s, progress: never, grace: 1s}"
    run = train(workspace, "tensorflow", TENSORFLOW, "worker 1", f"roles: {{worker: 2}}\n{timeouts}")
    assert (str(run.cause.replica), run.cause.reason) == ("worker.1", "RendezvousTimeout")
    assert f"worker.1 does not listen on {addresses(run)[1]}: " in run.cause.exit.message
    assert "worker.1 is in read_files (script.py:8), worker.0 waits in " in run.cause.exit.message
    assert run.replica_phase("worker.0") is Phase.KILLED
    # The chief of a gang with parameter servers would wait for ever without output.
    run = train(workspace, "tensorflow", TENSORFLOW, "ps 0", f"roles: {{chief: 1, worker: 1, ps: 1}}\n{timeouts}")
    assert (str(run.cause.replica), run.cause.failure) == ("ps.0", "rendezvous")
    assert f"ps.0 does not listen on {addresses(run)[2]}: " in run.cause.exit.message
    assert "ps.0 is in read_files (script.py:8), chief.0 waits in " in run.cause.exit.message


def addresses(run: Run) -> tuple[str, ...]:
    return next(event.addresses for event in run.events if isinstance(event, AttemptPlaced))
