"""Specs out of thin air, for Hypothesis: as objects, and as the YAML a person might write for them.

`specs()` gives specs that `drumline check` accepts, `wild_specs()` also those that only the types allow.
`to_yaml(spec)` writes any of them so that reading it gives the same spec again.

Whoever imports this looks briefly in the usual run, and at length with DRUMLINE_FUZZ=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from drumline.plan.rules import findings
from drumline.spec import types
from drumline.spec.quantity import format_bytes, format_seconds
from drumline.spec.types import Block, Spec

# A deadline would only measure how busy the machine is.
settings.register_profile("usual", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("usual"), max_examples=20_000)
settings.load_profile("long" if os.environ.get("DRUMLINE_FUZZ") else "usual")

T = TypeVar("T")

# What YAML 1.1 or a shell would make something else of.
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


def maybe(strategy: SearchStrategy[T]) -> SearchStrategy[T | None]:
    """The value, or none at all."""
    return st.none() | strategy


def _some(fields: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[dict[str, Any]]:
    """Any few of these fields; a spec that says everything is rare, and slow to draw."""
    return st.fixed_dictionaries({}, optional=dict(fields))


def resources() -> SearchStrategy[types.Resources]:
    """What a replica claims."""
    cpus = st.integers(1, 1_000_000).map(lambda hundredths: hundredths / 100)
    return _some({"cpus": cpus, "memory": amounts, "gpus": st.integers(0, 1000)}).map(
        lambda fields: types.Resources(**fields)
    )


def values(fillings: SearchStrategy[str]) -> SearchStrategy[types.Value]:
    """The value of a variable: given, or taken from whoever launches."""
    given = st.builds(lambda value, override: types.Value(value=value, override=override), fillings, st.booleans())
    return st.one_of(given, st.builds(lambda name: types.Value(from_=name), variables))


def envs(fillings: SearchStrategy[str]) -> SearchStrategy[dict[str, types.Value]]:
    """Variables."""
    return st.dictionaries(variables, values(fillings), max_size=2)


def fillings(parameters: Mapping[str, str]) -> SearchStrategy[str]:
    """Texts that no shell reads, with and without placeholders."""
    if not parameters:
        return texts.filter(lambda text: "{{" not in text)
    placeholder = st.builds(
        lambda name, space, before: f"{before}{{{{{space}{name}{space}}}}}",
        st.sampled_from(sorted(parameters)),
        st.sampled_from(("", " ")),
        st.sampled_from(("", "--x=", "a ")),
    )
    return placeholder | texts.filter(lambda text: "{{" not in text)


def commands(parameters: Mapping[str, str]) -> SearchStrategy[str]:
    """Shell commands that any POSIX shell takes, with placeholders where values can be quoted."""
    around = (
        "{}",
        "--x={}",
        "'{}'",
        '"{}"',
        "a{}b",
        "$(echo {})",
        '"$(echo {})"',
        "; echo {}",
        "&& echo '{}'\necho {}",
    )
    words = ["train.py", "--fast", "'two words'", '"$HOME"', "# comment", "| cat"]
    words += [form.format(f"{{{{ {name} }}}}", f"{{{{{name}}}}}") for name in parameters for form in around]
    return st.lists(st.sampled_from(words), max_size=4).map(lambda words: " ".join(("python", *words)))


def runs(parameters: Mapping[str, str]) -> SearchStrategy[types.Run]:
    """A command, several, or the words of one."""
    command = commands(parameters)
    words = st.lists(fillings(parameters), max_size=3).map(lambda words: ("python", *words))
    return st.one_of(
        command.map(lambda text: types.Run(shell=text)),
        st.lists(command, min_size=1, max_size=3).map(lambda several: types.Run(shell=tuple(several))),
        words.map(lambda argv: types.Run(argv=argv)),
    )


@st.composite
def roles(draw: st.DrawFn, parameters: Mapping[str, str], first_port: int, most: int = 4) -> types.Role:
    """A role of at most so many replicas, with ports from a range of its own."""
    replicas = draw(st.integers(1, most))
    one = st.integers(first_port, first_port + 900)
    several = st.lists(one, min_size=replicas, max_size=replicas, unique=True).map(tuple)
    first = _some({"run": runs(parameters), "env": envs(fillings(parameters)), "resources": resources()}).map(
        lambda fields: types.First(**fields)
    )
    fields = {
        "run": runs(parameters),
        "env": envs(fillings(parameters)),
        "resources": resources(),
        "port": one | several,
        "first": first,
    }
    return types.Role(replicas=replicas, **draw(_some(fields)))


@st.composite
def data(draw: st.DrawFn, parameters: Mapping[str, str], name: str | None) -> types.Data:
    """A folder, with or without a command that makes it."""
    return types.Data(
        path=draw(paths),
        name=name,
        volume=draw(maybe(st.just("claim"))),
        prepare=draw(maybe(runs(parameters))),
    )


@st.composite
def several_data(draw: st.DrawFn, parameters: Mapping[str, str]) -> types.Data | tuple[types.Data, ...]:
    """One folder, or several with names."""
    labels = draw(st.lists(parameter_names, max_size=3, unique_by=lambda name: name.upper().replace("-", "_")))
    if not labels:
        return draw(data(parameters, None))
    return tuple(draw(data(parameters, label)) for label in labels)


def restarts() -> SearchStrategy[types.Restart]:
    """Budgets and backoff."""
    budget = st.integers(0, 1000)
    classes = ("budget", "crash", "lost", "preempted", "hang", "rendezvous", "out_of_memory")
    backoff = st.builds(
        lambda initial, more, factor: types.Backoff(initial=initial, maximum=initial + more, factor=factor),
        st.integers(0, 10_000).map(float),
        st.integers(0, 10_000).map(float),
        st.integers(100, 10_000).map(lambda hundredths: hundredths / 100),
    )
    return _some({**dict.fromkeys(classes, budget), "backoff": backoff}).map(lambda fields: types.Restart(**fields))


def timeouts() -> SearchStrategy[types.Timeouts]:
    """How long to wait."""
    kinds = ("start", "rendezvous", "grace", "run", "progress")
    return _some(dict.fromkeys(kinds, seconds)).map(lambda fields: types.Timeouts(**fields))


def engines() -> SearchStrategy[types.Engine]:
    """Options of any engines."""
    host = _some(
        {"address": st.just("10.0.0.1"), "port": st.integers(1, 65535), "memory": amounts, "gpus": st.integers(0, 8)}
    ).map(lambda fields: types.SshHost(host="node", **fields))
    cluster = _some(dict.fromkeys(("context", "namespace", "image"), names)).map(
        lambda fields: types.KubernetesOptions(**fields)
    )
    fields = {
        "default": st.sampled_from(("local", "ssh", "kubernetes", "jobset", "tfjob")),
        "local": st.just(types.LocalOptions()),
        "ssh": st.lists(host, max_size=2).map(lambda hosts: types.SshOptions(hosts=tuple(hosts))),
        **dict.fromkeys(("kubernetes", "jobset", "tfjob"), cluster),
    }
    return _some(fields).map(lambda fields: types.Engine(**fields))


@st.composite
def wild_specs(draw: st.DrawFn) -> Spec:
    """A spec that the types allow; most pass the rules, some do not."""
    parameters = draw(st.dictionaries(parameter_names, texts, max_size=3))
    directories = st.one_of(paths, st.just("runs/{{ run }}"), *(st.just(f"by-{{{{ {name} }}}}") for name in parameters))
    line = _some(
        {
            "chief": roles(parameters, 2000, most=1),
            "worker": roles(parameters, 3000),
            "ps": roles(parameters, 4000),
            "evaluator": roles(parameters, 5000, most=1),
        }
    ).map(lambda fields: types.Roles(**fields))
    fields = {
        "name": names,
        "tensorflow": st.builds(
            lambda when, where: types.TensorFlow(tf_config=when, evaluator_in_cluster=where),
            st.sampled_from(("auto", "always")),
            st.booleans(),
        ),
        "roles": line,
        "resources": resources(),
        "port": st.integers(1024, 60_000),
        "env": envs(fillings(parameters)),
        "output": directories,
        "checkpoint": directories,
        "data": several_data(parameters),
        "restart": restarts(),
        "timeouts": timeouts(),
        "success": st.sampled_from(("chief", "all-workers", "worker-0")),
        "engine": engines(),
    }
    return Spec(
        project=draw(names),
        run=draw(runs(parameters)),
        framework=draw(st.sampled_from(("tensorflow", "torch", "jax", "plain"))),
        parameters=parameters,
        **draw(_some(fields)),
    )


def specs() -> SearchStrategy[Spec]:
    """A spec that reads well and passes every rule: it can be planned, bound and rendered (its workdir is `.`)."""
    return wild_specs().filter(lambda spec: not any(finding.fatal for finding in findings(spec)))


def to_data(spec: Block, *, shorten: Callable[[], bool] = lambda: True) -> object:
    """A spec as plain data, in the short form wherever there is one and `shorten()` agrees."""
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
        case tuple():
            return [_plain(name, item, shorten) for item in value]
        case dict():
            return {key: _plain(key, item, shorten) for key, item in value.items()}
        case int() if name == "memory":
            return format_bytes(value)
        case float() if name not in ("cpus", "factor"):
            return format_seconds(value)
        case _:
            return value


def to_yaml(spec: Spec, *, shorten: Callable[[], bool] = lambda: True, flow: bool | None = False) -> str:
    """A spec as a file: reading it gives an equal spec."""
    text: str = yaml.safe_dump(to_data(spec, shorten=shorten), default_flow_style=flow, sort_keys=False)
    return text


@st.composite
def spec_files(draw: st.DrawFn) -> tuple[Spec, str]:
    """A spec that passes every rule, and one of the ways to write it down."""
    spec = draw(specs())
    randomness = draw(st.randoms(use_true_random=False))
    return spec, to_yaml(
        spec, shorten=lambda: randomness.random() < 0.7, flow=draw(st.sampled_from((True, False, None)))
    )
