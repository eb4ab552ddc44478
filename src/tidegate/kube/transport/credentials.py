"""Identities that change: a token in a file, and what a plugin of the kubeconfig says.

Must not know: kubeconfig files, requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidegate.kube.transport.connection import ConnectionConfigError, Identity
from tidegate.manifests.clock import read_time_ms
from tidegate.model.units import MINUTE_MS, UnitError

#: How long a token from a file is used before the file is read again: kubelets write a new one early enough.
_REREAD_MS = MINUTE_MS

#: How long a plugin may take.
_PLUGIN_S = 60

Clock = Callable[[], int]


class TokenFile:
    """A token in a file that somebody else keeps up to date."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._read: Identity | None = None
        self._read_ms = 0

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The token, read again after a while, or when it was refused."""
        now_ms = self._clock()
        if self._read is None or refused == self._read or now_ms - self._read_ms > _REREAD_MS:
            self._read = Identity(token=read_token(self._path))
            self._read_ms = now_ms
        return self._read


def read_token(path: Path) -> str:
    """Read a token; NoAccess if there is none."""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConnectionConfigError(f"{path}: the token cannot be read: {error.strerror}") from None
    if not token or not token.isascii() or not token.isprintable():
        raise ConnectionConfigError(f"{path}: expected a token, found {'nothing' if not token else 'other text'}")
    return token


class ExecPlugin(NamedTuple):
    """A program that says who we are (an exec plugin of a kubeconfig)."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    hint: str = ""  # how to install it
    cluster: Mapping[str, object] | None = None  # told to the plugin, where it wants to know


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
    """What a plugin says, until it expires or is refused."""

    def __init__(self, plugin: ExecPlugin, clock: Clock) -> None:
        self._plugin, self._clock = plugin, clock
        self._told: Identity | None = None
        self._until_ms = 0
        self._asking = asyncio.Lock()

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity; the plugin is asked once, however many want to know."""
        async with self._asking:
            stale = self._told is None or refused == self._told or (0 < self._until_ms <= self._clock())
            if stale:
                self._told, self._until_ms = await self._ask()
            assert self._told is not None
            return self._told

    async def _ask(self) -> tuple[Identity, int]:
        plugin = self._plugin
        wish = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if plugin.cluster is not None:
            wish["spec"] = {"interactive": False, "cluster": dict(plugin.cluster)}
        told_wish = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(wish).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **plugin.environment, **told_wish},
            )
        except OSError as error:
            raise ConnectionConfigError(_failed(plugin, error.strerror or "cannot be started")) from None
        try:
            said, complained = await asyncio.wait_for(process.communicate(), _PLUGIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ConnectionConfigError(_failed(plugin, f"said nothing for {_PLUGIN_S} s")) from None
        if process.returncode:
            why = complained.decode(errors="replace").strip()[-200:]
            raise ConnectionConfigError(_failed(plugin, f"ended with {process.returncode}: {why}"))
        return _read_credential(plugin, said)


def _read_credential(plugin: ExecPlugin, said: bytes) -> tuple[Identity, int]:
    try:
        told = msgspec.json.decode(said, type=_Credential).status
        until_ms = read_time_ms(told.expiration_timestamp) if told and told.expiration_timestamp else 0
    except (msgspec.MsgspecError, UnitError) as error:
        raise ConnectionConfigError(_failed(plugin, f"said no ExecCredential: {error}")) from None
    if told is None or not (told.token or told.client_certificate_data):
        raise ConnectionConfigError(_failed(plugin, "said neither a token nor a certificate"))
    return Identity(told.token, told.client_certificate_data, told.client_key_data), until_ms


def _failed(plugin: ExecPlugin, why: str) -> str:
    hint = f"; {plugin.hint.strip()}" if plugin.hint else ""
    return f"the credentials plugin {plugin.command} {why}{hint}"
