"""A connection: the server's address and certificate authority, and our credentials."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple, Protocol

from tidegate.model.errors import TidegateError


class ConnectionConfigError(TidegateError):
    """A connection is not configured correctly; the text says where, what was found and what to do."""


class Identity(NamedTuple):
    """A token, a client certificate with its key (PEM), or both."""

    token: str = ""
    certificate: str = ""
    key: str = ""


class Credentials(Protocol):
    """A source of an identity."""

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity; another one than was refused, if there is one. May raise ConnectionConfigError."""


class StaticCredentials:
    """An identity that never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identity(self, refused: Identity | None = None) -> Identity:
        """The identity."""
        del refused
        return self._identity


class Connection(NamedTuple):
    """How to connect to an API server."""

    server: str  # https://host:port, with a path if there is one
    credentials: Credentials = StaticCredentials(Identity())
    authority: str = ""  # PEM of the certificate authority; empty: the system's
    server_name: str = ""  # in the server's certificate, if it is not the host
    proxy: str = ""
    namespace: str = "default"


def secure(access: Connection, identity: Identity) -> ssl.SSLContext:
    """The TLS context; the server's certificate is always verified."""
    try:
        context = ssl.create_default_context(cadata=access.authority or None)
    except ssl.SSLError as error:
        raise ConnectionConfigError(
            f"the certificate authority of {access.server} is not a certificate: {error.reason}"
        ) from None
    if identity.certificate:
        _load_chain(context, identity)
    return context


def _load_chain(context: ssl.SSLContext, identity: Identity) -> None:
    """Load the client certificate; Python reads it from files only, so they exist for a moment."""
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
