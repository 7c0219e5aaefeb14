"""`drumline doctor --on ssh`: what hosts have, and the problems of each, without claiming anything."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumline.cli import run
from hosts.host_cluster import HOME, SHARED, HostCluster

ROOT = Path(__file__).parents[2]
PLAIN = "project: digits\nframework: plain\nrun: python train.py\nroles: {worker: 4}\n"
Rows = dict[str, dict[str, Any]]
Doctor = Callable[..., Rows]


@pytest.fixture
def doctor(reached: HostCluster, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Return the rows for this spec, by subject; the exit code must be 1 if something is missing."""

    def examine(spec: str, *words: str) -> Rows:
        Path("drumline.yml").write_text(spec)
        code = run(["doctor", "-o", "json", *words])
        rows = json.loads(capsys.readouterr().out)
        assert code == any(row["verdict"] == "missing" for row in rows)
        return {row["subject"]: row for row in rows}

    return examine


def verdicts(rows: Rows) -> dict[str, str]:
    return {subject: row["verdict"] for subject, row in rows.items()}


def options(**keys: object) -> str:
    return f"engine: {{ssh: {json.dumps(keys)}}}\n"


def test_doctor_lists_usable_hosts_with_their_resources_and_leaves_no_files_on_them(
    doctor: Doctor, reached: HostCluster
) -> None:
    rows = doctor(PLAIN + options(hosts=["h1", "h2", "h3"], shared=SHARED))
    assert set(verdicts(rows).values()) == {"ok"}
    assert list(rows) == ["h1", "h2", "h3", "python", "clocks", "disk", "gpus", "ports", "shared folder", "room"]
    assert rows["h2"]["words"].startswith("10.89.0.12, Python 3.")
    assert rows["ports"]["words"] == "every host reaches every other, 9 connections tried"
    assert rows["room"]["words"] == "2 replicas on h1, 1 replica on h2 and 1 replica on h3"
    assert not [name for host in reached.names for name in reached.path(host, HOME).iterdir()]
    assert not list(reached.shared.iterdir())
    for host in reached.names:
        reached.wait_idle(host)


