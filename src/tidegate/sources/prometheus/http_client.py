"""The HTTP client of a Prometheus server: one request at a time, with retries and backoff.

Python's own HTTP client is enough: requests are few and large, one after the other so that the server is not pressed,
and a dependency less is one less to keep. Half a body, a 5xx, a 429 and a time-out are retried with growing backoff.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tidegate.model.errors import TidegateError
from tidegate.model.problem import printable
from tidegate.sources.findings import SourceError
from tidegate.sources.options import SourceOptions

#: Times that a request is tried, the first backoff between two, and how long an answer may take.
TRIES, BACKOFF_S, TIMEOUT_S = 6, 0.5, 120.0

#: The longest backoff, whatever the server asks for.
_LONGEST_BACKOFF_S = 30.0

_REDIRECTS = (301, 302, 303, 307, 308)

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class TooManyPointsError(TidegateError):
    """The server refuses that many points at once."""


class RetryableError(TidegateError):
    """A request failed in a way that a retry may fix."""

    def __init__(self, why: str, wait_s: float = 0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class PrometheusServer(NamedTuple):
    """How a server is reached."""

    address: str
    headers: dict[str, str]
    context: ssl.SSLContext | None
    pause: Callable[[float], None] = time.sleep
    tries: int = TRIES
    timeout_s: float = TIMEOUT_S

    @property
    def name(self) -> str:
        """The address, without its password."""
        split = urllib.parse.urlsplit(self.address)
        host = (split.hostname or "") + (f":{split.port}" if split.port else "")
        return printable(f"{split.scheme}://{host}{split.path}")


def server_of(address: str, options: SourceOptions) -> PrometheusServer:
    """Prepare to ask a server: credentials come from the options, or from PROMETHEUS_TOKEN, _USER and _PASSWORD."""
    split = urllib.parse.urlsplit(address.rstrip("/"))
    token = options.token or os.environ.get("PROMETHEUS_TOKEN", "")
    user = options.user or split.username or os.environ.get("PROMETHEUS_USER", "")
    password = options.password or split.password or os.environ.get("PROMETHEUS_PASSWORD", "")
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    host = (split.hostname or "") if ":" not in (split.hostname or "") else f"[{split.hostname}]"
    port = f":{split.port}" if split.port else ""
    plain = urllib.parse.urlunsplit((split.scheme, host + port, split.path, "", ""))
    return PrometheusServer(plain, headers, _context(plain, options))


def _context(address: str, options: SourceOptions) -> ssl.SSLContext | None:
    if not address.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca_file or os.environ.get("PROMETHEUS_CA_FILE") or None)
    except (OSError, ssl.SSLError) as error:
        raise SourceError(f"--ca-file {options.ca_file}: cannot be used: {error}") from None
    if options.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def request(server: PrometheusServer, path: str, fields: dict[str, str]) -> Any:
    """The data of an answer; a SourceError says why there is none, a TooManyPointsError asks for a smaller query."""
    why = ""
    for number in range(server.tries):
        try:
            return _once(server, path, fields)
        except RetryableError as failed:
            why = str(failed)
            if number + 1 < server.tries:
                server.pause(min(failed.wait_s or BACKOFF_S * 2**number, _LONGEST_BACKOFF_S))
    raise SourceError(
        f"{server.name}: {why}, {server.tries} times in a row; is the server well? What was fetched is kept: "
        "the same command goes on from there"
    )


def _once(server: PrometheusServer, path: str, fields: dict[str, str]) -> Any:
    body = urllib.parse.urlencode(fields).encode()
    url = server.address + path
    outgoing = urllib.request.Request(url, body or None, server.headers)  # noqa: S310  the scheme was checked
    try:
        with _opener(server).open(outgoing, timeout=server.timeout_s) as answer:
            return _data(_unpacked(answer.read(), answer.headers.get("Content-Encoding", "")), server)
    except urllib.error.HTTPError as error:
        raise _refusal(server, error) from None
    except http.client.HTTPException as error:
        raise RetryableError(f"breaks off its answer ({type(error).__name__})") from None
    except (TimeoutError, urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise SourceError(
                f"{server.name}: its certificate is not trusted: {reason.verify_message}; say --ca-file, or --insecure"
            ) from None
        raise RetryableError(f"cannot be reached ({reason})") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: who we are goes to the server that was named, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        """Leave it: the redirect is an error then, with its address."""


def _opener(server: PrometheusServer) -> urllib.request.OpenerDirector:
    """No proxy stands between a machine and itself."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if urllib.parse.urlsplit(server.address).hostname in _LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    if server.context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=server.context))
    return urllib.request.build_opener(*handlers)


def _unpacked(content: bytes, encoding: str) -> bytes:
    if encoding != "gzip":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise RetryableError("breaks off its answer") from None


def _data(content: bytes, server: PrometheusServer) -> Any:
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        if content.lstrip()[:1] == b"<":
            raise SourceError(
                f"{server.name}: answers with a web page, not as Prometheus does; is the path right?"
            ) from None
        raise RetryableError("breaks off its answer") from None
    if not isinstance(value, dict) or value.get("status") != "success":
        raise SourceError(f"{server.name}: does not answer as Prometheus does: {printable(str(content[:80]))}")
    return value.get("data")


def _refusal(server: PrometheusServer, error: urllib.error.HTTPError) -> Exception:
    """What an answer with an error code means: try again, ask for less, or give up."""
    said = _error_text(error)
    if error.code in (408, 425, 429) or error.code >= 500:
        wait = error.headers.get("Retry-After", "")
        return RetryableError(f"answers {error.code}{said}", float(wait) if wait.isdecimal() else 0)
    if error.code in _REDIRECTS:
        to = urllib.parse.urlsplit(urllib.parse.urljoin(server.address, error.headers.get("Location", "")))
        there = printable(f"{to.scheme}://{to.netloc.rpartition('@')[2]}")
        return SourceError(
            f"{server.name}: answers {error.code}: it sends on to {there}; "
            "redirects are not followed, as credentials would go along: name that address if you trust it"
        )
    if error.code in (401, 403):
        return SourceError(
            f"{server.name}: answers {error.code}{said}; say --token, or --user and --password, or set PROMETHEUS_TOKEN"
        )
    if error.code in (400, 422) and any(word in said for word in ("too many", "exceeded", "too large", "limit")):
        return TooManyPointsError(said)
    return SourceError(f"{server.name}: answers {error.code}{said}; is it the address of a Prometheus?")


def _error_text(error: urllib.error.HTTPError) -> str:
    try:
        value = msgspec.json.decode(_unpacked(error.read(), error.headers.get("Content-Encoding", "")))
    except (msgspec.DecodeError, RetryableError, OSError, http.client.HTTPException):
        return ""
    said = value.get("error") if isinstance(value, dict) else None
    return f" ({printable(str(said)[:200])})" if said else ""
