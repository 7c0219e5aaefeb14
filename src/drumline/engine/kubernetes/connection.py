"""Connect to a cluster with lightkube; the only module that imports it.

lightkube reads kubeconfigs and makes an HTTP client with the server, its certificates and the user's
credentials: a token, also from a file that changes, a client certificate, a password, a command that prints a token.
Its typed resources are not used: objects are plain dicts, and logs bytes. It does not support
`auth-provider` (removed in Kubernetes 1.26), certificates printed by a command, `proxy-url` and `tls-server-name`.
"""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import NameValue, User, UserExec
from lightkube.core.exceptions import ConfigError

from drumline.engine.kubernetes.api_errors import ApiLocation, UnreachableError
from drumline.errors import EngineError

REQUEST_ERROR = httpx2.RequestError  # also of an answer that cannot be decompressed
CREDENTIALS_ERRORS = (ConfigError, OSError)
STREAM_TIMEOUT = httpx2.Timeout(None, connect=5.0)
_TIMEOUT = httpx2.Timeout(30.0, connect=5.0, pool=None)
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_API = "client.authentication.k8s.io"
# The kernel probes a silent peer, so that a lost connection is noticed.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


def open_client(
    context: str | None, namespace: str | None, kubeconfig: str | None = None
) -> tuple[httpx2.AsyncClient, ApiLocation]:
    """Return a client for a cluster, and its location; nothing is sent yet.

    By default, context and namespace are those that `kubectl` would choose. `kubeconfig` is used instead of KUBECONFIG:
    contexts of two files often have the same name, so a run records the value at its launch.
    """
    environ = {**os.environ, "KUBECONFIG": kubeconfig} if kubeconfig else os.environ
    try:
        config = _config(context, environ)
        user = _user(config.user or User())
        config = config._replace(user=user)
        verify = client_adapter.verify_cluster(config.cluster, user, config.abs_file)
        # httpx uses the proxies of the environment only with its own transport.
        transport = None
        if not urllib.request.getproxies():
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            transport = httpx2.AsyncHTTPTransport(verify=verify, limits=limits, socket_options=_KEEPALIVE)
        client = client_adapter.AsyncClient(
            config,
            client_adapter.ConnectionParams(timeout=_TIMEOUT, transport=transport),  # type: ignore[arg-type]
        )
        client.event_hooks["request"].append(_close_unfinished)
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001 - invalid YAML, base64, certificates
        raise EngineError(f"the kubeconfig cannot be used: {error}") from None
    server = str(config.cluster.server)
    inside = config.fname is None
    where = ApiLocation(
        "" if inside else config.context_name, server, namespace or config.namespace, is_chosen=context is not None
    )
    return client, where


def unreachable(error: Exception, where: ApiLocation) -> EngineError:
    """Return the error for a request without an answer."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        message = f"the context `{where.context}` does not trust the certificate of {where.server}: {error}"
        return EngineError(message)
    reported = str(error) or type(error).__name__
    message = f"the cluster at {where.server} (context `{where.context}`) cannot be reached: {reported}"
    return UnreachableError(message, hint=f"`{where.kubectl} version` tries it")


def credentials_error(error: Exception, where: ApiLocation) -> EngineError:
    """Return the error for credentials that cannot be obtained."""
    return EngineError(
        f"the credentials of the context `{where.context}` cannot be obtained: {error}",
        hint="its kubeconfig names the command that gets them",
    )


async def _close_unfinished(request: httpx2.Request) -> None:
    """Close the connection of a request that is cancelled during the TLS handshake: httpcore leaves it open."""
    connected: list[Any] = []

    async def trace(name: str, info: Mapping[str, Any]) -> None:
        if name == "connection.connect_tcp.complete":
            connected.append(info["return_value"])
        elif name == "connection.start_tls.failed" and connected:
            await connected.pop().aclose()

    request.extensions["trace"] = trace


def _config(context: str | None, environ: Mapping[str, str]) -> SingleConfig:
    """Return the configuration of a context; kubeconfigs come before a pod's service account, as with `kubectl`."""
    read = [KubeConfig.from_file(path) for path in _files(environ)]
    named = [each for each in read if context in each.contexts] if context else [each for each in read if each.contexts]
    current = next((each.current_context for each in read if each.current_context), None)
    if context is None and current:
        named = [each for each in read if current in each.contexts]
    for each in named:
        if chosen := each.get(context or current):
            return chosen
    if context:
        known = ", ".join(sorted({name for each in read for name in each.contexts})) or "none"
        raise EngineError(f"there is no context `{context}` in the kubeconfig", hint=f"it has: {known}")
    if "KUBERNETES_SERVICE_HOST" in environ and (_ACCOUNT / "token").exists():
        inside = KubeConfig.from_service_account(_ACCOUNT).get()
        if inside:
            return inside
    if read:
        raise EngineError("the kubeconfig has no current context", hint="choose one: `kubectl config use-context NAME`")
    raise EngineError(
        "there is no kubeconfig: neither KUBECONFIG nor ~/.kube/config names a cluster, and this is not a pod",
        hint="set KUBECONFIG to the file that your cluster gave you",
    )


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    named = [name for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    for path in map(Path, named or ["~/.kube/config"]):
        if path.expanduser().is_file():
            yield path.expanduser()
        elif len(named) == 1:
            raise EngineError(
                f"there is no kubeconfig {path}, which KUBECONFIG names", hint="name another, or unset KUBECONFIG"
            )


def _user(user: User) -> User:
    """Return the user with a credential command that lightkube supports: `v1` is replaced by `v1beta1`."""
    command = user.exec
    if command is None or command.apiVersion != f"{_EXEC_API}/v1":
        return user
    asked = f'{{"apiVersion":"{command.apiVersion}","kind":"ExecCredential","spec":{{"interactive":false}}}}'
    env = [*(command.env or ()), NameValue("KUBERNETES_EXEC_INFO", asked)]
    supported = UserExec(apiVersion=f"{_EXEC_API}/v1beta1", command=command.command, env=env, args=command.args)
    return User(exec=supported)