def test_hosts_are_examined_without_a_spec(reached: HostCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--hosts", "h1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["WHAT", "h1", "python", "clocks", "disk", "gpus", "ports", "shared"]


def test_doctor_without_hosts_is_refused(reached: HostCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--on", "ssh"]) == 2
    assert "--hosts a,b" in capsys.readouterr().err


def test_each_unusable_host_is_reported_and_the_others_are_examined(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostCluster(5) as host_cluster:
        host_cluster.new_host_key("h1")
        host_cluster.without_python("h2")
        host_cluster.link("h3", up=False)
        host_cluster.kill_sshd("h4")
        config = "Host stranger\n  HostName 10.89.0.15\n  User unknown-user\n" + host_cluster.config.read_text()
        host_cluster.config.write_text(config)
        monkeypatch.setenv("DRUMLINE_SSH_CONFIG", str(host_cluster.config))
        rows = doctor(PLAIN, "--hosts", "h1,h2,h3,h4,stranger,h5")
    assert [rows[name]["verdict"] for name in ("h1", "h2", "h3", "h4", "stranger", "h5")] == ["missing"] * 5 + ["ok"]
    assert "the key of h1 is another than the one in" in rows["h1"]["words"]
    assert "ssh-keygen" in rows["h1"]["hint"]
    assert "no Python that works as `python3`" in rows["h2"]["words"]
    assert "ssh: {python: PATH}" in rows["h2"]["hint"]
    assert rows["h3"]["words"].startswith("h3 ")
    assert "refused" in rows["h4"]["words"]
    assert "does not let unknown-user in" in rows["stranger"]["words"]
    assert rows["room"]["words"] == "4 replicas on h5"


def test_a_host_with_an_unknown_key_is_refused_with_the_command_that_adds_it(
    doctor: Doctor, reached: HostCluster
) -> None:
    reached.trust("h1")
    try:
        rows = doctor(PLAIN, "--hosts", "h1,h2")
    finally:
        reached.trust(*reached.names)
    assert verdicts(rows)["h1"] == "ok"
    assert rows["h2"]["words"] == "the key of h2 is not known"
    assert f"ssh-keyscan 10.89.0.12 >> {reached.known_hosts}" in rows["h2"]["hint"]


@pytest.fixture
def blocked(reached: HostCluster) -> Iterator[None]:
    """Drop incoming connections to training ports of h1, as a firewall does; outgoing ones pass."""
    rule = ("INPUT", "-p", "tcp", "--dport", "1024:", "--syn", "-j", "DROP")
    reached.run("h1", "iptables", "-A", *rule)
    yield
    reached.run("h1", "iptables", "-D", *rule)


@pytest.mark.usefixtures("blocked")
def test_a_firewall_that_blocks_one_direction_is_found(doctor: Doctor) -> None:
    row = doctor(PLAIN, "--hosts", "h1,h2")["ports"]
    assert row["words"] == (
        "2 connections of 4 failed: from h1 to h1 at 10.89.0.11:20000 (no answer) and from h2 to h1 at 10.89.0.11:20000"
        " (no answer)"
    )
    assert "give each a `port` that passes" in row["hint"]


def test_an_address_that_is_unused_or_belongs_to_another_host_is_found(doctor: Doctor) -> None:
    hosts = [{"host": "h1", "address": "10.89.0.99"}, {"host": "h2", "address": "10.89.0.13"}, "h3"]
    words = doctor(PLAIN + options(hosts=hosts))["ports"]["words"]
    assert "from h2 to h1 at 10.89.0.99:20000 (no route to host)" in words
    assert "from h2 to h2 at 10.89.0.13:20000 (another program answers there, 'h3')" in words


def test_a_fixed_port_in_use_is_found(doctor: Doctor, reached: HostCluster) -> None:
    code = "import socket, sys; s = socket.create_server(('', 12346)); print(flush=True); sys.stdin.read()"
    enter = ("nsenter", "--target", str(reached.hosts["h2"].first), "--net", "--")
    taker = subprocess.Popen([*enter, "python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert taker.stdout
    taker.stdout.readline()
    hosts = [{"host": name, "port": 12345} for name in ("h1", "h2")]
    rows = doctor(PLAIN + options(hosts=hosts))
    taker.communicate("")
    assert rows["ports"]["words"] == "taken by other programs: 12346 on h2"
    assert (
        doctor(PLAIN + options(hosts=hosts))["ports"]["words"] == "every host reaches every other, 8 connections tried"
    )


def test_a_full_disk_is_found(doctor: Doctor, reached: HostCluster) -> None:
    reached.fill_disk("h3")
    try:
        row = doctor(PLAIN, "--hosts", "h1,h3")["disk"]
    finally:
        reached.empty_disk("h3")
    assert (row["verdict"], row["words"]) == ("missing", f"0 B free in {HOME}/.local/share/drumline on h3")
    assert "ssh: {folder: PATH}" in row["hint"]


def test_a_folder_that_is_wrongly_declared_as_shared_is_found(doctor: Doctor, reached: HostCluster) -> None:
    row = doctor(PLAIN + options(hosts=["h1", "h2"], shared="/tmp"))["shared folder"]
    assert row["words"] == "/tmp is not shared: h1 does not see what h2 wrote and h2 does not see what h1 wrote"
    row = doctor(PLAIN + options(hosts=["h1", "h2"], shared="/mnt/nowhere"))["shared folder"]
    assert "h1 cannot write there (no such file or directory)" in row["words"]
    assert doctor(PLAIN, "--hosts", "h1,h2")["shared folder"]["verdict"] == "note"
    assert not [each for name in ("h1", "h2") for each in reached.path(name, "/tmp").iterdir()]


def test_missing_gpus_are_found(doctor: Doctor) -> None:
    hosts = [{"host": "h1", "gpus": 2}, "h2"]
    rows = doctor(PLAIN + "resources: {gpus: 1}\n" + options(hosts=hosts))
    assert rows["gpus"]["words"] == "2 are configured on h1, 0 are found"
    assert rows["room"]["words"].endswith("2 gpus are missing")


def test_the_gpus_of_a_host_are_listed(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with HostCluster(2, env={"h1": {"DRUMLINE_GPUS": "0,1"}, "h2": {"DRUMLINE_GPUS": "0"}}) as host_cluster:
        monkeypatch.setenv("DRUMLINE_SSH_CONFIG", str(host_cluster.config))
        rows = doctor(PLAIN.replace("4", "3") + "resources: {gpus: 1}\n", "--hosts", "h1,h2")
    assert rows["gpus"]["words"] == "2 on h1, 1 on h2"
    assert rows["room"]["words"] == "2 replicas on h1 and 1 replica on h2"


def test_versions_of_the_framework_that_differ_are_found(doctor: Doctor, reached: HostCluster) -> None:
    names = ("scripts/environment", "--path", "tensorflow")
    new = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    cache = Path(os.environ.get("DRUMLINE_CACHE") or Path.home() / ".cache/drumline-dev")
    (old,) = cache.glob("drumline/environments/*/lib/python3*/site-packages/tensorflow_cpu-2.15.1.dist-info")
    pythons = {"h1": f"{new}/bin/python", "h2": f"{old.parents[3]}/bin/python"}
    for name, python in pythons.items():
        script = f'printf "#!/bin/sh\\nexec {python} \\"\\$@\\"\\n" > /run/python && chmod +x /run/python'
        reached.run(name, "sh", "-c", script)
    spec = PLAIN.replace("plain", "tensorflow")
    rows = doctor(spec + options(hosts=["h1", "h2"], python="/run/python"))
    assert rows["tensorflow"]["verdict"] == "missing"
    assert "not the same everywhere: " in rows["tensorflow"]["words"]
    assert "2.15.1 on h2" in rows["tensorflow"]["words"]
    assert doctor(spec + options(hosts=["h1"], python="/run/python"))["tensorflow"]["words"].endswith("on every host")
    without = doctor(spec, "--hosts", "h1,h2")["tensorflow"]
    assert without["words"] == "it is not installed for the Python of h1 and h2"
    assert "tensorflow: {version: …}" in without["hint"]
