"""The order in which runs begin, and the reason for which a run waits."""

from __future__ import annotations

import pytest

from drumline.engine.local.claim_queue import (
    Claim,
    ClaimEntry,
    choose_gpus,
    describe_excess,
    queue_order,
    total_claim,
    waiting_reason,
)
from drumline.engine.protocol import Capacity
from scaffold.plans import plan_of

GIB = 1 << 30
MACHINE = Capacity(4, 16 * GIB, tuple("0123"))


def claim(text: str) -> Claim:
    """Return the claim of `2 cpus, 4 GiB, 1 gpus`."""
    amounts = {word: float(number) for number, word in (part.split() for part in text.split(", "))}
    return Claim(round(amounts.get("cpus", 0) * 1000), int(amounts.get("GiB", 0) * GIB), int(amounts.get("gpus", 0)))


def entries(*texts: str) -> list[ClaimEntry]:
    """Return the entries of `3 has 2 cpus`, `4 waits for 1 gpus`; GPUs are assigned in order."""
    found: list[ClaimEntry] = []
    for text in texts:
        run, holds, wanted = text.replace(" waits for ", "|waits|").replace(" has ", "|has|").split("|")
        asked = claim(wanted)
        gpus = choose_gpus(asked, found, MACHINE) if holds == "has" else ()
        found.append(ClaimEntry(run, asked, holds == "has", gpus))
    return found


@pytest.mark.parametrize(
    ("others", "wanted", "expected"),
    [
        ((), "4 cpus", ""),
        (("3 has 2 cpus",), "2 cpus", ""),
        (("3 has 2 cpus",), "2.5 cpus", "waits for 2.5 of 4 cpus, run 3 has 2"),
        (("3 has 2 cpus", "4 has 1 cpus"), "2 cpus", "waits for 2 of 4 cpus, runs 3 and 4 have 3"),
        (("3 has 2 cpus", "4 has 2 gpus"), "4 gpus", "waits for 4 of 4 gpus, run 4 has 2"),
        (("3 has 12 GiB",), "8 GiB", "waits for 8.0 GiB of 16.0 GiB of memory, run 3 has 12.0 GiB"),
        (
            ("3 has 3 cpus, 4 gpus",),
            "2 cpus, 1 gpus",
            "waits for 2 of 4 cpus, run 3 has 3; for 1 of 4 gpus, run 3 has 4",
        ),
        (("3 has 2 cpus", "5 waits for 4 cpus"), "1 cpus", "waits behind run 5, which waits for 4 cpus"),
        (("3 has 2 cpus", "5 waits for 3 cpus, 1 gpus"), "1 gpus", ""),
        (("3 has 2 cpus", "5 waits for 3 cpus"), "3 cpus", "waits for 3 of 4 cpus, run 3 has 2; behind run 5"),
        (("3 has 2 cpus", "9 waits for 4 cpus"), "2 cpus", ""),
        (
            ("3 has 3 cpus", "4 waits for 2 cpus", "5 waits for 3 cpus"),
            "1 cpus",
            "waits behind runs 4 and 5, which wait for 5 cpus",
        ),
        (("3 has 6 cpus",), "1 cpus", "waits for 1 of 4 cpus, run 3 has 6"),  # it was oversubscribed
        (("3 has 4 cpus",), "1 gpus", ""),
    ],
)
def test_a_run_begins_if_holders_and_earlier_waiters_leave_enough(
    others: tuple[str, ...], wanted: str, expected: str
) -> None:
    assert waiting_reason("7", claim(wanted), entries(*others), MACHINE) == expected


def test_a_run_that_begins_gets_free_gpus_and_shares_others_only_with_oversubscription() -> None:
    others = entries("3 has 2 gpus")
    assert choose_gpus(claim("2 gpus"), others, MACHINE) == ("2", "3")
    assert choose_gpus(claim("3 gpus"), others, MACHINE) == ("2", "3", "0")
    assert choose_gpus(claim("6 gpus"), others, MACHINE) == ("2", "3", "0", "1", "2", "3")
    assert choose_gpus(claim("6 gpus"), others, Capacity(1, 1)) == ()


def test_parts_of_cores_add_up() -> None:
    assert total_claim(plan_of("roles: {worker: 10}\nresources: {cpus: 0.1}")).cpus == 1000


def test_a_run_asks_for_the_sum_of_its_replicas_requests() -> None:
    plan = plan_of(
        "roles: {chief: 1, worker: {replicas: 2, first: {resources: {gpus: 3}}}, ps: {resources: {memory: 1GiB}}}\n"
        "resources: {cpus: 2, gpus: 1}"
    )
    assert total_claim(plan) == Claim(cpus=6000, memory_bytes=GIB, gpus=5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("roles: {worker: 4}\nresources: {cpus: 1, memory: 4GiB, gpus: 1}", []),
        (
            "roles: {worker: 4}\nresources: {cpus: 16}",
            ["the run asks for 64 cpus (4 workers with 16 each), but this machine has 4"],
        ),
        (
            "roles: {chief: {resources: {gpus: 4}}, worker: {replicas: 3, first: {resources: {gpus: 2}}}}",
            ["the run asks for 6 gpus (1 chief with 4 and 1 worker with 2), but this machine has 4"],
        ),
        (
            "roles: {worker: 2}\nresources: {cpus: 2.5, memory: 10GiB}",
            [
                "the run asks for 5 cpus (2 workers with 2.5 each), but this machine has 4",
                "the run asks for 20.0 GiB of memory (2 workers with 10.0 GiB each), but this machine has 16.0 GiB",
            ],
        ),
    ],
)
def test_a_run_larger_than_the_machine_is_described_with_its_numbers(text: str, expected: list[str]) -> None:
    assert list(describe_excess(plan_of(text), MACHINE)) == expected


def test_a_machine_without_gpus_has_none() -> None:
    (excess,) = describe_excess(plan_of("resources: {gpus: 1}"), Capacity(4, GIB))
    assert excess == "the run asks for 1 gpu (1 worker with 1), but this machine has none"


def test_runs_queue_by_their_numbers() -> None:
    assert sorted(["10", "9", "7.10", "7.9", "7"], key=queue_order) == ["7", "7.9", "7.10", "9", "10"]
    assert sorted(["8.bcdfg", "7.x2b4z", "7.bcdfg"], key=queue_order) == ["7.bcdfg", "7.x2b4z", "8.bcdfg"]
