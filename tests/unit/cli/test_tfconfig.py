"""``drumline tfconfig``, as it is typed and as it answers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings

from drumline.cli import run
from scaffold.clusters import Cluster, clusters
from scaffold.effort import examples

TWO = ("--worker", "a:2222,b:2222")
TWO_JSON = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": %d}}'
COMMENT = "# TensorFlow reads this when the strategy is created, so it must be set before."


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def type_in(*argv: str, stdin: bytes = b"") -> Answer:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(["tfconfig", *argv])
    return Answer(code, out.getvalue(), err.getvalue())


def make(*argv: str) -> Answer:
    return type_in("make", *argv)


def options(cluster: Cluster) -> list[str]:
    return [word for role, addresses in cluster.items() for word in (f"--{role}", ",".join(addresses))]


def nodes(cluster: Cluster) -> list[tuple[str, int]]:
    return [(role, index) for role, addresses in cluster.items() for index in range(len(addresses))]


# make


@pytest.mark.parametrize("task", ["worker:1", "worker.1"])
@pytest.mark.parametrize(
    "workers",
    [TWO, ("--worker", "a:2222", "--worker", "b:2222"), ("--worker", "a:2222, b:2222"), ("--hosts", "a,me@b")],
)
def test_make_prints_the_json_of_one_node_and_nothing_else(task: str, workers: tuple[str, ...]) -> None:
    assert make(*workers, "--task", task) == Answer(0, TWO_JSON % 1 + "\n", "")


@pytest.mark.parametrize("how", [("--export",), ("-o", "shell"), ("--export", "-o", "shell")])
def test_make_prints_a_line_for_a_shell(how: tuple[str, ...]) -> None:
    assert make(*TWO, "--task", "worker:0", *how) == Answer(0, f"export TF_CONFIG='{TWO_JSON % 0}'\n", "")


@pytest.mark.parametrize("how", [("--python",), ("-o", "python")])
def test_make_prints_lines_for_a_script(how: tuple[str, ...]) -> None:
    expected = f"import os\n\n{COMMENT}\nos.environ[\"TF_CONFIG\"] = '{TWO_JSON % 0}'\n"
    assert make(*TWO, "--task", "worker:0", *how) == Answer(0, expected, "")


def test_make_all_heads_each_nodes_shell_line_with_who_and_where_it_is() -> None:
    answer = make(*TWO, "--all", "--export")
    assert answer.out.splitlines() == [
        "# worker.0 on a:2222",
        f"export TF_CONFIG='{TWO_JSON % 0}'",
        "",
        "# worker.1 on b:2222",
        f"export TF_CONFIG='{TWO_JSON % 1}'",
    ]


def test_make_all_heads_each_nodes_python_lines_with_who_and_where_it_is() -> None:
    answer = make(*TWO, "--all", "--python")
    assert answer.out.splitlines()[:6] == [
        "# worker.0 on a:2222",
        "import os",
        "",
        COMMENT,
        f"os.environ[\"TF_CONFIG\"] = '{TWO_JSON % 0}'",
        "",
    ]
    assert answer.out.count("import os") == 2


def test_make_all_is_one_json_object_with_a_line_for_each_node() -> None:
    answer = make(*TWO, "--all")
    assert answer.out == f'{{\n  "worker.0": {TWO_JSON % 0},\n  "worker.1": {TWO_JSON % 1}\n}}\n'


@pytest.mark.parametrize("option", ["--chief", "--master"])
@pytest.mark.parametrize("task", ["chief:0", "master:0", "master.0"])
def test_master_is_another_word_for_chief_and_is_never_written(option: str, task: str) -> None:
    answer = make(*TWO, option, "h:1", "--task", task)
    assert json.loads(answer.out) == {
        "cluster": {"chief": ["h:1"], "worker": ["a:2222", "b:2222"]},
        "task": {"type": "chief", "index": 0},
    }


def test_only_the_evaluator_knows_of_the_evaluator() -> None:
    everyone = json.loads(make(*TWO, "--evaluator", "e:1", "--all").out)
    assert {node for node, value in everyone.items() if "evaluator" in value["cluster"]} == {"evaluator.0"}


@pytest.mark.parametrize(
    ("argv", "talk"),
    [
        (
            (*TWO, "--ps", "p:1", "--task", "ps:0"),
            (
                "warning: --ps: parameter servers without a chief: today's strategies need one to coordinate, and a"
                " mirrored strategy with ps in its cluster hangs without a word; add a `chief`, or drop `ps`\n"
            ),
        ),
        (
            (*TWO, "--worker", "localhost:1", "--all"),
            (
                "warning: the cluster: `localhost:1` means the machine where it is read, so a node on another one, such"
                " as `a:2222`, cannot reach it\n"
            ),
        ),
        (
            ("--worker", "a:1", "--all"),
            "note: the cluster: has one node only: that works, and without TF_CONFIG it works as well\n",
        ),
    ],
)
def test_what_is_unwise_is_said_beside_the_result(argv: tuple[str, ...], talk: str) -> None:
    answer = make(*argv)
    assert (answer.code, answer.err) == (0, talk)
    assert json.loads(answer.out)


def test_make_warns_when_no_process_can_be_started_with_it() -> None:
    addresses = ",".join(f"node-{number:05}.example:2222" for number in range(5_000))
    answer = make("--worker", addresses, "--task", "worker:4999")
    assert answer.code == 0
    assert answer.err.startswith("warning: TF_CONFIG: has ")
    assert json.loads(answer.out)["task"]["index"] == 4999


@pytest.mark.parametrize(
    ("argv", "talk"),
    [
        (
            (),
            "error: no replica trains: give --worker or --chief\nhint: such as `--worker a:2222,b:2222`\n",
        ),
        (
            ("--ps", "p:1", "--evaluator", "e:1", "--all"),
            "error: no replica trains: give --worker or --chief\nhint: such as `--worker a:2222,b:2222`\n",
        ),
        (
            TWO,
            "error: the node is missing: give --task or --all\nhint: the cluster has worker.0 and worker.1\n",
        ),
        (
            (*TWO, "--chief", "h:1", "--ps", "p:1,q:1,r:1", "--task", "ps:3"),
            (
                "error: --task ps:3: not in the cluster\n"
                "hint: the cluster has chief.0, worker.0, worker.1 and ps.0 to ps.2\n"
            ),
        ),
        (
            (*TWO, "--task", "chief:0"),
            "error: --task chief:0: not in the cluster\nhint: the cluster has worker.0 and worker.1\n",
        ),
        *(
            (
                (*TWO, "--task", task),
                (
                    f"error: --task {task}: expected a role and its index, such as `worker:0`\n"
                    "hint: the cluster has worker.0 and worker.1\n"
                ),
            )
            for task in ("worker", "wroker:0", "worker:-1", "worker:first", "worker:0:0", "0", "")
        ),
        ((*TWO, "--task", "worker:0", "--all"), "error: --task and --all cannot be combined\nhint: use one of them\n"),
        (
            (*TWO, "--all", "--export", "--python"),
            "error: --export, --python and -o cannot be combined\nhint: use one of them\n",
        ),
        (
            (*TWO, "--all", "--export", "-o", "json"),
            "error: --export, --python and -o cannot be combined\nhint: use one of them\n",
        ),
        (
            ("--worker", "a", "--all"),
            "--worker: `a` has no port: write `a:2222`\nerror: one problem; nothing was done\n",
        ),
        (
            ("--worker", "a,b:1,c:0x,", "--master", "m:99999", "--ps", "p:1,::1", "--all"),
            (
                "--worker: `a` has no port: write `a:2222`\n"
                "--worker: `c:0x` has no port number: write `c:2222`\n"
                "--worker: an address is empty: write `host:port`\n"
                "--master: `m:99999` has a port outside 1 to 65535\n"
                "--ps: `::1` is IPv6, which stands in brackets, with the port behind: write `[::1]:2222`\n"
                "error: 5 problems; nothing was done\n"
            ),
        ),
        (
            (*TWO, "--ps", "A:2222", "--chief", "h:1", "--master", "m:1", "--evaluator", "e:1,f:1", "--all"),
            (
                "--ps: `A:2222` is already the address of worker.0, written `a:2222`\n"
                "--chief: there is at most one chief, not 2\n"
                "--evaluator: there is at most one evaluator, not 2\n"
                "error: 3 problems; nothing was done\n"
            ),
        ),
        (
            (*TWO, "--evaluator", "b:2222", "--task", "worker:0"),
            "--evaluator: `b:2222` is already the address of worker.1\nerror: one problem; nothing was done\n",
        ),
    ],
)
def test_make_refuses_with_a_sentence_and_prints_no_result(argv: tuple[str, ...], talk: str) -> None:
    assert make(*argv) == Answer(2, "", talk)


# check


@pytest.mark.parametrize("index", [0, 1])
def test_check_reads_the_variable_of_this_shell(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO_JSON % index)
    end = "it acts as chief" if index == 0 else "worker.0 on a:2222 acts as chief"
    me = f"worker.{index} on {'ab'[index]}:2222"
    who = f"TF_CONFIG is fine: this node is {me}, one of 2 workers with no chief; {end}\n"
    assert type_in("check") == Answer(0, who, "")


def test_check_reads_a_file_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "tf.json"
    file.write_text(f"{TWO_JSON % 0}\n")
    words = "is fine: this node is worker.0 on a:2222, one of 2 workers with no chief; it acts as chief\n"
    assert type_in("check", str(file)) == Answer(0, f"{file} {words}", "")
    assert type_in("check", "-", stdin=file.read_bytes()) == Answer(0, f"<stdin> {words}", "")


def test_check_without_anything_to_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert type_in("check") == Answer(
        2,
        "",
        "error: TF_CONFIG is not set, so TensorFlow would train in a single process\n"
        "hint: name a file, or `-` for standard input; `drumline tfconfig make --help` shows how to make one\n",
    )


def test_an_empty_variable_is_not_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    assert type_in("check") == Answer(
        2,
        "",
        "TF_CONFIG: is empty, which TensorFlow takes for broken JSON, not for unset; `unset TF_CONFIG`\n"
        "error: TF_CONFIG has one problem\n",
    )


def test_check_names_every_problem_after_the_warnings_and_leaves_notes_for_later() -> None:
    text = b'{"cluster": {"worker": ["a:1", "b"], "chief": ["a:1"], "ps": ["p:1"]}, "environment": "cloud", "tusk": 1}'
    assert type_in("check", "-", stdin=text) == Answer(
        2,
        "",
        "warning: <stdin>: tusk: is nothing that TensorFlow reads; did you mean `task`?\n"
        "<stdin>: cluster.worker[1]: `b` has no port: write `b:2222`\n"
        "<stdin>: cluster.chief[0]: `a:1` is already the address of worker.0\n"
        "<stdin>: `task` is missing: without it this node does not know which one it is\n"
        "error: <stdin> has 3 problems\n",
    )


def test_check_says_what_is_good_to_know_beside_who_the_node_is() -> None:
    text = b'{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "environment": "cloud"}'
    assert type_in("check", "-", stdin=text) == Answer(
        0,
        "<stdin> is fine: this node is worker.0 on a:1, all alone\n",
        "note: <stdin>: environment: is written by Kubeflow and Google Cloud; TensorFlow does not read it, no harm is"
        " done\n"
        "note: <stdin>: cluster: has one node only: that works, and without TF_CONFIG it works as well\n",
    )


def test_check_as_json_has_everything_and_the_exit_code_too() -> None:
    text = b'{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "1", "id": 1}, "job": {}}'
    answer = type_in("check", "-", "-o", "json", stdin=text)
    assert (answer.code, answer.err) == (2, "error: <stdin> has one problem\n")
    assert json.loads(answer.out) == {
        "ok": False,
        "task": "worker.1",
        "chief": "worker.0",
        "who": "this node is worker.1 on b:1, one of 2 workers with no chief; worker.0 on a:1 acts as chief",
        "problems": [{"path": "task.index", "message": 'expected a number, got the text "1": write 1'}],
        "warnings": [{"path": "task.id", "message": "is nothing that TensorFlow reads"}],
        "notes": [
            {
                "path": "job",
                "message": "is written by Google Cloud; TensorFlow does not read it, no harm is done",
            }
        ],
    }


def test_check_as_json_of_something_that_is_none_names_nobody() -> None:
    answer = type_in("check", "-", "-o", "json", stdin=b"{")
    assert answer.code == 2
    assert json.loads(answer.out) == {
        "ok": False,
        "task": None,
        "chief": None,
        "who": None,
        "problems": [{"path": "", "message": "is not JSON: line 1, column 2: it ends before it is complete"}],
        "warnings": [],
        "notes": [],
    }


def test_thousands_of_problems_are_shown_as_a_hundred_and_a_number() -> None:
    text = json.dumps({"cluster": {"worker": [0] * 5_000}, "task": {"type": "worker", "index": 0}}).encode()
    answer = type_in("check", "-", stdin=text)
    assert answer.err.splitlines()[98:] == [
        "<stdin>: cluster.worker[98]: expected `host:port`, got 0",
        "<stdin>: cluster.worker[99]: expected `host:port`, got 0",
        "... and 4,900 more; `-o json` shows all",
        "error: <stdin> has 5,000 problems",
    ]
    whole = json.loads(type_in("check", "-", "-o", "json", stdin=text).out)
    assert len(whole["problems"]) == 5_000


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"\xff": 1}')
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert type_in("check", str(tmp_path / "nothing")) == Answer(2, "", f"error: {tmp_path}/nothing: no such file\n")
    assert type_in("check", str(tmp_path)) == Answer(
        2, "", f"error: {tmp_path}: is a directory\nhint: name a file in it\n"
    )
    assert type_in("check", str(tmp_path / "latin")) == Answer(
        2, "", f"error: {tmp_path}/latin: is not UTF-8 text (byte 3)\nhint: save it as UTF-8\n"
    )
    assert type_in("check", str(tmp_path / "latin" / "below")) == Answer(
        2, "", f"error: {tmp_path}/latin/below: cannot be read: Not a directory\n"
    )
    assert type_in("check", str(tmp_path / "endless")) == Answer(
        2,
        "",
        f"{tmp_path}/endless: is longer than 1,000,000 characters\nerror: {tmp_path}/endless has one problem\n",
    )


def test_the_text_itself_is_not_taken_for_the_name_of_a_file() -> None:
    assert type_in("check", TWO_JSON % 0) == Answer(
        2,
        "",
        "error: expected the name of a file, got JSON\nhint: pipe it in: `echo '...' | drumline tfconfig check -`\n",
    )


# both


@given(clusters())
@settings(max_examples=examples(40))
def test_what_make_prints_for_any_cluster_check_accepts_for_every_node(cluster: Cluster) -> None:
    everyone = json.loads(make(*options(cluster), "--all").out)
    assert list(everyone) == [f"{role}.{index}" for role, index in nodes(cluster)]
    for role, index in nodes(cluster):
        made = make(*options(cluster), "--task", f"{role}:{index}")
        assert (made.code, json.loads(made.out)) == (0, everyone[f"{role}.{index}"])
        checked = type_in("check", "-", stdin=made.out.encode())
        assert checked.code == 0
        assert f"this node is {role}.{index} on {cluster[role][index]}," in checked.out


@given(clusters())
@settings(max_examples=examples(10), deadline=None)
def test_a_real_shell_and_a_real_python_get_exactly_the_json(cluster: Cluster) -> None:
    tasks = [f"{role}.{index}" for role, index in nodes(cluster)]
    texts = [make(*options(cluster), "--task", task).out for task in tasks]
    shell = "".join(make(*options(cluster), "--task", task, "--export").out + "printenv TF_CONFIG\n" for task in tasks)
    python = "".join(
        make(*options(cluster), "--task", task, "--python").out + 'print(os.environ["TF_CONFIG"])\n' for task in tasks
    )
    assert output_of(["sh", "-eu"], shell) == "".join(texts)
    assert output_of([sys.executable, "-I", "-S", "-"], python) == "".join(texts)


def test_all_nodes_lines_can_be_run_as_they_are() -> None:
    last = make(*TWO, "--task", "worker:1").out
    assert output_of(["sh", "-eu"], make(*TWO, "--all", "--export").out + "printenv TF_CONFIG\n") == last
    lines = make(*TWO, "--all", "--python").out + 'print(os.environ["TF_CONFIG"])\n'
    assert output_of([sys.executable, "-I", "-S", "-"], lines) == last


def output_of(argv: list[str], script: str) -> str:
    return subprocess.run(argv, input=script, text=True, capture_output=True, check=True).stdout


@pytest.mark.parametrize("line", ["export TF_CONFIG='%s'", "TF_CONFIG='%s' python x.py", "TF_CONFIG=%s"])
def test_a_line_for_a_shell_is_checked_for_the_value_that_it_sets(line: str) -> None:
    answer = type_in("check", "-", stdin=(line % (TWO_JSON % 1)).encode())
    assert answer.code == 0
    assert answer.out.startswith("<stdin> is fine: this node is worker.1")


def test_a_line_for_a_shell_whose_quote_stays_open_is_refused() -> None:
    answer = type_in("check", "-", stdin=b"export TF_CONFIG='{")
    assert (answer.code, answer.err.splitlines()[0]) == (2, "error: <stdin>: a quote in it is never closed")
