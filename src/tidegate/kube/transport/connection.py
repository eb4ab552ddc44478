"""Where the API server is, how it proves who it is, and how we prove who we are."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple, Protocol


class ConnectionConfigError(Exception):
    """There is no way to the server; the text says where, what was found and what to do."""


class Identity(NamedTuple):
    """Who we are: a token, a certificate with its key (PEM), or both."""

    token: str = ""
    certificate: str = ""
    key: str = ""


class Credentials(Protocol):
    """Where an identity comes from."""

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity; another one than was refused, if there is one. May raise NoAccess."""


class StaticCredentials:
    """An identity that never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity."""
        del refused
        return self._identity


class Connection(NamedTuple):
    """The way to an API server."""

    server: str  # https://host:port, with a path if there is one
    credentials: Credentials = StaticCredentials(Identity())
    authority: str = ""  # PEM of who signed the server's certificate; empty: whom the system trusts
    server_name: str = ""  # that the server's certificate is for, if not the host
    proxy: str = ""
    namespace: str = "default"


def secure(access: Connection, identity: Identity) -> ssl.SSLContext:
    """How to talk to the server: its certificate is always verified."""
    try:
        context = ssl.create_default_context(cadata=access.authority or None)
    except ssl.SSLError as error:
        raise ConnectionConfigError(
            f"the certificate authority of {access.server} is no certificate: {error.reason}"
        ) from None
    if identity.certificate:
        _load_chain(context, identity)
    return context


def _load_chain(context: ssl.SSLContext, identity: Identity) -> None:
    """Python loads certificates from files only: they are there for a moment, for nobody else to read."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "crt", Path(folder) / "key"
        key.touch(mode=0o600)
        key.write_text(identity.key)
        certificate.write_text(identity.certificate)
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise ConnectionConfigError(
                f"the client certificate and its key do not go together: {error.reason}"
            ) from None
