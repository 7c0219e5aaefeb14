"""Real TensorFlow over several hosts: the same spec, the same script and the same numbers as on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drumline.run.state import Phase
from hosts.host_cluster import SHARED, HostCluster
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import accuracies, losses
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

LONG_SECONDS = 900.0
pytestmark = pytest.mark.timeout(2400)  # an epoch takes many seconds on a busy machine


def bring(workspace: Workspace, workers: int, engine: str) -> None:
    """Write the template for Keras of `drumline init`, with this engine."""
    assert workspace.run("init", "--template", "keras", ".").code == 0
    spec = (workspace.project / "drumline.yml").read_text().replace("worker: 2", f"worker: {workers}")
    workspace.write("drumline.yml", f"{spec}\nengine: {engine}\n")


def on_hosts(names: str, **options: str) -> str:
    more = "".join(f", {key}: {value}" for key, value in options.items())
    return f"{{ssh: {{hosts: [{names}], python: {find_python('tensorflow')}{more}}}}}"


def train(workspace: Workspace, *words: str) -> Run:
    answer = workspace.run("train", "--no-warm", *words, seconds=LONG_SECONDS)
    assert answer.code == 0, answer.out + answer.err
    (run,) = workspace.runs()
    run.wait_for(Phase.FINISHED)  # and its supervisor has exited: the chief's output is fetched
    return run


def learnt(run: Run, attempt: int = 0) -> dict[int, float]:
    """Return the loss of each epoch, which is equal for all workers."""
    workers = [str(each.id) for each in run.folder.plan().replicas]
    found = [losses(run.log(worker, attempt).decode()) for worker in workers]
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_on_several_hosts_learn_the_same_as_on_one_machine(
    workspace: Workspace, host_cluster: HostCluster, tmp_path: Path, workers: int
) -> None:
    here = Workspace(tmp_path / "here")
    here.env["PYTHONPATH"] = str(ROOT / "src")  # on hosts, drumline sends the runtime
    bring(here, workers, "local")
    spec = (here.project / "drumline.yml").read_text()
    here.write("drumline.yml", spec.replace("run: python", f"run: {find_python('tensorflow')}"))
    expected = train(here)
    bring(workspace, workers, on_hosts(", ".join(host_cluster.names[:workers])))
    run = train(workspace)
    assert list(learnt(run)) == [1, 2, 3, 4]
    assert learnt(run) == pytest.approx(learnt(expected), rel=1e-5)
    first = run.log("worker.0").decode()
    assert accuracies(first) == pytest.approx(accuracies(expected.log("worker.0").decode()), abs=0.002)
    # The chief's files are fetched.
    assert (run.path / "output" / "model.keras").stat().st_size == pytest.approx(
        (expected.path / "output" / "model.keras").stat().st_size, rel=0.01
    )
    here.leave()


def test_a_training_continues_from_its_checkpoint_on_the_remaining_hosts(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    bring(workspace, 3, on_hosts("h1, h2, h3", shared=SHARED, lost="15s", lease="30s") + "\nrestart: {lost: 1}")
    answer = workspace.run("train", "-d", "--no-warm", "-p", "epochs=15")
    assert answer.code == 0, answer.err
    run = Run(workspace, answer.out.strip())
    wait_until(lambda: len(losses(run.log("worker.0").decode())) >= 2, LONG_SECONDS)
    host_cluster.link("h3", up=False)
    run.wait_for(Phase.FINISHED, LONG_SECONDS)
    (cause,) = run.state.causes
    assert (str(cause.replica), cause.reason, cause.failure) == ("worker.2", "HostLost", "lost")
    before, after = losses(run.log("worker.0").decode()), learnt(run, 1)
    assert min(after) >= 2
    assert max(after) == 15
    assert after[15] < before[1]
    host_cluster.wait_idle("h3", 60)


def test_parameter_servers_end_with_the_chief(workspace: Workspace, host_cluster: HostCluster) -> None:
    shutil.copytree(ROOT / "examples" / "parameter_server", workspace.project, dirs_exist_ok=True)
    spec = (workspace.project / "drumline.yml").read_text()
    workspace.write("drumline.yml", f"{spec}\nengine: {on_hosts('h1, h2, h3', shared=SHARED)}\n")
    run = train(workspace)
    assert {state.phase for state in run.state.replicas.values()} == {Phase.FINISHED}
