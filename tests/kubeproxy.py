"""A proxy between a replica and the API server that loses, refuses, delays and cuts what passes through it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from kubebench import Plane
from kubebench.process import free_port

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_DROPPED = ("Transfer-Encoding", "Content-Length", "Connection", "Host")

#: How long it may take to start.
_PATIENCE_S = 30


class Proxy:
    """Stands in front of the API server of a plane. Use it in a with statement."""

    def __init__(self, plane: Plane) -> None:
        self._plane, self.port = plane, free_port()
        self.refuses = 0  # status that writes are refused with; 0: they pass
        self.loses = ""  # "before" or "after" the server has seen it a write is lost, and no answer comes
        self.stalls = False  # writes, but those of Leases, wait here until it is calm
        self.stalled = 0  # how many do
        self.bytes_per_s = 0  # at which watches are read; 0: as fast as they come
        self.refused = self.lost = self.cuts = 0
        self._streams: dict[int, web.Request] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_PATIENCE_S):
            raise RuntimeError(
                f"the proxy on port {self.port} did not start in {_PATIENCE_S} s: see its thread's error"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def kubeconfig(self, user: str = "tidegate") -> Path:
        """A kubeconfig of a user that leads through here."""
        config = yaml.safe_load(self._plane.kubeconfig(user).read_text())
        config["clusters"][0]["cluster"]["server"] = self.url
        path = self._plane.kubeconfig(user).with_suffix(f".by-{self.port}")
        path.write_text(yaml.safe_dump(config))
        return path

    def cut(self) -> None:
        """Cut every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def calm(self) -> None:
        """Let everything pass."""
        self.refuses, self.loses, self.bytes_per_s, self.stalls = 0, "", 0, False

    # -- in the thread -----------------------------------------------------------------------------------------

    def _cut(self) -> None:
        for request in list(self._streams.values()):
            if request.transport is not None:
                self.cuts += 1
                request.transport.abort()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._plane._authority.issue_cert("127.0.0.1").configure_cert(served)
        trusted = ssl.create_default_context(cafile=str(self._plane.authority))
        connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            application = web.Application(client_max_size=1 << 26)
            application.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=served).start()
            self._ready.set()
            await self._stopping.wait()
            self._cut()
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        writes = request.method in _WRITES
        if writes and self.refuses and "/leases/" not in request.path:
            self.refused += 1
            status = {"kind": "Status", "code": self.refuses, "reason": "Storm", "message": "a storm"}
            return web.json_response(status, status=self.refuses, headers={"Retry-After": "1"})
        if writes and self.stalls and "/leases/" not in request.path:
            await self._stall()
        if writes and self.loses == "before":
            return self._lose(request)
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name not in _DROPPED}
        url = f"{self._plane.url}{request.path_qs}"
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
            ) as answer:
                if writes and self.loses == "after":
                    await answer.read()
                    return self._lose(request)
                return await self._answer(request, answer)
        except (aiohttp.ClientError, OSError):
            return self._lose(request)

    async def _stall(self) -> None:
        self.stalled += 1
        while self.stalls:
            await asyncio.sleep(0.05)
        self.stalled -= 1

    def _lose(self, request: web.Request) -> web.StreamResponse:
        self.lost += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: value for name, value in answer.headers.items() if name not in _DROPPED}
        response = web.StreamResponse(status=answer.status, headers=headers)
        self._streams[id(request)] = request
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
                if self.bytes_per_s:
                    await asyncio.sleep(min(len(chunk) / self.bytes_per_s, 1.0))
            with suppress(ConnectionError):
                await response.write_eof()
        except (ConnectionError, aiohttp.ClientError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams.pop(id(request), None)
        return response
