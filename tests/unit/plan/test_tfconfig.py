"""The diagnostics of a TF_CONFIG, with their exact messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from drumline.plan.parse import MAX_CHARACTERS
from drumline.plan.tfconfig import MAX_VALUE_BYTES, Examination, examine
from drumline.plan.types import ReplicaId

WORKERS = {"worker": ["a:2222", "b:2222", "c:2222"]}
FULL = {"chief": ["h:2222"], **WORKERS, "ps": ["p:2222", "q:2222"]}
ROLE_WORDS = "the roles are chief, worker, ps and evaluator"
MASTER = "tf.distribute refuses `master`; write `chief`"
PS_NOTE = "this is for ParameterServerStrategy; a mirrored strategy with ps in its cluster hangs without a message"
ONE_NOTE = "has one node only, which also works without TF_CONFIG"
MIXED = "`localhost:1` means the machine where it is read, so a node on another one, such as `a:1`, cannot reach it"
NO_CHIEF = (
    "parameter servers without a chief: today's strategies need one to coordinate, and a mirrored strategy"
    " with ps in its cluster hangs without a message; add a `chief`, or drop `ps`"
)
EVALUATOR_LISTED = (
    "belongs in the evaluator's own TF_CONFIG only: if it is listed here, this replica counts it among those"
    " that train, and waits for it"
)


def config(cluster: object, role: object = "worker", index: object = 0, **more: object) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}, **more})


def diagnostics_of(examination: Examination, level: str) -> list[tuple[str, str]]:
    return [(each.path, each.message) for each in examination.diagnostics if each.level == level]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty, which TensorFlow treats as invalid JSON, not as unset; run `unset TF_CONFIG`"),
        (" \n", "is empty, which TensorFlow treats as invalid JSON, not as unset; run `unset TF_CONFIG`"),
        ("{'cluster': {}}", "is not JSON: line 1, column 2: JSON has double quotes only, no single ones"),
        ("{\"cluster\": 'a'}", "is not JSON: line 1, column 13: JSON has double quotes only, no single ones"),
        (
            '{\n  "cluster": {},\n}',
            "is not JSON: line 2, column 16: there is a comma before the end of the list or object",
        ),
        ('["a" , ]', "is not JSON: line 1, column 6: there is a comma before the end of the list or object"),
        ('{"cluster": {"worker": [', "is not JSON: line 1, column 25: it ends before it is complete"),
        ('{"cluster"', "is not JSON: line 1, column 11: it ends before it is complete"),
        ('{"cluster": "a', "is not JSON: line 1, column 13: the quote that opens here is never closed"),
        ('{"cluster" {}}', "is not JSON: line 1, column 12: expected a colon after the key"),
        ('{"a": 1\n "b": 2}', "is not JSON: line 2, column 2: expected a comma, or the end of the list or object"),
        ("{cluster: 1}", "is not JSON: line 1, column 2: expected a key in double quotes"),
        (
            '{"a": True}',
            "is not JSON: line 1, column 7: a value is missing, or is not written as JSON has it",
        ),
        ("{} {}", "is not JSON: line 1, column 4: there is more after the end"),
        ('{"a": "\n"}', "is not JSON: line 1, column 8: a line break or control character is between quotes"),
        ("'{}'", "is not JSON: the quotes around it are part of the value; only a shell removes them"),
        ('"{"a": 1}"', "is not JSON: the quotes around it are part of the value; only a shell removes them"),
        ("\ufeff{}", "is not JSON: it begins with a byte order mark; save it as UTF-8 without one"),
        ("export TF_CONFIG='{}'", "is a shell command; TF_CONFIG is only the text between its quotes"),
        ("TF_CONFIG='{}'", "is a shell command; TF_CONFIG is only the text between its quotes"),
        ('"{\\"a\\": 1}"', "expected an object, got a text that holds one: it was turned into JSON twice"),
        ("[]", "expected an object with `cluster` and `task`, got a list"),
        ("null", "expected an object with `cluster` and `task`, got null"),
        ("12", "expected an object with `cluster` and `task`, got 12"),
        ('"a"', 'expected an object with `cluster` and `task`, got the text "a"'),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a":' * 100_000, "is nested too deeply"),
        ('{"a": ' + "1" * 5_000 + "}", "has a number with thousands of digits"),
        ('"' + "x" * MAX_CHARACTERS + '"', "is longer than 1,000,000 characters"),
    ],
)
def test_a_text_that_is_not_an_object_has_one_problem(text: str, sentence: str) -> None:
    examination = examine(text)
    assert diagnostics_of(examination, "problem") == [("", sentence)]
    assert (examination.ok, examination.task, examination.chief, examination.description) == (False, None, None, "")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "{}",
            [
                ("", "`cluster` is missing: without it this node trains alone"),
                ("", "`task` is missing: without it the role and index of this node are unknown"),
            ],
        ),
        # The cluster and its roles.
        (
            config(["a:2222"]),
            [("cluster", "expected an object of roles and their addresses, got a list")],
        ),
        (config(None), [("cluster", "expected an object of roles and their addresses, got null")]),
        (config({}), [("cluster", "is empty")]),
        (
            config({"worker": "a:2222"}),
            [("cluster.worker", 'expected a list of `host:port`, got the text "a:2222"; put it in brackets')],
        ),
        (config({"worker": {}}), [("cluster.worker", "is empty, which makes TensorFlow crash; leave the role out")]),
        (
            config({"worker": {"0": "a:1", "one": "b:1", "2": "c"}}),
            [
                ("cluster.worker.one", 'expected an index, such as "1", with its address'),
                ("cluster.worker[2]", "`c` has no port: write `c:2222`"),
            ],
        ),
        (
            config({"worker": {"1": "b:1", "3": "d:1"}, "chief": ["c:1"]}, "worker", 2),
            [("task.index", "2 is outside the cluster: of `worker` it lists 1 and 3 only")],
        ),
        (config({"worker": None}), [("cluster.worker", "expected a list of `host:port`, got null")]),
        (
            config({**WORKERS, "ps": []}),
            [("cluster.ps", "is an empty list, which makes TensorFlow crash; leave the role out")],
        ),
        (config({**WORKERS, "master": ["m:1"]}), [("cluster.master", MASTER)]),
        (
            config({**WORKERS, "master": ["m:1"]}, "master"),
            [("cluster.master", MASTER), ("task.type", MASTER)],
        ),
        (
            config({**WORKERS, "chief": ["h:1"], "master": ["m:1"]}),
            [("cluster.master", MASTER), ("cluster.chief", "there is at most one chief, not 2")],
        ),
        (
            config({**WORKERS, "Worker": ["x:1"]}),
            [("cluster.Worker", f"is not a role; {ROLE_WORDS}; did you mean `worker`?")],
        ),
        (config({**WORKERS, "gpu": ["x:1"]}), [("cluster.gpu", f"is not a role; {ROLE_WORDS}")]),
        (config({**WORKERS, "a b\n": []}), [(r"cluster.`a b\n`", f"is not a role; {ROLE_WORDS}")]),
        (
            config({**WORKERS, "chief": ["h:1", "i:1"]}),
            [("cluster.chief", "there is at most one chief, not 2")],
        ),
        (
            config({**WORKERS, "evaluator": ["e:1", "f:1"]}, "evaluator"),
            [("cluster.evaluator", "there is at most one evaluator, not 2")],
        ),
        (config({**WORKERS, "evaluator": ["e:1"]}), [("cluster.evaluator", EVALUATOR_LISTED)]),
        (config({**FULL, "evaluator": ["e:1"]}, "ps"), [("cluster.evaluator", EVALUATOR_LISTED)]),
        (config({"ps": ["p:1"]}, "ps"), [("cluster", "no replica trains: there is neither a `chief` nor a `worker`")]),
        # Addresses.
        (config({"worker": ["a:1", 5]}), [("cluster.worker[1]", "expected `host:port`, got 5")]),
        (config({"worker": ["a:1", ["b:1"]]}), [("cluster.worker[1]", "expected `host:port`, got a list")]),
        (config({"worker": ["a:1", {}]}), [("cluster.worker[1]", "expected `host:port`, got an object")]),
        (config({"worker": ["a:1", True]}), [("cluster.worker[1]", "expected `host:port`, got true")]),
        (config({"worker": ["a:1", "b"]}), [("cluster.worker[1]", "`b` has no port: write `b:2222`")]),
        (config({"worker": ["a:1", "b:70000"]}), [("cluster.worker[1]", "`b:70000` has a port outside 1 to 65535")]),
        (
            config({"worker": ["a:1", "b:0"]}),
            [
                (
                    "cluster.worker[1]",
                    "`b:0` has a port outside 1 to 65535: 0 is any free port, and the others cannot know which",
                )
            ],
        ),
        (
            config({"worker": ["a:1", "b:1", "a:1"]}),
            [("cluster.worker[2]", "`a:1` is already the address of worker.0")],
        ),
        (
            config({"chief": ["a:1"], "worker": ["A:1"]}),
            [("cluster.worker[0]", "`A:1` is already the address of chief.0, written `a:1`")],
        ),
        (
            config({"worker": ["localhost:1", "127.0.0.1:1"]}),
            [("cluster.worker[1]", "`127.0.0.1:1` is already the address of worker.0, written `localhost:1`")],
        ),
        # The task.
        (
            json.dumps({"cluster": WORKERS, "task": ["worker", 0]}),
            [("task", "expected an object with `type` and `index`, got a list")],
        ),
        (
            json.dumps({"cluster": WORKERS, "task": {}}),
            [
                ("task", "`type` is missing: it is the role of this node"),
                ("task", "`index` is missing: the first of a role is 0, the next is 1"),
            ],
        ),
        (config(WORKERS, 5), [("task.type", f"expected a role, got 5; {ROLE_WORDS}")]),
        (config(WORKERS, "works"), [("task.type", f"`works` is not a role; {ROLE_WORDS}; did you mean `worker`?")]),
        (
            config(WORKERS, "master"),
            [("task.type", MASTER), ("task.type", "`cluster` has no `chief`; it has 3 workers")],
        ),
        (config(FULL, "chief", 1), [("task.index", "1 is outside the cluster: the only chief has index 0")]),
        (config(WORKERS, "ps"), [("task.type", "`cluster` has no `ps`; it has 3 workers")]),
        (
            config({"worker": ["a:1"], "chief": ["b:1"]}, "ps"),
            [("task.type", "`cluster` has no `ps`; it has 1 chief and 1 worker")],
        ),
        (config(WORKERS, "worker", 3), [("task.index", "3 is outside the cluster: the last of 3 workers has index 2")]),
        (config(WORKERS, "evaluator", 1), [("task.index", "1 is outside the cluster: the only evaluator has index 0")]),
        (config(WORKERS, "worker", "1"), [("task.index", 'expected a number, got the text "1": write 1')]),
        (config(WORKERS, "worker", "one"), [("task.index", 'expected a whole number, got the text "one"')]),
        (config(WORKERS, "worker", True), [("task.index", "expected a whole number, got true")]),
        (config(WORKERS, "worker", 1.0), [("task.index", "expected a whole number, got 1.0")]),
        (config(WORKERS, "worker", None), [("task.index", "expected a whole number, got null")]),
        (config(WORKERS, "worker", -1), [("task.index", "expected a number of at least 0, got -1")]),
        (
            config(WORKERS, "worker", "9"),
            [
                ("task.index", 'expected a number, got the text "9": write 9'),
                ("task.index", "9 is outside the cluster: the last of 3 workers has index 2"),
            ],
        ),
        # A key twice, at each of the three levels.
        (
            '{"task": {}, ' + config(WORKERS)[1:],
            [("task", "appears more than once; TensorFlow uses the last")],
        ),
        (
            '{"cluster": {"worker": [], "worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0, "index": 1}}',
            [
                ("cluster.worker", "appears more than once; TensorFlow uses the last"),
                ("task.index", "appears more than once; TensorFlow uses the last"),
            ],
        ),
    ],
)
def test_every_problem_is_reported_with_its_path(text: str, problems: list[tuple[str, str]]) -> None:
    examination = examine(text)
    assert diagnostics_of(examination, "problem") == problems
    assert not examination.ok


@pytest.mark.parametrize(
    ("text", "warnings", "notes"),
    [
        (config(WORKERS), [], []),
        (config(FULL), [], [("cluster.ps", PS_NOTE)]),
        (config({"worker": ["a:1"]}), [], [("cluster", ONE_NOTE)]),
        (config({"chief": ["a:1"]}, "chief"), [], [("cluster", ONE_NOTE)]),
        (config({"worker": ["a:1"], "evaluator": ["e:1"]}, "evaluator"), [], []),
        (config({"worker": ["localhost:1", "127.0.0.2:2", "[::1]:3"]}), [], []),
        (
            config(WORKERS, environment="cloud", job={}),
            [],
            [
                (
                    "environment",
                    "is written by Kubeflow and Google Cloud; TensorFlow ignores it",
                ),
                ("job", "is written by Google Cloud; TensorFlow ignores it"),
            ],
        ),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 0, "trial": "1"}}),
            [],
            [("task.trial", "is written by Google Cloud; TensorFlow ignores it")],
        ),
        (config(WORKERS, rpc_layer="grpc"), [], []),
        (
            config(WORKERS, clusters={}),
            [("clusters", "is not a key that TensorFlow reads; did you mean `cluster`?")],
            [],
        ),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 0, "id": 0}}),
            [("task.id", "is not a key that TensorFlow reads")],
            [],
        ),
        (
            config({"worker": ["a:1", "localhost:1"]}),
            [("cluster", MIXED)],
            [],
        ),
        (
            config({**WORKERS, "ps": ["p:1"]}),
            [("cluster.ps", NO_CHIEF)],
            [],
        ),
        (
            config({"chief": ["h:1"], "ps": ["p:1"]}, "chief"),
            [("cluster.ps", "parameter servers without a worker: ParameterServerStrategy needs one")],
            [],
        ),
    ],
)
def test_warnings_and_notes_are_not_problems(
    text: str, warnings: list[tuple[str, str]], notes: list[tuple[str, str]]
) -> None:
    examination = examine(text)
    assert examination.ok
    assert diagnostics_of(examination, "warning") == warnings
    assert diagnostics_of(examination, "note") == notes


def test_a_value_that_exceeds_the_limit_by_one_byte_is_a_warning() -> None:
    text = config(WORKERS)
    just = text + " " * (MAX_VALUE_BYTES - len(text)) + "\n"
    assert diagnostics_of(examine(just), "warning") == []
    names = [f"node-{number:05}.example:2222" for number in range(5_000)]
    text = config({"worker": names})
    sentence = (
        f"has {len(text):,} bytes, and Linux takes 131,061 at most in this variable: no process can be started with it;"
        " the program itself can still set it"
    )
    assert diagnostics_of(examine(text), "warning") == [("", sentence)]


@pytest.mark.parametrize(
    ("cluster", "role", "index", "chief", "description"),
    [
        (WORKERS, "worker", 0, "worker.0", "worker.0 on a:2222, one of 3 workers with no chief; it acts as chief"),
        (
            {**WORKERS, "ps": ["p:1", "q:1"]},
            "worker",
            1,
            "worker.0",
            "worker.1 on b:2222, one of 3 workers with 2 ps and no chief; worker.0 on a:2222 acts as chief",
        ),
        (FULL, "chief", 0, "chief.0", "chief.0 on h:2222, the chief with 3 workers and 2 ps"),
        (
            FULL,
            "worker",
            2,
            "chief.0",
            "worker.2 on c:2222, one of 3 workers with 1 chief and 2 ps; chief.0 on h:2222 is the chief",
        ),
        (
            FULL,
            "ps",
            1,
            "chief.0",
            "ps.1 on q:2222, one of 2 ps with 1 chief and 3 workers; chief.0 on h:2222 is the chief",
        ),
        (
            {"chief": ["h:1"], "worker": ["[::1]:1"]},
            "worker",
            0,
            "chief.0",
            "worker.0 on [::1]:1, the only worker with 1 chief; chief.0 on h:1 is the chief",
        ),
        (
            {**WORKERS, "evaluator": ["e:1"]},
            "evaluator",
            0,
            "worker.0",
            "evaluator.0 on e:1, the evaluator with 3 workers and no chief; worker.0 on a:2222 acts as chief",
        ),
        (
            {"chief": ["h:1"]},
            "evaluator",
            0,
            "chief.0",
            "evaluator.0, the evaluator with 1 chief; chief.0 on h:1 is the chief",
        ),
        ({"worker": ["a:1"]}, "worker", 0, "worker.0", "worker.0 on a:1, all alone"),
        ({"chief": ["h:1"]}, "chief", 0, "chief.0", "chief.0 on h:1, all alone"),
        ({"evaluator": ["e:1"]}, "evaluator", 0, None, "evaluator.0 on e:1, all alone"),
    ],
)
def test_the_node_is_described(
    cluster: Mapping[str, Sequence[str]], role: str, index: int, chief: str | None, description: str
) -> None:
    examination = examine(config(cluster, role, index))
    assert examination.ok
    assert examination.description == f"this node is {description}"
    assert examination.task == ReplicaId(role, index)
    assert examination.chief == (ReplicaId.parse(chief) if chief else None)


def test_the_node_is_known_despite_problems_of_other_nodes() -> None:
    examination = examine(config({"master": ["m:1"], "worker": ["a:1", "b"]}, "worker", "1"))
    assert not examination.ok
    assert (str(examination.task), str(examination.chief)) == ("worker.1", "chief.0")


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    "addresses",
    [
        ["localhost:12345", "localhost:23456"],
        ["35.246.44.98:12345", "35.234.141.101:12345"],
        ["10.1.10.58:12345", "10.1.10.250:12345"],
    ],
)
def test_values_of_a_tutorial_with_two_machines_are_fine(addresses: list[str], index: int) -> None:
    for task in ({"type": "worker", "index": index}, {"index": index, "type": "worker"}):
        examination = examine(json.dumps({"cluster": {"worker": addresses}, "task": task}))
        assert examination.diagnostics == ()
        assert examination.chief == ReplicaId("worker", 0)
        assert examination.description.startswith(
            f"this node is worker.{index} on {addresses[index]}, one of 2 workers"
        )


def test_a_cluster_that_lists_some_replicas_by_their_index_is_read_as_tensorflow_reads_it() -> None:
    found = examine(config({"chief": ["c:1"], "worker": {"1": "b:1"}, "ps": ["p:1"]}, "worker", 1))
    assert found.ok
    assert found.task == ReplicaId("worker", 1)
    assert ("cluster.worker", "lists index 1 only, as TensorFlow allows") in diagnostics_of(found, "note")
    assert found.description == (
        "this node is worker.1 on b:1, one of the replicas of worker with 1 chief and 1 ps; chief.0 on c:1 is the chief"
    )


def test_a_cluster_that_lists_one_of_several_workers_is_not_called_alone() -> None:
    found = examine(config({"worker": {"1": "b:1"}}, "worker", 1))
    assert diagnostics_of(found, "note") == [("cluster.worker", "lists index 1 only, as TensorFlow allows")]
    assert "alone" not in found.description


@pytest.mark.parametrize("key", ["model_dir", "service", "eval_session_master"])
def test_keys_that_estimator_reads_are_not_reported_as_mistakes(key: str) -> None:
    found = examine(json.dumps({**json.loads(config(WORKERS)), key: "x"}))
    assert diagnostics_of(found, "warning") == []
    assert (key, "is read by Estimator only") in diagnostics_of(found, "note")


def test_a_value_at_the_size_limit_of_linux_is_fine() -> None:
    filled = config(WORKERS, x="y" * (MAX_VALUE_BYTES - len(config(WORKERS, x=""))))
    assert len(filled) == MAX_VALUE_BYTES
    assert [path for path, _ in diagnostics_of(examine(filled), "warning")] == ["x"]
    assert "" in [path for path, _ in diagnostics_of(examine(filled.replace("y", "yy", 1)), "warning")]


def test_an_index_has_at_most_nine_digits() -> None:
    sparse = {"0": "a:2222", "999999999": "b:2222"}
    assert diagnostics_of(examine(config({"worker": sparse})), "problem") == []
    ((path, message),) = diagnostics_of(examine(config({"worker": {**sparse, "1000000000": "c:2222"}})), "problem")
    assert (path, message) == ("cluster.worker.`1000000000`", 'expected an index, such as "1", with its address')


def test_a_role_that_lists_all_of_its_replicas_by_their_indexes_is_not_said_to_list_some() -> None:
    assert not [
        path for path, _ in diagnostics_of(examine(config({"worker": {"0": "a:1", "1": "b:1"}})), "note") if path
    ]
    assert diagnostics_of(examine(config({"worker": {"0": "a:1", "2": "b:1"}})), "note") == [
        ("cluster.worker", "lists indexes 0 and 2 only, as TensorFlow allows")
    ]


@pytest.mark.parametrize(
    ("cluster", "converts"),
    [
        ({"master": ["h:1"], **WORKERS}, {"cluster.master"}),
        ({"evaluator": ["e:1"], **WORKERS}, {"cluster.evaluator"}),
        ({"chief": [], **WORKERS}, set()),
    ],
)
def test_a_cluster_that_a_spec_can_express_is_converted(cluster: object, converts: set[str]) -> None:
    assert {each.path for each in examine(config(cluster)).diagnostics if each.converts} == converts


def test_a_cluster_with_an_invalid_master_has_a_chief() -> None:
    assert "task.type" not in [
        path for path, _ in diagnostics_of(examine(config({"master": "h:1"}, "chief")), "problem")
    ]
    assert "task.type" in [
        path for path, _ in diagnostics_of(examine(config({"master": ["h:1"]}, "worker")), "problem")
    ]
