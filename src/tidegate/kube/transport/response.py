"""Responses of the API server, and errors without a response, as data."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

#: Our own reasons, for requests without a response.
NOT_SENT, NO_ANSWER, NO_CREDENTIALS, NOT_ALLOWED = "NotSent", "NoAnswer", "NoCredentials", "NotAllowedToWrite"


class ApiResponse(NamedTuple):
    """A response. Without a status there was none, and `sent` says whether the server may have seen the request."""

    status: int = 0
    reason: str = ""  # of the Status, such as AlreadyExists; or one of ours
    message: str = ""
    body: bytes = b""
    retry_after_ms: int = 0
    sent: bool = True
    causes: tuple[str, ...] = ()  # of the Status, such as DisruptionBudget
    date: str = ""  # the Date header of a success

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300

    @property
    def may_pass(self) -> bool:
        """Whether the error is transient: overload, a restarting server, a network that is down."""
        return self.status in (0, 429, 500, 502, 503, 504)

    def text(self) -> str:
        """Status, reason and message in one line."""
        word = f"{self.status} {self.reason}".strip() if self.status else self.reason
        return f"{word}: {self.message}" if self.message else word


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_DECODER = msgspec.json.Decoder(_Status)


def read_refusal(status: int, body: bytes, retry_after: str = "") -> ApiResponse:
    """Decode an error response; a body that is not a Status becomes the message."""
    try:
        told = _DECODER.decode(body)
    except msgspec.MsgspecError:
        told = _Status(message=body[:200].decode(errors="replace").strip())
    details = told.details or _Details()
    seconds = int(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else details.retry_after_seconds
    causes = tuple(cause.reason for cause in details.causes)
    return ApiResponse(status or told.code, told.reason, told.message, body, seconds * 1000, causes=causes)
