"""The hosts of a plan, from the spec and from the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.engine.ssh.plan_options import Host, Hosts, host_warnings, hosts_of
from drumline.errors import EngineError, InputError
from drumline.load.load import load
from drumline.plan.codec import plan_from_json, plan_to_json
from scaffold.plans import plan_of

TWO = """
engine:
  ssh:
    hosts: [{host: me@gpu1, address: 10.1.10.58, port: 12345, cpus: 16, memory: 64GiB, gpus: 4}, gpu2]
    config: ssh/config
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "drumline.yml"
    file.write_text(f"project: digits\nrun: python train.py\n{TWO}")
    return file


def test_hosts_have_the_options_of_their_block() -> None:
    text = "{hosts: [{host: a, gpus: 1}, b], shared: /mnt, folder: ~/d, python: python3.12, lost: 5s, lease: never}"
    assert hosts_of(plan_of(f"engine: {{ssh: {text}}}")) == Hosts(
        all=(Host("a", gpus=1), Host("b")),
        folder="~/d",
        python="python3.12",
        shared="/mnt",
        lost_seconds=5.0,
        lease_seconds=None,
    )
    assert plan_of("engine: {default: local, ssh: [a]}").options == plan_of("").options


def test_hosts_are_equal_after_a_plan_was_written_and_read() -> None:
    plan = plan_of(TWO)
    assert plan_from_json(plan_to_json(plan)) == plan
    assert hosts_of(plan_from_json(plan_to_json(plan))) == hosts_of(plan)
    spoilt = plan_from_json(json.dumps({**json.loads(plan_to_json(plan)), "options": {"all": [{"address": "x"}]}}))
    with pytest.raises(EngineError, match="the plan does not fit its engine"):
        hosts_of(spoilt)


def test_a_plan_with_hosts_is_read_with_the_standard_library_only() -> None:
    text = plan_to_json(plan_of(TWO))
    source = Path(__file__).parents[4] / "src"
    code = f"import sys; sys.path.insert(0, {str(source)!r}); from drumline.plan.codec import plan_from_json as read"
    subprocess.run([sys.executable, "-S", "-I", "-c", f"{code}; assert read({text!r}).options"], check=True)


def test_peers_use_the_address_of_a_host_or_its_name_without_the_user() -> None:
    assert Host("me@gpu1", "10.0.0.1").reached_at == "10.0.0.1"
    assert Host("me@gpu1").reached_at == "gpu1"


def test_output_that_is_not_shared_gives_a_warning_only_with_several_hosts() -> None:
    (said,) = host_warnings(Hosts(all=(Host("a"), Host("b"))))
    assert said.startswith("OUTPUT_DIR is not shared: each of 2 hosts has its own, and the chief's is fetched back")
    assert not list(host_warnings(Hosts(all=(Host("a"),))))
    assert not list(host_warnings(Hosts(all=(Host("a"), Host("b")), shared="/mnt")))


def test_hosts_on_the_command_line_replace_those_of_the_spec_and_keep_their_settings_in_it(spec: Path) -> None:
    plan = load(None, flags={"hosts": "gpu3, me@gpu1"}).plan
    assert plan.engine == "ssh"
    known = Host("me@gpu1", "10.1.10.58", 12345, 16.0, 64 * 1024**3, 4)
    assert hosts_of(plan).all == (Host("gpu3"), known)
    assert hosts_of(plan).config == str(spec.parent / "ssh" / "config")


def test_hosts_on_the_command_line_select_ssh_whatever_the_engine_in_the_spec(spec: Path) -> None:
    spec.write_text("project: digits\nrun: x\nengine: kubernetes\n")
    loaded = load(None, flags={"hosts": "a"})
    assert loaded.plan.engine == "ssh"
    assert hosts_of(loaded.plan_as("7")) == hosts_of(loaded.plan)
    with pytest.raises(InputError, match=r"^--hosts is for ssh, but this runs on local$"):
        load(None, flags={"hosts": "a"}, on="local")


def test_a_random_suffix_is_chosen_only_for_folders_that_must_be_unique(spec: Path) -> None:
    hosts = [hosts_of(load(None, unique=unique).plan) for unique in (False, True, True)]
    assert hosts[0].unique == ""
    assert len({each.unique for each in hosts}) == 3


def test_a_variable_names_another_configuration_file_for_ssh(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_SSH_CONFIG", "/elsewhere/config")
    assert hosts_of(load(None).plan).config == "/elsewhere/config"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--hosts names none"),
        ("a,,b", "there is nothing before or after a comma"),
        ("a b", "`a b` is not a host"),
        ("a,-oProxyCommand=x", "`-oProxyCommand=x` is not a host"),
        ("a,$(x)", "is not a host"),
        ("a:22", "`a:22` has a port"),
        ("a,b,a", "`a` is named twice"),
    ],
)
def test_an_invalid_host_is_refused(spec: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(None, flags={"hosts": text})
    assert message in caught.value.message


def test_a_run_on_ssh_without_hosts_is_refused(spec: Path) -> None:
    spec.write_text("project: digits\nrun: x\nengine: ssh\n")
    plan = load(None).plan
    assert hosts_of(plan).all == ()
    engine = open_engine("ssh", Site(spec.parent, spec.parent / "home", cores=2))
    with pytest.raises(InputError, match=r"^no hosts are named") as caught:
        asyncio.run(engine.place(plan))
    assert "--hosts a,b" in caught.value.hint
