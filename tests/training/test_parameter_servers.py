"""The examples with parameter servers, trained by `drumline train`; their losses and accuracies are checked."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from io import BytesIO

import pytest

from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from drumline.runtime.progress import read_report
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import GANG_SECONDS, accuracies, losses, run
from scaffold.workspace import Run, Workspace
from training.loopback import serving

SERVERS = ("worker.0", "worker.1", "ps.0", "ps.1")

# The example with three incarnations of the chief. In the first it is alone (`python parameter_server.py`), killed in
# its second epoch. In the second it has its workers, which print their rows; one of them is killed after the
# third epoch, and a ps in the fourth. When the chief is done, it waits for the evaluator, which loads the model and
# then trains alone, from the chief's last checkpoint.
STAGED = """
import json, os, signal, time
from pathlib import Path
from drumline import runtime

incarnation = int(os.environ.get("DRUMLINE_INCARNATION", 0))
if runtime.role() == "chief" and incarnation == 0:
    del os.environ["TF_CONFIG"]

import tensorflow as tf
import parameter_server as example

report, make_batches = runtime.report, example.make_batches

def kill(replica):
    notes = (Path(os.environ["DRUMLINE_TRACE"]).parent / replica / "keeper").read_text().splitlines()
    (pid,) = (note["pid"] for note in map(json.loads, filter(None, notes)) if "pid" in note)
    os.kill(pid, signal.SIGKILL)

def report_and_fall(step, **values):
    report(step=step, **values)
    falls = {(0, 2): "chief.0", (1, 3): "worker.1", (1, 4): "ps.1"}
    if (incarnation, step) in falls:
        kill(falls[incarnation, step])

def tell(images, labels):
    names = tf.map_fn(tf.io.serialize_tensor, images, fn_output_signature=tf.string)
    tf.print("rows", tf.strings.to_hash_bucket_fast(names, 2**62), summarize=-1)
    return images, labels

def come_to(point, *, wait_for):
    Path(point).touch()
    while not Path(wait_for).exists():
        time.sleep(0.01)

runtime.report = report_and_fall
example.make_batches = lambda *args, seed: make_batches(*args, seed=seed).map(tell)
example.main()
if runtime.role() == "chief":
    come_to("saved", wait_for="loaded")
else:
    come_to("evaluated", wait_for="saved")
    model = tf.keras.models.load_model(runtime.output_dir() / "model.keras")
    print("loaded", example.accuracy(model, *example.load_digits()[2:]))
    del os.environ["TF_CONFIG"]
    example.train(7, 0.005)
    come_to("loaded", wait_for="saved")
"""

# Loads the model that the gang has saved, and then trains in one process from the beginning.
BEGIN = """
import json, sys
import tensorflow as tf
import train
train.show(tf.keras.models.load_model("{output}/model.keras"), json.load(open("{output}/vocabulary.json")))
print("alone")
sys.argv = ["train.py", "--epochs", "1"]
train.main()
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.env["no_proxy"] = "127.0.0.1"
    return workspace


def train(workspace: Workspace, spec: str, *words: str) -> Run:
    """Train an example, with its files in the project, to its end."""
    python = find_python("tensorflow")
    spec = re.sub(r"\bpython (\w+\.py)", rf"{python} \1", spec)
    workspace.write("here.yml", f"{spec}\ntensorboard: false\n")
    answer = workspace.run("train", "-d", "here.yml", *words)
    assert answer.code == 0, answer.err
    started = Run(workspace, answer.out.strip())
    try:
        started.wait_for(Phase.FINISHED, GANG_SECONDS)
    except AssertionError as error:
        attempt, replicas = started.state.attempt, started.folder.plan().replicas
        tails = (f"{each.id}\n{said(started, str(each.id), attempt)[-3000:]}" for each in replicas)
        pytest.fail("\n--- ".join((str(error), said(started, "prepare"), *tails)))
    # Parameter servers were stopped, which is no failure. The workspace asserts that no process is left.
    assert {started.replica_phase(replica) for replica in SERVERS} == {Phase.FINISHED}
    return started


