"""Credentials that change: a token file, and an exec plugin of the kubeconfig."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidegate.kube.transport.connection import ConnectionConfigError, Identity
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.units import MINUTE_MS, UnitError

#: How long a token is used before its file is read again: kubelets renew it early enough.
_REREAD_MS = MINUTE_MS

#: Timeout of a plugin.
_PLUGIN_S = 60

Clock = Callable[[], int]


class TokenFile:
    """A token in a file that is renewed by the kubelet."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._read: Identity | None = None
        self._read_ms = 0

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The token, read again after a minute, or when it was refused."""
        now_ms = self._clock()
        if self._read is None or refused == self._read or now_ms - self._read_ms > _REREAD_MS:
            self._read = Identity(token=read_token(self._path))
            self._read_ms = now_ms
        return self._read


def read_token(path: Path) -> str:
    """Read a token; ConnectionConfigError if there is none."""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConnectionConfigError(f"{path}: the token cannot be read: {error.strerror}") from None
    if not is_token(token):
        raise ConnectionConfigError(f"{path}: expected a token, found {'nothing' if not token else 'other text'}")
    return token


def is_token(text: str) -> bool:
    """Whether a header can carry a token."""
    return bool(text) and text.isascii() and text.isprintable()


class ExecPlugin(NamedTuple):
    """An exec plugin of a kubeconfig."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    hint: str = ""  # how to install it
    cluster: Mapping[str, object] | None = None  # passed to a plugin with provideClusterInfo


class _Told(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Told | None = None


class ExecIdentity:
    """The identity that an exec plugin returns, until it expires or is refused; for all threads and event loops."""

    def __init__(self, plugin: ExecPlugin, clock: Clock) -> None:
        self._plugin, self._clock = plugin, clock
        self._identity: Identity | None = None
        self._until_ms = 0  # when it expires; 0: never
        self._lock = threading.Lock()
        self._running: Future[Identity] | None = None  # the result of the running plugin

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity; the plugin runs once at a time, for all callers."""
        with self._lock:
            expired = 0 < self._until_ms <= self._clock()
            if self._identity is not None and not expired and refused != self._identity:
                return self._identity
            running = self._running = self._running or self._start()
        return await asyncio.wrap_future(running)

    def _start(self) -> Future[Identity]:
        """Run the plugin in a daemon thread: one that hangs keeps no event loop from ending."""
        said: Future[Identity] = Future()
        said.set_running_or_notify_cancel()  # so that a caller that gives up does not cancel it for the others
        threading.Thread(target=self._renew, args=(said,), name="tidegate-credentials", daemon=True).start()
        return said

    def _renew(self, said: Future[Identity]) -> None:
        try:
            identity, until_ms = _run_plugin(self._plugin)
        except BaseException as error:  # noqa: BLE001 - it is raised where the identity is needed
            with self._lock:
                self._running = None
            said.set_exception(error)
            return
        with self._lock:
            self._identity, self._until_ms, self._running = identity, until_ms, None
        said.set_result(identity)


def _run_plugin(plugin: ExecPlugin) -> tuple[Identity, int]:
    """Run a plugin; the identity that it returns, and when that expires."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = dict(plugin.cluster)
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**plugin.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}
    try:
        ended = subprocess.run(  # noqa: S603 - the kubeconfig names it
            [plugin.command, *plugin.arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=_PLUGIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConnectionConfigError(_failed(plugin, f"gave no answer for {_PLUGIN_S} s")) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "cannot be started"
        raise ConnectionConfigError(_failed(plugin, why)) from None
    if ended.returncode:
        why = ended.stderr.decode(errors="replace").strip()[-200:]
        raise ConnectionConfigError(_failed(plugin, f"ended with {ended.returncode}: {why}"))
    return _read_credential(plugin, ended.stdout)


def _read_credential(plugin: ExecPlugin, said: bytes) -> tuple[Identity, int]:
    try:
        told = msgspec.json.decode(said, type=_Credential).status
        until_ms = read_time_ms(told.expiration_timestamp) if told and told.expiration_timestamp else 0
    except (msgspec.MsgspecError, UnitError) as error:
        raise ConnectionConfigError(_failed(plugin, f"returned no ExecCredential: {error}")) from None
    if told is None or not (told.token or told.client_certificate_data):
        raise ConnectionConfigError(_failed(plugin, "returned neither a token nor a certificate"))
    if told.token and not is_token(told.token):
        raise ConnectionConfigError(_failed(plugin, "returned a token with characters that no header can carry"))
    return Identity(told.token, told.client_certificate_data, told.client_key_data), until_ms


def _failed(plugin: ExecPlugin, why: str) -> str:
    hint = f"; {plugin.hint.strip()}" if plugin.hint else ""
    return f"the credentials plugin {plugin.command} {why}{hint}"
