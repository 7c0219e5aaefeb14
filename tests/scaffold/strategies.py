"""Random specs, for Hypothesis: as objects, and as YAML that a user might write for them.

`specs()` gives specs that `drumline check` accepts, `wild_specs()` also those that only the types allow.
`to_yaml(spec)` writes any of them so that reading it gives the same spec again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from drumline.engine.kubernetes import options as blocks
from drumline.engine.local import options as local
from drumline.engine.ssh.options import SshHost, SshOptions
from drumline.load.engine import all_spec_problems, known_spec_type
from drumline.spec import types
from drumline.spec.block import Block
from drumline.spec.engine import options_field
from drumline.spec.quantity import format_bytes, format_seconds
from drumline.spec.types import Spec

SPEC = known_spec_type()
ENGINE = type(SPEC(project="x").engine)

# Texts that YAML 1.1 or a shell reads as something else.
TRICKY = (
    *(
        "no",
        "on",
        "y",
        "~",
        "null",
        "true",
        "1e-6",
        "010",
        "0o10",
        "0x1f",
        "12:30",
        "1_000",
        ".inf",
        "<<",
        "=",
        "-",
        "?",
    ),
    *(
        "",
        " ",
        "a b",
        "it's",
        '"',
        "$(id)",
        "`id`",
        "$HOME",
        "a\nb",
        "\n",
        "\t",
        "\\",
        "*",
        "&a",
        "!x",
        "#",
        "{}",
        "%s",
    ),
    *("{{ x }}", "é", "\u2028", "\x85", "\ufeff", "😀", "line\n\n", " lead", "trail ", "a: b", "- a", "\r\n", "---"),
)

texts = st.one_of(
    st.sampled_from(TRICKY),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
names = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_-]{0,20}[A-Za-z0-9])?\Z")
parameter_names = st.one_of(
    st.sampled_from(("lr", "layers", "lr-decay", "batch_size", "seed", "x")),
    st.from_regex(r"\A[A-Za-z]([A-Za-z0-9_-]{0,8}[A-Za-z0-9])?\Z"),
)
variables = st.one_of(
    st.sampled_from(("TOKEN", "MODE", "TF_CPP_MIN_LOG_LEVEL", "http_proxy", "_x")),
    st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,8}\Z"),
)
paths = st.sampled_from(("out", "out/deep", "/var/data/x", "a folder", "../beside", "é"))
amounts = st.one_of(
    st.integers(1, 1024**6),
    st.builds(
        lambda number, unit: number * unit, st.integers(1, 999), st.sampled_from((1000, 1000**3, 1024**2, 1024**3))
    ),
)
seconds = st.one_of(
    st.integers(0, 10**7).map(float),
    st.integers(0, 10**6).map(lambda thousandths: thousandths / 1000),
)


def _some(fields: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[dict[str, Any]]:
    """Draw a few of these fields; a spec with all keys is unlikely and slow to draw."""
    return st.fixed_dictionaries({}, optional=dict(fields))


# Made once: Hypothesis takes longer to make a strategy than to draw from it. So placeholders are of a few names, and a
# spec gets the parameters that it needs.
NAMES = ("lr", "layers", "lr-decay", "Batch_Size")

fillings = st.one_of(
    st.sampled_from(
        [
            f"{before}{{{{{space}{name}{space}}}}}"
            for before in ("", "--x=", "a ")
            for space in ("", " ")
            for name in NAMES
        ]
    ),
    texts.filter(lambda text: "{{" not in text),
)
_quotes = ("{}", "--x={}", "'{}'", '"{}"', "a{}b", "$(echo {})", '"$(echo {})"', "; echo {}", "&& echo '{}'\necho 'x'")
_words = ["train.py", "--fast", "'two words'", '"$HOME"', "# {{ comment }}", "| cat", "{{ not a placeholder }}"]
commands = st.lists(
    st.sampled_from(_words + [quotes.format(f"{{{{ {name} }}}}") for name in NAMES for quotes in _quotes]), max_size=4
).map(lambda words: " ".join(("python", *words)))
runs = st.one_of(
    commands.map(lambda command: types.Run(shell=command)),
    st.lists(commands, min_size=1, max_size=3).map(lambda several: types.Run(shell=tuple(several))),
    st.lists(fillings, max_size=3).map(lambda words: types.Run(argv=("python", *words))),
)
resources = _some(
    {
        "cpus": st.integers(1, 1_000_000).map(lambda hundredths: hundredths / 100),
        "memory": amounts,
        "gpus": st.integers(0, 1000),
    }
).map(lambda fields: types.Resources(**fields))
values = st.one_of(
    st.builds(lambda value, override: types.Value(value=value, override=override), fillings, st.booleans()),
    variables.map(lambda name: types.Value(from_=name)),
)
envs = st.dictionaries(variables, values, max_size=2)
firsts = _some({"run": runs, "env": envs, "resources": resources}).map(lambda fields: types.First(**fields))
label_keys = st.sampled_from(("team", "example.com/team", "nvidia.com/gpu", "A_b.c"))
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.sampled_from(("", "a", "it's", "a: b", "$(X)")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(label_keys, inner, max_size=2),
    max_leaves=4,
)
patches = st.dictionaries(label_keys, anything, max_size=2)
_of_its_own = _some({"run": runs, "env": envs, "resources": resources, "first": firsts, "pod": patches})


@st.composite
def _roles(draw: st.DrawFn, first_port: int, most: int = 4) -> types.Role:
    """Draw a role with at most `most` replicas and ports from a separate range."""
    count, port = draw(st.integers(1, most)), draw(st.integers(first_port, first_port + 900))
    ports = draw(st.sampled_from((None, None, port, tuple(range(port, port + count)))))
    return types.Role(replicas=count, port=ports, **draw(_of_its_own))


lines = _some({"chief": _roles(2000, 1), "worker": _roles(3000), "ps": _roles(4000), "evaluator": _roles(5000, 1)}).map(
    lambda fields: types.Roles(**fields)
)
folders = paths | st.sampled_from(["runs/{{ run }}", *(f"by-{{{{ {name} }}}}" for name in NAMES)])
CLAIM = types.Volume(claim="claim")
data = st.one_of(
    _some({"volume": st.just(CLAIM), "prepare": runs}).map(lambda fields: types.Data(path="data", **fields)),
    st.dictionaries(parameter_names, _some({"volume": st.just(CLAIM), "prepare": runs}), min_size=1, max_size=3).map(
        lambda several: tuple(types.Data(path=f"data/{name}", name=name, **fields) for name, fields in several.items())
    ),
)
environments = _some(
    {
        "python": st.sampled_from(("{}.{}".format(*sys.version_info[:2]), sys.executable)),
        "requirements": st.just("requirements.txt") | st.lists(names, max_size=3).map(tuple),
    }
).map(lambda fields: types.Environment(**fields))
backoffs = st.builds(
    lambda initial, more, factor: types.Backoff(initial=initial, maximum=initial + more, factor=factor / 100),
    st.integers(0, 10_000).map(float),
    st.integers(0, 10_000).map(float),
    st.integers(100, 10_000),
)
restarts = _some(
    {
        **dict.fromkeys(
            ("budget", "crash", "lost", "preempted", "hang", "rendezvous", "out_of_memory", "early"),
            st.integers(0, 1000),
        ),
        "backoff": backoffs,
        "permanent": st.lists(st.sampled_from(("1", "1-127", "255")), max_size=2).map(tuple),
    }
).map(lambda fields: types.Restart(**fields))
timeouts = _some(dict.fromkeys(("start", "rendezvous", "grace", "run", "progress"), seconds)).map(
    lambda fields: types.Timeouts(**fields)
)
hosts = st.builds(
    lambda name, fields: SshHost(host=name, **fields),
    st.sampled_from(("node", "me@gpu1", "10.1.10.58", "fe80::1")),
    _some(
        {"address": st.just("10.0.0.1"), "port": st.integers(1, 65535), "memory": amounts, "gpus": st.integers(0, 8)}
    ),
)
several_hosts = _some(
    {
        "hosts": st.lists(hosts, max_size=2).map(tuple),
        "shared": st.sampled_from(("/mnt/all", "beside")),
        "folder": st.sampled_from(("/scratch/drumline", "~/runs", "runs")),
        "python": st.sampled_from(("python3.12", "/opt/python/bin/python3")),
        "config": paths,
        "lost": seconds,
        "lease": seconds,
    }
).map(lambda fields: SshOptions(**fields))
labels = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?\Z")
label_values = st.sampled_from(("", "a", "A-b_c.d", "1", "true"))
images = st.one_of(
    names.map(lambda name: blocks.Image(name=name)),
    st.builds(
        lambda context, registry: blocks.Image(dockerfile="Dockerfile", context=context, registry=registry),
        st.none() | paths,
        st.none() | names,
    ),
    st.lists(names, max_size=2).map(lambda several: blocks.Image(base="python:3.11", install=tuple(several))),
)
accesses = st.sampled_from((None, "ReadWriteMany", "ReadWriteOnce"))
volumes = st.one_of(
    st.builds(lambda claim, access: types.Volume(claim=claim, access=access), labels, accesses),
    st.builds(
        lambda size, kind, access: types.Volume(size=size, class_=kind, access=access),
        amounts,
        st.none() | labels,
        accesses,
    ),
)
tolerations = st.one_of(
    label_keys.map(lambda key: blocks.Toleration(key=key)),
    st.builds(
        lambda key, value, effect: blocks.Toleration(key=key, operator="Equal", value=value, effect=effect),
        label_keys,
        label_values,
        st.sampled_from((None, "NoSchedule", "PreferNoSchedule", "NoExecute")),
    ),
    st.just(blocks.Toleration(operator="Exists", effect="NoExecute", seconds=300)),
)
clusters = _some(
    {
        "context": names,
        "namespace": labels,
        "image": images,
        "jobs": st.sampled_from(("single", "indexed")),
        "output": volumes,
        "code": st.booleans(),
        "node_selector": st.dictionaries(label_keys, label_values, max_size=2),
        "tolerations": st.lists(tolerations, max_size=2).map(tuple),
        "priority_class": labels,
        "service_account": labels,
        "pull_secrets": st.lists(labels, max_size=2).map(tuple),
        "queue": labels,
        "labels": st.dictionaries(label_keys, label_values, max_size=2),
        "annotations": st.dictionaries(label_keys, texts, max_size=2),
        "shm": amounts,
        "user": st.integers(0, 2**31 - 1),
        "network_policy": st.booleans(),
        "pod": patches,
    }
).map(lambda fields: blocks.KubernetesOptions(**fields))
networks: SearchStrategy[Literal["shared", "private"] | local.Network] = st.one_of(
    st.just("shared"),
    st.just("private"),
    st.builds(
        lambda private, outgoing: local.Network(private=private, outgoing=outgoing),
        st.booleans(),
        st.sampled_from((False, False, True)),
    ),
)
engines = _some(
    {
        "default": st.sampled_from(("local", "ssh", "kubernetes", "jobset", "tfjob")),
        "local": networks.map(lambda network: local.LocalOptions(network=network)),
        "ssh": several_hosts,
        **dict.fromkeys(("kubernetes", "jobset", "tfjob"), clusters),
    }
).map(
    lambda fields: ENGINE(
        **{options_field(name) if name != "default" else name: value for name, value in fields.items()}
    )
)


_parameters = st.fixed_dictionaries(dict.fromkeys(NAMES, texts), optional={"seed": texts, "PATH": texts})
_spares = st.sampled_from(("", "seed", "lr", "PATH"))
_fields = _some(
    {
        "name": names,
        "framework": st.sampled_from(("tensorflow", "torch", "jax", "plain")),
        "tensorflow": st.builds(
            lambda when, where, version: types.TensorFlow(tf_config=when, evaluator_in_cluster=where, version=version),
            st.sampled_from(("auto", "always")),
            st.booleans(),
            st.sampled_from((None, None, "2.98.1", "2.99")),
        ),
        "torch": st.builds(types.Torch, rendezvous=st.sampled_from(("auto", "always"))),
        "environment": environments,
        "roles": lines,
        "resources": resources,
        "port": st.integers(1024, 60_000),
        "env": envs,
        "output": folders,
        "checkpoint": folders,
        "data": data,
        "restart": restarts,
        "timeouts": timeouts,
        "success": st.sampled_from(("chief", "all-workers", "worker-0")),
        "tensorboard": st.booleans(),
        "engine": engines,
    }
)


@st.composite
def wild_specs(draw: st.DrawFn) -> Spec:
    """Draw a spec that the types allow; most pass the rules, some do not.

    It has the parameters that its placeholders need, and sometimes one more.
    """
    spec = SPEC(project=draw(names), run=draw(runs), **draw(_fields))
    text, spare = str(spec), draw(_spares)
    return spec.with_parameters(
        {name: value for name, value in draw(_parameters).items() if name in text or name == spare}
    )


def specs() -> SearchStrategy[Spec]:
    """Draw a spec that passes every rule: it can be planned, bound and rendered (its workdir is `.`)."""
    return wild_specs().filter(lambda spec: not any(problem.fatal for problem in all_spec_problems(spec)))


def to_data(spec: Block, *, shorten: Callable[[], bool] = lambda: True) -> object:
    """Return a spec as plain data, with short forms where they exist and `shorten()` returns true."""
    written = {}
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if value != default:
            written[field.encode_name] = _plain(field.name, value, shorten)
    if spec.short in written and len(written) == 1 and shorten():
        return written[spec.short]
    return written


def _plain(name: str, value: object, shorten: Callable[[], bool]) -> object:
    match value:
        case Block():
            return to_data(value, shorten=shorten)
        case dict() if name == "pod":
            return value
        case tuple():
            return [_plain(name, item, shorten) for item in value]
        case dict():
            return {key: _plain(key, item, shorten) for key, item in value.items()}
        case int() if name in ("memory", "size", "shm") and not isinstance(value, bool):
            return format_bytes(value)
        case float() if name not in ("cpus", "factor"):
            return format_seconds(value)
        case _:
            return value


def to_yaml(spec: Spec, *, shorten: Callable[[], bool] = lambda: True, flow: bool | None = False) -> str:
    """Return a spec as YAML; reading it gives an equal spec."""
    text: str = yaml.safe_dump(to_data(spec, shorten=shorten), default_flow_style=flow, sort_keys=False)
    return text


@st.composite
def spec_files(draw: st.DrawFn) -> tuple[Spec, str]:
    """Draw a spec that passes every rule, and its YAML in one of several forms."""
    spec = draw(specs())
    randomness = draw(st.randoms(use_true_random=False))
    return spec, to_yaml(
        spec, shorten=lambda: randomness.random() < 0.7, flow=draw(st.sampled_from((True, False, None)))
    )
