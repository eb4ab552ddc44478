"""Connections from a kubeconfig, or from the service account of a pod."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml

from tidegate.kube.transport.connection import (
    Connection,
    ConnectionConfigError,
    Credentials,
    Identity,
    StaticCredentials,
)
from tidegate.kube.transport.credentials import Clock, ExecIdentity, ExecPlugin, TokenFile, is_token

#: Where a pod finds its token and the server's certificate authority.
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    auth_provider: Any = None
    exec: _Exec | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = "default"


class _Named(msgspec.Struct):
    name: str
    cluster: _Cluster | None = None
    user: _User | None = None
    context: _Context | None = None


class _Config(msgspec.Struct, rename="kebab"):
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None
    current_context: str = ""


class _Found(NamedTuple):
    """An entry of a kubeconfig file; paths in it are relative to the file."""

    file: Path
    entry: _Named


T = TypeVar("T")


def pod_access(clock: Clock, environment: Mapping[str, str] = os.environ, folder: Path = _POD) -> Connection:
    """The connection of a pod, by its service account."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConnectionConfigError("KUBERNETES_SERVICE_HOST is not set: this is not a pod; name a kubeconfig instead")
    shown = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Connection(
        server=f"https://{shown}:{port}",
        credentials=TokenFile(folder / "token", clock),
        authority=_content(folder / "ca.crt", folder / "ca.crt"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def config_files(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The kubeconfig files: those of KUBECONFIG, or ~/.kube/config."""
    named = [Path(name).expanduser() for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    return named or [Path("~/.kube/config").expanduser()]


def config_access(files: list[Path], clock: Clock, context: str = "") -> Connection:
    """The connection of a context in kubeconfig files; without a name, of the current context."""
    configs = [(file, _read(file)) for file in files if file.exists()]
    if not configs:
        raise ConnectionConfigError(
            f"{', '.join(map(str, files))}: there is no such file; set KUBECONFIG, or run in a pod"
        )
    chosen = context or next((config.current_context for _, config in configs if config.current_context), "")
    if not chosen:
        raise ConnectionConfigError(
            f"{configs[0][0]}: current-context: expected the name of a context, found nothing; name one"
        )
    found = _entry(configs, "contexts", chosen)
    used = found.entry.context or _Context()
    cluster, user = _entry(configs, "clusters", used.cluster), _entry(configs, "users", used.user)
    return _access(cluster, user, used.namespace, clock)


def _read(file: Path) -> _Config:
    try:
        value = yaml.safe_load(file.read_text())
        return msgspec.convert(value or {}, _Config)
    except OSError as error:
        raise ConnectionConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConnectionConfigError(f"{file}: is no YAML: {' '.join(str(error).split())[:200]}") from None
    except msgspec.ValidationError as error:
        raise ConnectionConfigError(f"{file}: {error}") from None


def _entry(configs: list[tuple[Path, _Config]], key: str, name: str) -> _Found:
    """The entry of that name; the first file that has it wins."""
    there: list[str] = []
    for file, config in configs:
        for entry in getattr(config, key) or ():
            there.append(entry.name)
            if entry.name == name:
                return _Found(file, entry)
    known = ", ".join(sorted(set(there))) or "none"
    raise ConnectionConfigError(f"{configs[0][0]}: {key}: expected one called {name!r}, found {known}")


def _access(cluster: _Found, user: _Found, namespace: str, clock: Clock) -> Connection:
    told = cluster.entry.cluster or _Cluster()
    where = f"{cluster.file}: cluster {cluster.entry.name}"
    if not told.server.startswith("https://"):
        raise ConnectionConfigError(f"{where}: server: expected https://…, found {told.server!r}")
    if told.insecure_skip_tls_verify:
        hint = "give certificate-authority-data instead"
        raise ConnectionConfigError(
            f"{where}: insecure-skip-tls-verify is refused: the server must prove its identity; {hint}"
        )
    authority = _pem(cluster, told.certificate_authority, told.certificate_authority_data, "certificate-authority")
    return Connection(
        server=told.server.rstrip("/"),
        credentials=_credentials(user, told, authority, clock),
        authority=authority,
        server_name=told.tls_server_name,
        proxy=told.proxy_url,
        namespace=namespace,
    )


def _credentials(user: _Found, cluster: _Cluster, authority: str, clock: Clock) -> Credentials:
    told = user.entry.user or _User()
    if told.username or told.auth_provider is not None:
        gone = "username" if told.username else "auth-provider"
        raise ConnectionConfigError(
            f"{user.file}: user {user.entry.name}: {gone} is refused: no server takes it; use exec or token"
        )
    if told.exec is not None:
        return ExecIdentity(_plugin(user, told.exec, cluster, authority), clock)
    if told.token_file and not told.token:
        return TokenFile(user.file.parent / told.token_file, clock)
    if told.token and not is_token(told.token):
        raise ConnectionConfigError(
            f"{user.file}: user {user.entry.name}: token: expected printable ASCII, which a header can carry"
        )
    certificate = _pem(user, told.client_certificate, told.client_certificate_data, "client-certificate")
    return StaticCredentials(
        Identity(told.token, certificate, _pem(user, told.client_key, told.client_key_data, "client-key"))
    )


def _plugin(user: _Found, told: _Exec, cluster: _Cluster, authority: str) -> ExecPlugin:
    shown: dict[str, object] = {"server": cluster.server}
    if authority:
        shown["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    command = told.command if os.sep not in told.command else str(user.file.parent / told.command)
    return ExecPlugin(
        command=command,
        arguments=tuple(told.args or ()),
        environment={variable.name: variable.value for variable in told.env or ()},
        api_version=told.api_version,
        hint=told.install_hint,
        cluster=shown if told.provide_cluster_info else None,
    )


def _pem(found: _Found, name: str, data: str, field: str) -> str:
    """PEM from base64 data, or from a file."""
    if not data:
        return _content(found.file.parent / name, found.file) if name else ""
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ConnectionConfigError(f"{found.file}: {found.entry.name}: {field}-data: expected PEM in base64") from None


def _content(path: Path, named_in: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConnectionConfigError(f"{named_in}: {path}: cannot be read: {error.strerror}") from None
