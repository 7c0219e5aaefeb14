"""From a file's name to a plan, with every problem on the way reported at once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

from drumline.errors import InputError, Problem, SpecError
from drumline.load.script import remarks
from drumline.plan.make import make_plan
from drumline.plan.rules import findings
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.spec.block import NAME_PATTERN, NAME_WORDS
from drumline.spec.document import MAX_BYTES
from drumline.spec.foreign import is_template, may_be_foreign
from drumline.spec.read import MAX_PROBLEMS, Reading, read_spec
from drumline.spec.types import Spec
from drumline.words import listed, nearest, printable

DEFAULT_FILES = ("drumline.yml", "drumline.yaml", "riseml.yml")


class Loaded(Record):
    """A plan, the folder that its spec is in, and what is unwise about it."""

    plan: Plan
    directory: str
    source: str
    warnings: tuple[Problem, ...]
    spec: Spec
    data: bytes

    def plan_as(self, run: str) -> Plan:
        """The same plan as the run of this number."""
        plan = make_plan(self.spec, run=run, engine=self.plan.engine)
        return plan.replace(cluster=self.plan.cluster, hosts=self.plan.hosts)


def load(
    file: str | None,
    *,
    given: Sequence[str] = (),
    on: str | None = None,
    name: str | None = None,
    run: str = "0",
    context: str | None = None,
    namespace: str | None = None,
    hosts: str | None = None,
    unique: bool = False,
    complete: bool = False,
    found: tuple[str, bytes, str] | None = None,
) -> Loaded:
    """Read, check and plan a spec; raise SpecError with all its problems.

    If it has to be `complete`, every parameter needs a value; else one without is shown as it stands in the spec.

    What was `found` by that name is not read again.

    The context and the namespace are those of a cluster, and come before the spec's, as the hosts do, which are reached
    by ssh; if its names there are to be `unique`, a few letters are chosen that nobody else has.
    """
    source, data, directory = found or read_file(file)
    spec, warnings = check_spec(data, source, directory, given)
    spec = spec if is_template(data) else _with_parameters(spec, given)
    if missing := [name for name, value in spec.parameters.items() if value is None]:
        warnings = (*warnings, _about_missing(source, missing, fatal=complete))
    if name is not None:
        spec = _with_name(spec, name)
    if hosts is not None:
        from drumline.load.hosts import with_hosts  # noqa: PLC0415 - only where they are named

        spec, on = with_hosts(spec, hosts, on)
    plan = make_plan(spec, run=run, engine=on)
    if plan.hosts:
        from pathlib import Path  # noqa: PLC0415 - only where a line runs on such

        from drumline.load.hosts import settled  # noqa: PLC0415

        letters = _random_letters() if unique else ""
        plan = plan.replace(hosts=settled(plan.hosts, Path(directory), unique=letters, user=_user(os.environ)))
    if plan.cluster:
        from drumline.plan.cluster import located  # noqa: PLC0415 - only where a line runs in one

        letters = _random_letters() if unique else ""
        cluster = located(plan.cluster, context, namespace, unique=letters, user=_user(os.environ))
        plan = plan.replace(cluster=cluster)
    elif context or namespace:
        given_option = "--context" if context else "--namespace"
        raise InputError(
            f"{given_option} is for clusters, and this runs on {plan.engine}", hint="add `--on kubernetes`"
        )
    return Loaded(plan, directory, source, (*warnings, *remarks(plan, directory)), spec, data)


def check_spec(
    data: bytes, source: str, directory: str | None = None, given: Sequence[str] = ()
) -> tuple[Spec, tuple[Problem, ...]]:
    """Read a spec that can be planned, and what is unwise about it; raise SpecError with all its problems.

    Files that it names are looked for in the directory; without one they are not read.
    """
    reading = read(data, source, given)
    problems = list(reading.problems)
    warnings = list(reading.remarks)
    for finding in findings(reading.spec):
        if not any(map(reading.is_bad, (finding.path, *finding.follows_from))):
            (problems if finding.fatal else warnings).append(reading.problem(finding.path, finding.message))
        if len(problems) >= MAX_PROBLEMS:
            break
    spec = reading.spec
    if spec.environment and directory and not reading.is_bad(("environment",)):
        from pathlib import Path  # noqa: PLC0415 - few ask for it

        from drumline.spec.requirements import BadRequirement, read_requirements  # noqa: PLC0415

        try:
            spec = spec.with_requirements(read_requirements(spec.environment.requirements, Path(directory)))
        except BadRequirement as error:
            path = ("environment", "requirements", *(() if error.index is None else (error.index,)))
            problems.append(reading.problem(path, str(error)))
    if problems:
        raise SpecError(problems)
    return spec, tuple(warnings)


def read(data: bytes, source: str, given: Sequence[str] = ()) -> Reading:
    """Read a spec, in whichever of the dialects it is written; only a template looks at what is given."""
    if may_be_foreign(data):
        from drumline.spec.dialect import read_dialect  # noqa: PLC0415 - few are

        if reading := read_dialect(data, source, given):
            return reading
    return read_spec(data, source)


def read_file(file: str | None) -> tuple[str, bytes, str]:
    """The name by which a file is called, its bytes, and the folder it is in; raise InputError if it cannot be read."""
    if file is None:
        file = next((name for name in DEFAULT_FILES if os.path.lexists(name)), None)
        if file is None:
            raise InputError(f"there is no {DEFAULT_FILES[0]} here", hint="`drumline init` writes one, or name a file")
    source = "<stdin>" if file == "-" else printable(file)
    try:
        if file == "-":
            stream = getattr(sys.stdin, "buffer", None)
            if stream is None:
                raise OSError("it is closed")
            return source, stream.read(MAX_BYTES + 1), _here()
        with open(file, "rb") as stream:  # noqa: PTH123
            return source, stream.read(MAX_BYTES + 1), _folder_of(file)
    except FileNotFoundError:
        raise InputError(f"{source}: no such file", hint="`drumline init` writes a drumline.yml") from None
    except IsADirectoryError:
        inside = printable(os.path.normpath(os.path.join(file, DEFAULT_FILES[0])))  # noqa: PTH118
        raise InputError(f"{source}: is a directory", hint=f"name a file, such as `{inside}`") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{source}: cannot be read: {reason}") from None


def _folder_of(file: str) -> str:
    folder = os.path.dirname(file)  # noqa: PTH120
    return folder if folder.startswith("/") else os.path.join(_here(), folder) if folder else _here()  # noqa: PTH118


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise InputError("the folder you are in is gone", hint="`cd` to another") from None


def _with_parameters(spec: Spec, given: Sequence[str]) -> Spec:
    return spec.with_parameters({**spec.parameters, **read_given(given, spec.parameters)})


def read_given(given: Sequence[str], known: Mapping[str, object]) -> dict[str, str]:
    """The values that are given as NAME=VALUE, by name; raise InputError for a name that is not known."""
    values: dict[str, str] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"-p {printable(item)}: expected NAME=VALUE")
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else f"the spec has: {', '.join(known) or 'none'}"
            raise InputError(f"-p {printable(item)}: the spec has no parameter `{printable(name)}`", hint=hint)
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise InputError(f"-p {printable(item)}: the value is not UTF-8")
        values[name] = value
    return values


def _about_missing(source: str, missing: Sequence[str], *, fatal: bool) -> Problem:
    """One sentence about every parameter that has no value; raise it if that cannot be."""
    message = f"{listed([f'`{name}`' for name in missing])} {'has' if len(missing) == 1 else 'have'} no value"
    hint = " ".join(f"-p {name}=…" for name in missing)
    if fatal:
        raise InputError(f"{source}: {message}", hint=f"give {'it' if len(missing) == 1 else 'them'}: `{hint}`")
    return Problem(source, None, "", f"{message}; to train, add `{hint}`")


def _with_name(spec: Spec, name: str) -> Spec:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"--name {printable(name)}: expected {NAME_WORDS}")
    return spec.with_name(name)


def _random_letters() -> str:
    """A few letters that keep two runs apart in one place: of fourteen million pairs about one shares them."""
    import secrets  # noqa: PLC0415 - only where a line runs in one

    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))


def _user(environ: Mapping[str, str]) -> str:
    return environ.get("USER") or environ.get("LOGNAME") or f"uid-{os.getuid()}"