def run_alone(workspace: Workspace, code: str, **env: str) -> str:
    """Run lines of Python in the project, without drumline except its runtime."""
    known = {name: workspace.env[name] for name in ("PATH", "PYTHONPATH")}
    return run([str(find_python("tensorflow")), "-c", code], workspace.project, {**known, **env})


def said(run: Run, replica: str, incarnation: int = 0) -> str:
    return run.log(replica, 0, incarnation).decode(errors="replace")


def sizes(output: str) -> dict[str, int]:
    """Return the size of the variables on each replica."""
    return {place: int(size) for place, size in re.findall(r"^(.*) holds (\d+) numbers$", output, re.MULTILINE)}


def rows(output: str) -> list[str]:
    """Return the names of the rows that a worker has used, in their order."""
    return [name for line in re.findall(r"^rows \[(.*)\]$", output, re.MULTILINE) for name in line.split()]


def test_the_parameter_server_example_learns_also_when_replicas_fail(workspace: Workspace) -> None:
    shutil.copytree(ROOT / "examples" / "parameter_server", workspace.project, dirs_exist_ok=True)
    workspace.write("staged.py", STAGED)
    spec = (workspace.project / "drumline.yml").read_text()
    spec = spec.replace("parameter_server.py", "staged.py").replace("grace: 10s", "grace: 1s")
    spec = spec.replace("restart: 3", "restart: {crash: 3, backoff: {initial: 0s}}")
    trained = train(workspace, spec, "-p", "epochs=6")

    # One process trains without workers and parameter servers.
    alone, chief, third = said(trained, "chief.0"), said(trained, "chief.0", 1), said(trained, "chief.0", 2)
    assert list(losses(alone)) == [1, 2]
    assert len(rows(alone)) == 2 * 1536
    assert sizes(alone).keys() == {"this process"}

    # A killed chief is restarted, uses the running workers and ps, and continues after the saved epoch.
    assert trained.state.attempt == 0
    assert [tuple(map(str, each.replicas)) for each in trained.state.revivals] == [
        ("chief.0",),
        ("worker.1",),
        ("chief.0", "worker.0", "worker.1", "ps.0", "ps.1"),
    ]
    assert "resumed after epoch 1\n" in chief
    assert list(losses(chief)) == [2, 3, 4]
    assert losses(chief)[2] < losses(alone)[1]
    assert losses(chief)[3] < losses(chief)[2]

    # A killed worker is restarted and takes part again: its steps of that epoch are repeated. When a ps is
    # killed, all replicas except the evaluator continue after the last saved epoch.
    assert "resumed after epoch 3\n" in third
    assert list(losses(third)) == [4, 5, 6]
    assert losses(third)[6] < losses(chief)[3]
    assert rows(said(trained, "worker.1", 1))
    report = read_report(trained.trace_dir("chief.0", 0, 2) / "report")
    assert report
    assert report.values == pytest.approx({"loss": losses(third)[6]}, abs=1e-6)

    # Every variable is on a parameter server, and each parameter server has some.
    assert sizes(chief).keys() == {"ps.0", "ps.1"}
    assert sum(sizes(chief).values()) == sum(sizes(alone).values())

    # Each worker gets its own half of the rows, each row once per epoch.
    assert chief.count(", 1536 rows\n") >= 2
    first, second = (rows(said(trained, worker))[: 2 * 768] for worker in ("worker.0", "worker.1"))
    assert len(first) == len(second) == 2 * 768
    for each in (first, second):
        assert set(each[:768]) == set(each[768:])
        assert each[:768] != each[768:], "the second epoch has another order"
    assert len({*first, *second}) == 1536
    assert {*first, *second} == set(rows(alone))

    # The evaluator, the chief and a process that loads the saved model have the same accuracy.
    output, evaluator = trained.path / "output", said(trained, "evaluator.0")
    (accuracy,) = re.findall(rf"^saved {output}/model.keras, accuracy (.*)$", third, re.MULTILINE)
    assert accuracies(evaluator)[6] == float(accuracy) > 0.7
    assert float(re.findall(r"^loaded (.*)$", evaluator, re.MULTILINE)[0]) == pytest.approx(float(accuracy), abs=1e-4)
    assert "resumed after epoch 6\n" in evaluator
    assert list(losses(evaluator)) == [7]
    assert losses(evaluator)[7] < losses(chief)[3]
    assert {path.name for path in output.iterdir()} == {"checkpoint", "model.keras", "summaries"}


