"""The checks of `drumline doctor` for hosts, from the reports of the hosts."""

from __future__ import annotations

import pytest

from drumline.engine.doctor_checks import DoctorCheck
from drumline.engine.ssh import diagnosis
from drumline.engine.ssh.assign import HostResources
from drumline.engine.ssh.diagnosis import HostReport
from drumline.engine.ssh.plan_options import Host, Hosts
from scaffold.plans import plan_of

GIB = 1024**3


def report_of(name: str, version: str = "3.11.2", *, gpus: int | None = None, **more: object) -> HostReport:
    known = {"free_bytes": 9 * GIB, "folder": "/d", "resources": HostResources(8.0, 16 * GIB, 0), **more}
    return HostReport(Host(name, gpus=gpus), version=version, **known)  # type: ignore[arg-type]


def verdict_and_words(check: DoctorCheck | None) -> tuple[str, str]:
    assert check
    return check.verdict, check.words


def test_only_the_error_is_shown_for_a_host_that_cannot_be_used() -> None:
    assert diagnosis.check_host(HostReport(Host("a"), "a does not answer", "try")) == DoctorCheck(
        "a", "missing", "a does not answer", "try"
    )


def test_pythons_may_differ_in_their_patch_version_only() -> None:
    same = [report_of("a", "3.11.2"), report_of("b", "3.11.9")]
    assert verdict_and_words(diagnosis.check_pythons(same)) == ("ok", "3.11 on every host")
    several = [report_of("a", "3.12.1"), report_of("b"), report_of("c")]
    assert verdict_and_words(diagnosis.check_pythons(several)) == (
        "note",
        "not the same everywhere: 3.11 on b and c, 3.12 on a",
    )


def test_the_framework_must_be_installed_in_one_version_on_all_hosts() -> None:
    plan = plan_of("roles: {worker: 2}")
    one, two, none = (report_of(name, packages=packages) for name, packages in _PACKAGES.items())
    assert verdict_and_words(diagnosis.check_packages([one, one], plan)) == ("ok", "2.20.0 on every host")
    assert verdict_and_words(diagnosis.check_packages([one, two], plan)) == (
        "missing",
        "not the same everywhere: 2.20.0 on one, 2.15.1 on two",
    )
    assert verdict_and_words(diagnosis.check_packages([one, none], plan)) == (
        "missing",
        "it is not installed for the Python of none",
    )
    assert diagnosis.check_packages([none], plan_of("framework: plain")) is None
    built = plan_of("tensorflow: {version: 2.15.1}")
    assert verdict_and_words(diagnosis.check_packages([none], built))[0] == "ok"


_PACKAGES = {"one": {"tensorflow": "2.20.0"}, "two": {"tensorflow-cpu": "2.15.1"}, "none": {}}


def test_a_wrong_clock_is_shown_as_fast_or_slow() -> None:
    assert verdict_and_words(diagnosis.check_clocks([report_of("a", skew_seconds=0.4)])) == (
        "ok",
        "within 1s of this machine's",
    )
    wrong = [report_of("a", skew_seconds=41.0), report_of("b", skew_seconds=-3700.0), report_of("c")]
    assert verdict_and_words(diagnosis.check_clocks(wrong)) == (
        "note",
        "compared with this machine's: a is 41s fast and b is 1h1m slow",
    )


@pytest.mark.parametrize(
    ("free_bytes", "writable", "verdict", "words"),
    [
        (9 * GIB, True, "ok", "at least 9.0 GiB free in /d on b"),
        (GIB // 2, True, "note", "512.0 MiB free in /d on b"),
        (0, True, "missing", "0 B free in /d on b"),
        (9 * GIB, False, "missing", "cannot be written: /d on b"),
    ],
)
def test_the_disk_with_the_least_free_space_is_shown(free_bytes: int, writable: bool, verdict: str, words: str) -> None:
    hosts = [report_of("a", free_bytes=99 * GIB), report_of("b", free_bytes=free_bytes, is_writable=writable)]
    assert verdict_and_words(diagnosis.check_disks(hosts)) == (verdict, words)


def test_gpus_that_the_run_requests_must_exist_on_a_host() -> None:
    plan = plan_of("resources: {gpus: 2}\nroles: {worker: 2}")
    assert verdict_and_words(diagnosis.check_gpus([report_of("a")], plan)) == (
        "missing",
        "none on any host, and the run asks for 4",
    )
    some = [report_of("a", resources=HostResources(gpus=2)), report_of("b")]
    assert verdict_and_words(diagnosis.check_gpus(some, plan)) == ("ok", "2 on a, none on b")
    assert verdict_and_words(diagnosis.check_gpus([report_of("a", gpus=1)], None)) == (
        "missing",
        "1 are configured on a, 0 are found",
    )


def test_of_many_failed_connections_only_some_are_listed() -> None:
    troubles = {"a": [f"h{n} at 10.0.0.{n}:20000 (no answer)" for n in range(7)], "b": []}
    verdict, words = verdict_and_words(diagnosis.check_ports({}, troubles, 14))
    assert verdict == "missing"
    assert words.startswith("7 connections of 14 failed: from a to h0 at 10.0.0.0:20000 (no answer), from a to h1")
    assert words.endswith("and 2 more")
    assert verdict_and_words(diagnosis.check_ports({"a": [7, 8]}, {}, 4)) == (
        "missing",
        "taken by other programs: 7 on a and 8 on a",
    )
    assert verdict_and_words(diagnosis.check_ports({}, {"a": []}, 1)) == (
        "ok",
        "the host reaches itself at its address",
    )


def test_a_shared_folder_is_recommended_only_for_several_hosts() -> None:
    one, two = Hosts(all=(Host("a"),)), Hosts(all=(Host("a"), Host("b")))
    assert diagnosis.check_shared(one, ()).verdict == "ok"
    assert diagnosis.check_shared(two, ()).verdict == "note"
    assert diagnosis.check_shared(two.replace(shared="/m"), ()).verdict == "ok"
    assert diagnosis.check_shared(two.replace(shared="/m"), ["b cannot write there"]).verdict == "missing"


def test_resources_in_the_spec_override_those_that_a_host_has() -> None:
    plan = plan_of("engine: {ssh: [a, b]}\nresources: {gpus: 1}\nroles: {worker: 3}")
    hosts = [report_of("a", gpus=2), report_of("b", resources=HostResources(gpus=1))]
    assert verdict_and_words(diagnosis.check_room(hosts, plan)) == ("ok", "2 replicas on a and 1 replica on b")
    assert verdict_and_words(diagnosis.check_room(hosts[1:], plan))[0] == "missing"
