"""On a host: a supervisor's hand there. It does what it is told with the local engine, and says what happens.

It lives as long as its connection. Keepers outlive it, and the next one takes their replicas up by their traces; that
is all there is to reconnecting.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from drumline.engine.local import LocalEngine
from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.ended import ended_usage
from drumline.engine.local.holder import find_holders, require_free
from drumline.engine.local.life import Life
from drumline.engine.local.sabotage import LocalSaboteur
from drumline.engine.local.trace import read_trace
from drumline.engine.protocol import Capacity, MustWait, Site
from drumline.engine.ssh.follower import Follower, Say
from drumline.engine.ssh.lock import take_over
from drumline.engine.ssh.shelf import tidy
from drumline.engine.ssh.wire import DATA_BYTES, LINE_BYTES, Frame, launch_from_data, life_from_data, life_to_data
from drumline.errors import DrumlineError
from drumline.plan.codec import plan_from_json, to_data
from drumline.plan.types import ReplicaId
from drumline.run.drill import Harm
from drumline.run.traces import STACKS, TRACE
from drumline.runtime import keeper
from drumline.runtime.lock import is_locked
from drumline.runtime.private import make_folder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_MOMENT_SECONDS = 0.02
_SILENCE_SECONDS = 60.0
_USE_SECONDS = 3600.0
_TIDY_SECONDS = 1.0  # after a line that begins has had the host for itself


class Hand:
    """One run's hand on this host; owns the local engine, and the lock that keeps a second hand away."""

    def __init__(self, loop: AbstractEventLoop, say: Say, is_busy: Callable[[], bool]) -> None:
        self._loop = loop
        self._say = say
        self._is_busy = is_busy
        self._lease: Path | None = None
        self._ended: set[Life] = set()
        self._heard_at = keeper.now()
        self._silence_seconds = _SILENCE_SECONDS

    def hear(self, frame: Frame) -> None:
        """Do what a message says, and answer where it asks for that."""
        self._heard_at = keeper.now()
        if self._lease:
            with suppress(OSError):
                os.utime(self._lease)
        message = frame.message
        try:
            answer = getattr(self, f"_do_{message['do']}")(message)
        except MustWait as wait:
            answer = {"error": "MustWait", "message": str(wait)}
        except DrumlineError as error:
            answer = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        except OSError as error:
            answer = {"error": "EngineError", "message": error.strerror or str(error)}
        except Exception as error:  # noqa: BLE001 - whoever is at the other end is told, and nobody here falls by it
            traceback.print_exc()
            answer = {"error": "EngineError", "message": f"{type(error).__name__}: {error}"}
        if "id" in message and answer is not None:
            self._answer(message, answer)

    def _answer(self, message: dict[str, Any], answer: dict[str, Any]) -> None:
        frame = {"do": "answer", "id": message["id"], **answer}
        if len(Frame(frame).encode()) > LINE_BYTES:  # the other side would hang up
            frame = {"do": "answer", "id": message["id"], "error": "EngineError", "message": "the answer is too long"}
        self._say(frame, b"")

    @property
    def is_forsaken(self) -> bool:
        """Whether nobody has said anything for so long that nobody will; a connection need not tell."""
        return keeper.now() - self._heard_at >= self._silence_seconds

    def _do_hello(self, message: dict[str, Any]) -> dict[str, Any]:
        """Open this host's folder of the run; an agent that was there before has lost its connection, and is ended."""
        base = Path(message["folder"]).expanduser().absolute()
        self._run_dir = _own_folder(base, message)
        directory = base / "runs" / message["run"] / "project"
        for folder in (base, base / "runs", directory.parent, directory, self._run_dir.parent, self._run_dir):
            make_folder(folder)
        self._silence_seconds = message["lost"]
        self._lock = take_over(self._run_dir / "hand.lock")
        log = os.open(self._run_dir / "hand.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        lease = None
        if message["lease"] is not None:
            self._lease = self._run_dir / "lease"
            self._lease.touch(0o600)
            lease = str(self._lease), message["lease"]
        environ = dict(os.environ)
        runtime = os.path.expanduser(message["runtime"])  # noqa: PTH111
        environ["PYTHONPATH"] = ":".join(filter(None, (environ.get("PYTHONPATH"), runtime)))  # behind the user's own
        cores = len(os.sched_getaffinity(0))
        capacity = _allowed(find_capacity(cores, environ), message["allowed"])
        self._site = Site(directory, base, cores, _python_dir(self._run_dir), capacity, cache=base / "cache")
        self._engine = LocalEngine(self._site, environ, lease)
        self._follower = Follower(self._run_dir, self._loop, self._say, self._is_busy)
        self._follower.usage_of = self._usage_of
        self._engine.watch(self._run_dir, self._loop, self._follower.tell)
        self._loop.call_later(_TIDY_SECONDS, lambda: tidy(Path(runtime).parents[1]))
        self._use(Path(runtime).parent)
        return self._do_facts(message)

    def _use(self, package: Path) -> None:
        """Note now and then that this package is used: agents of other hosts may see it, and not our lock on it."""
        with suppress(OSError):
            os.utime(package)
        self._loop.call_later(_USE_SECONDS, lambda: self._use(package))

    def _do_facts(self, message: dict[str, Any]) -> dict[str, Any]:
        """What this host is and has; nothing needs to be opened for that."""
        capacity = find_capacity(len(os.sched_getaffinity(0)), os.environ)
        return {
            "base": str(Path(message["folder"]).expanduser().absolute()),
            "boot": keeper.boot_id(),
            "python": platform.python_version(),
            "cpus": capacity.cpus,
            "memory_bytes": capacity.memory_bytes,
            "gpus": list(capacity.gpus),
        }

    def _do_ports(self, message: dict[str, Any]) -> dict[str, Any]:
        """Who has which of these ports; nothing needs to be opened for that."""
        return {"holders": [to_data(each) for each in find_holders(message["ports"])]}

    def _do_ping(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        return {"now": keeper.now()}

    def _do_place(self, message: dict[str, Any]) -> dict[str, Any]:
        plan = plan_from_json(message["plan"])
        (self._site.directory / plan.workdir).mkdir(parents=True, exist_ok=True)
        placement = self._engine.place(plan, attempt=message["attempt"])
        require_free(plan, str(self._run_dir))
        return {
            "places": {str(replica): to_data(place) for replica, place in placement.items()},
            "remarks": list(self._engine.remarks()),
        }

    def _do_start(self, message: dict[str, Any]) -> dict[str, Any]:
        self._follow(message["offsets"])
        self._engine.start([launch_from_data(each) for each in message["launches"]])
        return {}

    def _do_stop(self, message: dict[str, Any]) -> dict[str, Any]:
        self._follow(message["offsets"])
        lives = _lives(message)
        self._engine.stop(
            [life.replica for life in lives],
            message["attempt"],
            grace_seconds=message["grace"],
            incarnations={life.replica: life.incarnation for life in lives},
        )
        return {}

    def _do_prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        self._follow(message["offsets"])
        plan = plan_from_json(message["plan"])
        self._engine.prepare(plan, ReplicaId.parse(message["helper"]), incarnation=message["incarnation"])
        return {}

    def _do_usage(self, message: dict[str, Any]) -> dict[str, Any]:
        found = self._engine.usage(watched=message["watched"])
        living = [each for each in found if Life(each.replica, each.attempt, each.incarnation) not in self._ended]
        return {"usage": [to_data(each) for each in living]}

    def _do_pulses(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        return {"pulses": [to_data(each) for each in self._engine.pulses()]}

    def _do_sockets(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        found = self._engine.sockets()
        return {
            "sockets": [
                {"replica": str(each.replica), "listening": [*each.listening], "connected": [*each.connected]}
                for each in found
            ]
        }

    def _do_stacks(self, message: dict[str, Any]) -> None:
        lives = _lives(message)

        def then() -> None:
            for life in lives:
                with suppress(OSError), (life.folder(self._run_dir) / STACKS).open("rb") as file:
                    data = file.read(DATA_BYTES)
                    self._say({"do": "file", "life": life_to_data(life), "name": STACKS}, data)
            self._say({"do": "answer", "id": message["id"]}, b"")

        self._engine.stacks(
            [life.replica for life in lives],
            message["attempt"],
            gently=message["gently"],
            then=then,
            incarnations={life.replica: life.incarnation for life in lives},
        )

    def _do_harm(self, message: dict[str, Any]) -> dict[str, Any]:
        """Hurt a life, or heal it: for whoever is no supervisor, so nothing needs to be opened for that."""
        run_dir = _own_folder(Path(message["folder"]).expanduser().absolute(), message)
        saboteur = LocalSaboteur()
        act = saboteur.heal if message["heal"] else saboteur.hurt
        life = life_from_data(message["life"])
        act(life.folder(run_dir), life.replica, Harm(message["harm"]))
        return {}

    def _do_close(self, message: dict[str, Any]) -> None:
        del message
        self._engine.close()

    def _do_clear(self, message: dict[str, Any]) -> None:
        """End whoever is left of the run, in whatever attempt, but for these; answer when they have ended."""
        keep = {life_from_data(each) for each in message["keep"]}
        left = [life for life in self._left() if life not in keep]
        for life in left:
            self._engine.stop(
                [life.replica], life.attempt, grace_seconds=0, incarnations={life.replica: life.incarnation}
            )
        self._when_gone(left, message)

    def _do_release(self, message: dict[str, Any]) -> None:
        self._do_clear({**message, "keep": ()})

    def _when_gone(self, lives: Sequence[Life], message: dict[str, Any]) -> None:
        """Answer when nobody keeps these any more; whoever has begun since is none of them."""
        if any(is_locked(life.folder(self._run_dir) / TRACE) for life in lives):
            self._loop.call_later(_MOMENT_SECONDS, lambda: self._when_gone(lives, message))
            return
        if message["do"] == "release":
            self._engine.release()
        self._say({"do": "answer", "id": message["id"]}, b"")

    def _left(self) -> Iterator[Life]:
        """Every life of the run that somebody still keeps."""
        for trace in self._run_dir.glob(f"attempts/*/*/{TRACE}"):
            if is_locked(trace):
                replica, _, incarnation = trace.parent.name.partition("+")
                attempt = int(trace.parent.parent.name)
                yield Life(ReplicaId.parse(replica), attempt, int(incarnation or 0))

    def _follow(self, offsets: Mapping[str, int]) -> None:
        for text, offset in offsets.items():
            self._follower.follow(life_from_data(text), offset)

    def _usage_of(self, life: Life) -> dict[str, Any] | None:
        """What a life used that has just ended; it is not measured again."""
        self._ended.add(life)
        usage = ended_usage(life, read_trace(life.folder(self._run_dir) / TRACE))
        return cast("dict[str, Any]", to_data(usage)) if usage else None


def _lives(message: Mapping[str, Any]) -> Sequence[Life]:
    return [life_from_data(each) for each in message["lives"]]


def _allowed(found: Capacity, allowed: Mapping[str, Any]) -> Capacity:
    """What may be used of what there is, where somebody said so."""
    known = {name: value for name, value in allowed.items() if value is not None}
    return found.replace(**{**known, "gpus": found.gpus[: known.get("gpus")]})


def _python_dir(run_dir: Path) -> str | None:
    """Where `python` is our own Python, as the spec names it; None if it is that anyway."""
    own = Path(sys.executable).parent
    usual = next((each for each in os.get_exec_path() if os.access(f"{each}/python", os.X_OK)), None)
    if usual == str(own):
        return None
    if os.access(own / "python", os.X_OK):
        return str(own)
    script = run_dir / "bin" / "python"  # systems that only know `python3`; a link would not find its environment
    script.parent.mkdir(exist_ok=True, mode=0o700)
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o700)
    return str(script.parent)


def _own_folder(base: Path, message: Mapping[str, str]) -> Path:
    """Return this host's own folder of a run: hosts may share their home, and must not meet in it."""
    return base / "runs" / message["run"] / "agents" / message["host"]