def test_the_issue_summarization_example_downloads_and_prepares_its_data_once_and_learns(workspace: Workspace) -> None:
    shutil.copytree(ROOT / "examples" / "issue_summarization", workspace.project, dirs_exist_ok=True)
    spec = (workspace.project / "drumline.yml").read_text()
    made_up = run_alone(workspace, "import prepare, pathlib; prepare.prepare(pathlib.Path('.'))")
    assert "made up 6000 issues" in made_up
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(workspace.project / "github_issues.csv", "github_issues.csv")
    for path in ("github_issues.csv", "vocabulary.json", "train.txt", "held_out.txt"):
        (workspace.project / path).unlink()

    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    with serving(packed.getvalue(), "github-issues.zip") as site:
        site.cut = len(site.content) // 2
        parameters = (f"url={site.url}", f"sha256={digest}", "issues=1500", "epochs=3")
        trained = train(workspace, spec, *(word for each in parameters for word in ("-p", each)))
        assert site.ranges == ["", f"bytes={len(site.content) // 2}-"]
        # The next run uses the existing data; its ps serve until the chief has ended.
        other = re.sub(r"run: python train.py (.*)", r"run: '[ $DRUMLINE_ROLE = chief ] || sleep 1000; echo \1'", spec)
        again = train(workspace, other, *(word for each in parameters for word in ("-p", each)))
        assert len(site.ranges) == 2
    assert said(trained, "prepare").count("built the vocabulary: ") == 1
    assert "1350 issues to learn from, 150 held out" in said(trained, "prepare")
    assert "exists" in said(again, "prepare")
    assert "vocabulary" not in said(again, "prepare")
    # No replica had started before.
    done = next(place for place, event in enumerate(trained.events) if isinstance(event, ReplicaExited))
    begun = [str(event.replica) for event in trained.events[:done] if isinstance(event, ReplicaStarted)]
    assert begun == ["prepare"]

    chief = said(trained, "chief.0")
    assert sizes(chief).keys() == {"ps.0", "ps.1"}
    assert list(losses(chief)) == [1, 2, 3]
    assert losses(chief)[3] < losses(chief)[1] / 2
    assert chief.count(", 1350 issues\n") == 3
    check_summaries(chief)

    # A process that loads the model has the same results, and one process alone can train, too.
    output = trained.path / "output"
    code, mine = BEGIN.format(output=output), str(workspace.project / "alone")
    loaded, alone = run_alone(workspace, code, DATA_DIR=str(workspace.project / "data"), OUTPUT_DIR=mine).split(
        "alone\n", 1
    )
    assert loaded in chief
    assert sizes(alone).keys() == {"this process"}
    assert list(losses(alone)) == [1]
    assert alone.count("summary: ") == 5


def check_summaries(output: str) -> None:
    """Check the printed results on held-out issues: the titles depend on the bodies."""
    (right, wrong) = (float(loss) for loss in re.findall(r"^held out.*: loss (.*)$", output, re.MULTILINE))
    assert wrong > right + 0.4
    pairs = re.findall(r"^title: +(.*)\nsummary: +(.*)$", output, re.MULTILINE)
    assert len(pairs) == 5
    # The model first learns which of seven things an issue is about.
    assert len([title for title, summary in pairs if title.split()[:2] == summary.split()[:2]]) >= 3
