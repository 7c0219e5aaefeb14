"""The strategy that TF_CONFIG asks for, made in the right order and with what is known to be needed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

import tensorflow as tf

from drumline.runtime.all_gather import all_gather
from drumline.runtime.peers import report_missing_peers
from drumline.runtime.start_error import StartError
from drumline.runtime.tfconfig import Config, read_config

# TensorFlow gives a peer up that has sent nothing for ten seconds, which is little on a machine that others use, too.
_HEARTBEAT_SECONDS = 30

_MASTER = "TF_CONFIG calls its chief `master`, which tf.distribute refuses: write `chief`"


def strategy(*, patch_keras: bool = True, preemption: bool = False) -> Any:
    """The strategy for this process; call it before anything else of TensorFlow. Raise StartError if there is none.

    Alone or as evaluator: the default, or MirroredStrategy on several GPUs. Workers, with or without a chief:
    MultiWorkerMirroredStrategy. A chief with parameter servers: ParameterServerStrategy.

    With several workers `model.fit` of Keras 3 is mended, unless `patch_keras` is False. SIGTERM ends the process
    again, which a strategy of several workers otherwise ignores; `preemption=True` leaves it to TensorFlow, as its
    PreemptionCheckpointHandler needs it.
    """
    config = _read_config()
    if config is None:
        _warn_of_others()
    if config is None or config.role == "evaluator":
        return _alone()
    if "master" in config.cluster:
        raise StartError(_MASTER)
    if "ps" in config.cluster:
        return _coordinator(config, patch_keras=patch_keras)
    if sum(map(len, config.cluster.values())) == 1:
        return _alone()
    return _workers(config, patch_keras=patch_keras, preemption=preemption)


def serve() -> NoReturn:
    """Be the server that TF_CONFIG says this process is, until somebody ends it."""
    config = _read_config()
    if config is None:
        raise StartError("there is no TF_CONFIG, so there is nobody to serve")
    if "chief" not in config.cluster:
        raise StartError("TF_CONFIG has parameter servers and no chief to coordinate them: add a `chief`")
    _check_own_host(config)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(config.cluster), job_name=config.role, task_index=config.index, protocol="grpc"
    )
    server.join()
    sys.exit()


def _read_config() -> Config | None:
    """What TF_CONFIG says; those who train are not told of an evaluator, for whom they would wait for ever.

    Kubeflow's operator lists it in everybody's, as TensorFlow 1 wanted.
    """
    config = read_config()
    if config is None or config.role == "evaluator" or "evaluator" not in config.cluster:
        return config
    said = json.loads(os.environ["TF_CONFIG"])
    del said["cluster"]["evaluator"]
    os.environ["TF_CONFIG"] = json.dumps(said)
    return read_config()


def _warn_of_others() -> None:
    """Say that there is no TF_CONFIG, where there are others who train beside this process and not with it."""
    name = os.environ.get("DRUMLINE_ROLE"), os.environ.get("DRUMLINE_INDEX")
    if name[0] == "worker" and f"{name[0]}.{name[1]}" != os.environ.get("DRUMLINE_CHIEF"):
        _warn(
            f"there is no TF_CONFIG, so {name[0]}.{name[1]} trains alone: `framework: tensorflow` gives everybody one,"
            " if nothing takes it away before the script starts"
        )


def _alone() -> Any:
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()


def _workers(config: Config, *, patch_keras: bool, preemption: bool) -> Any:
    _check_own_host(config)
    _bear_silence(config)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with report_missing_peers(_others(config)):
            made = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise StartError(f"call strategy() before anything else of TensorFlow: {error}") from None
    if not preemption and before is not None:
        with suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGTERM, before)
    if patch_keras and _has_keras():
        from drumline.runtime.keras import patch_fit

        patch_fit()
    _compare_versions(made)
    return made


def _bear_silence(config: Config) -> None:
    """Give heartbeats more time than TensorFlow does, where drumline sees for itself who falls.

    Not where the script has said something of its own, and only in versions that can be told.
    """
    if "DRUMLINE_RUN" not in os.environ:
        return
    with suppress(ImportError, AttributeError, TypeError):
        from tensorflow.python.eager import context

        asked = context.context()
        if asked.coordination_service is not None:
            return
        job = context.coordination_config_pb2.CoordinatedJob
        asked.configure_coordination_service(
            service_type="standalone",
            service_leader=f"/job:{'chief' if 'chief' in config.cluster else 'worker'}/task:0",
            heartbeat_timeout_in_ms=_HEARTBEAT_SECONDS * 1000,
            coordinated_jobs=[job(name=role, num_tasks=len(each)) for role, each in config.cluster.items()],
        )


def _coordinator(config: Config, *, patch_keras: bool) -> Any:
    if "chief" not in config.cluster:
        raise StartError(
            "TF_CONFIG has parameter servers and no chief: ParameterServerStrategy needs one to coordinate, and a"
            " mirrored strategy would hang; add a `chief` or drop `ps`"
        )
    if config.role != "chief":
        raise StartError(
            f"{config.role}.{config.index} has to serve the chief: call drumline.runtime.serve_if_server() before"
            " strategy()"
        )
    if not config.cluster.get("worker"):
        raise StartError("TF_CONFIG has parameter servers and no worker: ParameterServerStrategy needs one")
    if patch_keras and _has_keras():
        from drumline.runtime.keras import refuse_fit

        refuse_fit()
    with report_missing_peers(_others(config)):
        return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


def _others(config: Config) -> dict[str, str]:
    """The addresses of all whom this process has to meet."""
    listed = {
        f"{role}.{number}": address
        for role, addresses in config.cluster.items()
        for number, address in enumerate(addresses)
    }
    return {name: address for name, address in listed.items() if name != f"{config.role}.{config.index}"}


def _check_own_host(config: Config) -> None:
    """Refuse an address of one's own that is unknown here: TensorFlow would wait without a word."""
    address = config.cluster[config.role][config.index]
    host = address.rpartition(":")[0].strip("[]")
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise StartError(
            f"TF_CONFIG says that {config.role}.{config.index} is at {address}, and this machine knows no host {host}"
        ) from None


def _has_keras() -> bool:
    """Whether Keras 3 is loaded: TensorFlow does that itself unless TF_USE_LEGACY_KERAS says otherwise."""
    return "keras.src.backend.tensorflow.trainer" in sys.modules


def _compare_versions(made: Any) -> None:
    """Warn where workers have different versions of TensorFlow: they may train, and not the same."""
    mine = [int(number) for number in re.findall(r"\d+", tf.__version__)[:3]]
    found = sorted({".".join(map(str, row)) for row in all_gather(made, mine)})
    if len(found) > 1:
        _warn(f"the workers have different versions of TensorFlow: {', '.join(found)}")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)  # noqa: T201
