"""Make the strategy for TF_CONFIG, with the settings that it needs."""

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

# By default TensorFlow counts a peer as failed after ten seconds without a heartbeat: too short on a busy machine.
_HEARTBEAT_SECONDS = 30

_MASTER = "TF_CONFIG calls its chief `master`, which tf.distribute refuses: write `chief`"


def strategy(*, patch_keras: bool = True, preemption: bool = False) -> Any:
    """Return the strategy for this process, or raise StartError; call this before any other TensorFlow function.

    A single replica or an evaluator gets the default strategy, or MirroredStrategy on several GPUs. Workers, with or
    without a chief, get MultiWorkerMirroredStrategy. A chief with parameter servers gets ParameterServerStrategy.

    With several workers `model.fit` of Keras 3 is patched unless `patch_keras` is False. SIGTERM ends the process,
    which TensorFlow would otherwise ignore with several workers; `preemption=True` leaves SIGTERM to TensorFlow, as its
    PreemptionCheckpointHandler needs it.
    """
    config = _read_config()
    if config is None:
        _warn_if_alone()
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
    """Run the server that TF_CONFIG describes, until a signal ends the process; raise StartError if it is wrong."""
    config = _read_config()
    if config is None:
        raise StartError("there is no TF_CONFIG, so there is no cluster to serve")
    if "chief" not in config.cluster:
        raise StartError("TF_CONFIG has parameter servers and no chief to coordinate them: add a `chief`")
    _check_own_host(config)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(config.cluster), job_name=config.role, task_index=config.index, protocol="grpc"
    )
    server.join()
    sys.exit()


def _read_config() -> Config | None:
    """Read TF_CONFIG, and remove the evaluator from it unless this is the evaluator: the others would wait for it.

    Kubeflow's operator lists the evaluator for all replicas, as TensorFlow 1 required.
    """
    config = read_config()
    if config is None or config.role == "evaluator" or "evaluator" not in config.cluster:
        return config
    data = json.loads(os.environ["TF_CONFIG"])
    del data["cluster"]["evaluator"]
    os.environ["TF_CONFIG"] = json.dumps(data)
    return read_config()


def _warn_if_alone() -> None:
    """Warn that this replica trains alone, without TF_CONFIG, although there are other workers."""
    name = os.environ.get("DRUMLINE_ROLE"), os.environ.get("DRUMLINE_INDEX")
    if name[0] == "worker" and f"{name[0]}.{name[1]}" != os.environ.get("DRUMLINE_CHIEF"):
        _warn(
            f"there is no TF_CONFIG, so {name[0]}.{name[1]} trains alone: `framework: tensorflow` sets it,"
            " unless something removes it before the script starts"
        )


def _alone() -> Any:
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()


def _workers(config: Config, *, patch_keras: bool, preemption: bool) -> Any:
    _check_own_host(config)
    _extend_heartbeat(config)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with report_missing_peers(_others(config)):
            made = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise StartError(f"call strategy() before anything else of TensorFlow: {error}") from None
    if not preemption and before is not None:
        with suppress(ValueError):  # only the main thread may set a handler
            signal.signal(signal.SIGTERM, before)
    if patch_keras and _has_keras():
        from drumline.runtime.keras import patch_fit

        patch_fit()
    _compare_versions(made)
    return made


def _extend_heartbeat(config: Config) -> None:
    """Allow more time between heartbeats than TensorFlow does, since drumline itself detects failed replicas.

    Do nothing if the script has configured this, or if this version of TensorFlow has no such setting.
    """
    if "DRUMLINE_RUN" not in os.environ:
        return
    with suppress(ImportError, AttributeError, TypeError):
        from tensorflow.python.eager import context

        current = context.context()
        if current.coordination_service is not None:
            return
        job = context.coordination_config_pb2.CoordinatedJob
        current.configure_coordination_service(
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
    """Return the addresses of all other replicas."""
    listed = {
        f"{role}.{number}": address
        for role, addresses in config.cluster.items()
        for number, address in enumerate(addresses)
    }
    return {name: address for name, address in listed.items() if name != f"{config.role}.{config.index}"}


def _check_own_host(config: Config) -> None:
    """Raise StartError if this replica's host name does not resolve: TensorFlow would wait without a message."""
    address = config.cluster[config.role][config.index]
    host = address.rpartition(":")[0].strip("[]")
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise StartError(
            f"TF_CONFIG says that {config.role}.{config.index} is at {address}, and this machine knows no host {host}"
        ) from None


def _has_keras() -> bool:
    """Return whether Keras 3 is loaded; TensorFlow loads it unless TF_USE_LEGACY_KERAS is set."""
    return "keras.src.backend.tensorflow.trainer" in sys.modules


def _compare_versions(made: Any) -> None:
    """Warn if workers have different versions of TensorFlow: results may differ."""
    own = [int(number) for number in re.findall(r"\d+", tf.__version__)[:3]]
    found = sorted({".".join(map(str, row)) for row in all_gather(made, own)})
    if len(found) > 1:
        _warn(f"the workers have different versions of TensorFlow: {', '.join(found)}")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)  # noqa: T201
