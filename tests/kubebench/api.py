"""Plain requests to the API server, for setting tests up and looking at what came of them.

Not the client under test: this one is small, blocking, and raises.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, body: Any) -> None:
        message = body.get("message", "") if isinstance(body, dict) else str(body)
        super().__init__(f"{status}: {message}")
        self.status, self.body = status, body


class Api:
    """The API server as one user sees it."""

    def __init__(self, port: int, tls: ssl.SSLContext, token: str) -> None:
        self._port, self._tls, self._token = port, tls, token
        self._local = threading.local()  # a connection for each thread
        self._connections: list[HTTPSConnection] = []

    def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return self.request("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, body: Any) -> Any:
        """Create an object."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any, kind: str = MERGE) -> Any:
        """Change an object."""
        return self.request("PATCH", path, body, kind)

    def apply(self, path: str, body: Any, manager: str = "kubebench") -> Any:
        """Bring an object about, whether it is there or not."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        return self.request("PATCH", f"{path}/{quote(body['metadata']['name'])}?{query}", body, APPLY)

    def delete(self, path: str, body: Any = None) -> Any:
        """Delete an object."""
        return self.request("DELETE", path, body)

    def close(self) -> None:
        """Close what is open."""
        for connection in self._connections:
            connection.close()
        self._connections = []

    def is_up(self, path: str = "/readyz") -> bool:
        """Whether the server answers."""
        try:
            self.request("GET", path)
        except (OSError, HTTPException, ApiError):
            return False
        return True

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Ask, and return the answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        try:
            status, is_json, answer = self._ask(method, path, content, headers)
        except (OSError, HTTPException):
            self._local.connection = None  # it was closed while we did not use it
            status, is_json, answer = self._ask(method, path, content, headers)
        data = json.loads(answer) if is_json else answer.decode()
        if status >= 400:
            raise ApiError(status, data)
        return data

    def _ask(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bool, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=60)
            self._local.connection = connection
            self._connections.append(connection)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            is_json = response.headers.get("Content-Type", "").startswith("application/json")
            return response.status, is_json, response.read()
        except (OSError, HTTPException):
            connection.close()
            self._local.connection = None
            raise
