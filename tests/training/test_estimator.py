"""The example for Estimator, trained by `drumline train` in the environment of its spec."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.run.state import Phase
from drumline.runtime.environment import is_ready
from scaffold.environments import ROOT
from scaffold.rendered_gang import run
from scaffold.workspace import Run, Workspace
from training.examples import open_workspace, said, train_to_the_end

STEPS = 48  # of each process: 1152 rows in batches of 32, four times, by three processes
TRAINING = ("chief.0", "worker.0", "worker.1")
ALL_REPLICAS = (*TRAINING, "ps.0", "ps.1")

# Train as the example does, and print at the end which rows each step used.
WATCHED = """
import collections, hashlib, json
import tensorflow as tf
import issue_summarization as example

class Watching(example.OwnSteps):
    def begin(self):
        super().begin()
        self.rows = collections.Counter()
        operations = tf.compat.v1.get_default_graph().get_operations()
        (queue,) = (each for each in operations if each.type.startswith("QueueDequeue"))
        self.columns = queue.outputs[1:]  # the first is a row's number

    def before_run(self, context):
        return tf.estimator.SessionRunArgs(self.columns)

    def after_run(self, context, values):
        self.rows.update(hashlib.sha256(b"".join(map(bytes, row))).hexdigest()[:16] for row in zip(*values.results))
        super().after_run(context, values)

    def end(self, session):
        super().end(session)
        print("rows", json.dumps(self.rows), flush=True)

example.OwnSteps = Watching
example.main()
"""

# Evaluate the trained model on the test data, and write titles for some of it; check that real issues are read from
# their file.
READ = """
import numpy as np, tensorflow as tf
issues = example.load_issues(1280)
bodies, titles = zip(*issues)
words = example.number_words(bodies, example.BODY_WORDS), example.number_words(titles, example.TITLE_WORDS)
body = example.encode(bodies, words[0], example.BODY_LENGTH)[-128:]
title = example.encode(titles, words[1], example.TITLE_LENGTH, marks=True)[-128:]
serve = tf.saved_model.load("{path}").signatures["serving_default"]
chances = serve(body=tf.constant(body), title=tf.constant(title[:, :-1]))["next_word"]
print("loss", np.mean(tf.keras.losses.sparse_categorical_crossentropy(title[:, 1:], chances)))
write_title = example.make_writer("{path}", words[1])
print("right", sum(write_title(row) == wanted for row, wanted in zip(body[:20], titles[-128:])))
with open("github_issues.csv", "w") as file:
    file.write("issue_url,issue_title,body\\nhttp://a,It fails,\\"Since today,\\nit fails\\"\\n")
print("real", example.load_issues(5))
"""


@pytest.fixture
def workspace(tmp_path: Path, warmth: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path, warmth) as place:
        # Where `scripts/environment --example` built it. The runtime comes with the environment, as for a user.
        cache = os.environ.get("DRUMLINE_CACHE") or Path.home() / ".cache" / "drumline-dev"
        place.env["XDG_CACHE_HOME"] = str(Path(cache).absolute())
        del place.env["PYTHONPATH"]
        yield place


def test_an_estimator_trains_on_a_master_and_two_workers_and_its_model_writes_titles(
    workspace: Workspace,
) -> None:
    trained = train(workspace)
    check_rows_and_steps(trained)
    check_exits(trained)

    # One process with the same data and as many steps, which then loads the model that the gang has saved.
    (path,) = (trained.path / "output" / "saved_model").iterdir()
    assert f"saved {path}" in said(trained, "chief.0")
    alone = train_alone(workspace, WATCHED + READ.format(path=path))
    assert f"took {3 * STEPS} steps of its own; step {3 * STEPS} of all" in alone
    assert rows_of(alone) == sum((rows_of(said(trained, each)) for each in TRAINING), Counter())
    titles = re.findall(r"^'(.*)' is the title for '(.*)'$", alone, re.MULTILINE)
    assert len(titles) == 3
    assert all(word in body for title, body in titles for word in title.split())
    evaluation = evaluated(said(trained, "chief.0"))
    assert evaluation["global_step"] == 3 * STEPS
    assert evaluation["accuracy"] > 0.9
    assert number("loss", alone) == pytest.approx(evaluation["loss"], rel=1e-3)
    assert number("right", alone) > 10, "titles that could not be told without reading the body"
    assert "real [('Since today,\\nit fails', 'It fails')]" in alone


def train(workspace: Workspace) -> Run:
    """Train the example to its end with a script that records the rows; everything else is unchanged."""
    shutil.copytree(ROOT / "examples" / "estimator", workspace.project, dirs_exist_ok=True)
    workspace.write("watched.py", WATCHED)
    spec = workspace.project / "drumline.yml"
    spec.write_text(spec.read_text().replace("issue_summarization.py", "watched.py"))
    if not is_ready(str(environment_of(workspace))):
        pytest.fail("its environment is not built: run `scripts/environment --example estimator`")
    return train_to_the_end(workspace)


def environment_of(workspace: Workspace) -> Path:
    """Return the folder in which drumline has, or would build, the environment of the spec."""
    return Path(json.loads(workspace.run("render", "-o", "json").out)["build"]["environment"])


def train_alone(workspace: Workspace, code: str) -> str:
    env = {name: workspace.env[name] for name in ("PATH", "TMPDIR")}
    env |= {"PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return run([str(environment_of(workspace) / "bin" / "python"), "-c", code], workspace.project, env)


def check_rows_and_steps(trained: Run) -> None:
    """Check that each process took its steps on its own rows, and that the model has counted all of them."""
    for replica in TRAINING:
        assert re.search(rf"^took {STEPS} steps of its own; step \d+ of all$", said(trained, replica), re.MULTILINE)
        assert rows_of(said(trained, replica)).total() == STEPS * 32
    assert f"took {STEPS} steps of its own; step {3 * STEPS} of all" in said(trained, "chief.0")


def check_exits(trained: Run) -> None:
    """Check that both ps held variables and were stopped at the end, and that all other replicas exited with 0."""
    graph = (trained.path / "output" / "checkpoint" / "graph.pbtxt").read_text()
    handles = [node for node in graph.split("\nnode {") if 'op: "VarHandleOp"' in node]
    assert {device for node in handles for device in re.findall(r'device: "/job:ps/task:(\d)"', node)} == {"0", "1"}
    for replica in ALL_REPLICAS:
        assert trained.replica_phase(replica) is Phase.FINISHED
    assert [trained.exit(replica).code for replica in TRAINING] == [0, 0, 0]
    assert [trained.exit(replica).signal for replica in ("ps.0", "ps.1")] == [15, 15]


def rows_of(text: str) -> Counter[str]:
    """Return how often each row was used."""
    (rows,) = re.findall(r"^rows (.*)$", text, re.MULTILINE)
    return Counter(json.loads(rows))


def evaluated(text: str) -> dict[str, float]:
    """Return the results of the last evaluation."""
    last = re.findall(r"Saving dict for global step \d+: (.*)$", text, re.MULTILINE)[-1]
    return {name: float(value) for name, value in re.findall(r"(\w+) = ([\d.e-]+)", last)}


def number(name: str, text: str) -> float:
    (found,) = re.findall(rf"^{name} (.*)$", text, re.MULTILINE)
    return float(found)
