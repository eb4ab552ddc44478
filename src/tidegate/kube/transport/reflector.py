"""A reflector: lists the objects of one kind page by page, watches them from there, and resumes where a watch ended.

A watch may end at any time, and the server cuts slow readers. So one task only reads, and another decodes. A watch
that was cut resumes from the last decoded resourceVersion. A version that the server has compacted (410 Gone) means a
relist, whose difference to the known objects becomes ordinary updates; objects of an unfinished list count as known.
A failure, or a watch that ends early, is followed by exponential backoff with jitter; a watch that lasts resets it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from tidegate.kube.transport.backoff import Backoff, Jitter
from tidegate.kube.transport.client import ApiRequest, Client, WatchStream
from tidegate.kube.transport.objects import (
    KubeObjectMeta,
    ListMeta,
    ObjectList,
    PartialObject,
    WatchErrorEvent,
    WatchEvent,
)
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.response import ApiResponse

#: JSON nested deeper than any field that is decoded. Some fields take any JSON, so tenants choose its depth.
MOST_DEPTH = 256

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def cut_nesting(body: bytes, most: int = MOST_DEPTH) -> bytes:
    """The same JSON with null for what is nested deeper, so that no decoder runs out of stack."""
    parts, begin, depth = [], 0, 0
    for token in _BRACKETS.finditer(body):
        mark = token.group()
        if mark in (b"[", b"{"):
            depth += 1
            if depth == most + 1:
                parts += [body[begin : token.start()], b"null"]
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth == most:
                begin = token.end()
    return b"".join([*parts, body[begin:] if depth <= most else b""])


_GONE, _MISSING, _FORBIDDEN = 410, 404, 403
_BOOKMARK, _ERROR = b'{"type":"BOOKMARK"', b'{"type":"ERROR"'

#: Where lists of built-in kinds have their continue token, and how many bytes are searched for it.
_TOKEN, _TOP = re.compile(rb'\s*\{[^[]*?"metadata":\{[^[{}]*?"continue":"([^"\\]+)"'), 8192

#: Most objects of a protobuf page that are read one by one as JSON; for more, the page is read as JSON.
_MOST_LEARNT = 20

#: Digits up to which a resourceVersion is kept as a number.
_LONGEST_NUMBER = 20

#: Watch events that are decoded before other tasks run.
_AT_ONCE = 64

#: Bytes read and not decoded at which a watch is cut, to resume from what was decoded.
_MOST_BEHIND = 256 << 20

#: The first and the longest backoff before the next request.
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 200, 10_000


@dataclass(frozen=True)
class ReflectorOptions:
    """How a reflector lists and watches."""

    page: int = 1000  # objects in a page of a list
    watch_s: int = 290  # timeoutSeconds of a watch, less up to 10 % of jitter
    absent_s: float = 30.0  # between two tries to list a kind that the server does not have
    unready_s: float = 10.0  # how long a server that has just started may answer 403
    quiet_s: float = 120.0  # without a byte, not even a bookmark, after which the connection counts as dead
    steady_s: float = 5.0  # a watch that lasts this long resets the backoff


@dataclass
class ReflectorStats:
    """Statistics of a reflector."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    cuts: int = 0  # watches that were cut
    skipped: int = 0  # objects that could not be decoded
    behind_bytes: int = 0  # most bytes read and not decoded
    absent: bool = False  # the server does not have this kind
    left_out: str = ""  # why this optional kind is left out, and which permission is missing; empty: it is not
    refusal: str = ""  # the error of the latest request; empty: it succeeded
    problem: str = ""  # why there are no updates now; empty: there are


class ListFormat(Protocol):
    """A media type for pages of a list that is faster to read than JSON, such as protobuf."""

    accept: str  # the Accept header
    magic: bytes  # the first bytes of such a page

    def token(self, body: bytes) -> str:
        """The continue token of the page; empty: it is the last."""

    def read(self, body: bytes) -> tuple[ListMeta, list[Any]] | None:
        """Decode a page; None if it has to be read as JSON."""

    def lacking(self, things: list[Any]) -> list[Any]:
        """Objects that have to be read as JSON first, so that those like them can be decoded."""

    def learn(self, listed: Any, whole: Any) -> bool:
        """Learn from one of them, read as JSON; False if it changed since it was listed."""


class UpdateSink(Protocol):
    """A queue for updates."""

    def put(self, kind: int, uid: str, thing: object | None) -> None:
        """Put the latest state of an object; None: it was deleted."""


class WatchedKind(NamedTuple):
    """A kind of object that a reflector lists and watches: what is decoded of it, and what is kept."""

    resource: Resource
    type: type[Any]
    shrink: Callable[[Any], object] = lambda found: found
    namespace: str = ""  # empty: all. A fieldSelector of metadata.namespace is not the same: servers lose pages of it
    selector: Mapping[str, str] = MappingProxyType({})  # labelSelector, fieldSelector
    optional: bool = False  # the server need not have this kind; one that is installed later is found then
    pages: ListFormat | None = None  # another form of its lists


@dataclass
class Reflector:
    """Lists and watches the objects of one kind, and puts updates of them into a queue."""

    client: Client
    watched: WatchedKind
    updates: UpdateSink
    jitter: Jitter
    kind: int = 0  # number by which the update queue knows the kind
    options: ReflectorOptions = ReflectorOptions()
    stats: ReflectorStats = field(default_factory=ReflectorStats)

    def __post_init__(self) -> None:
        self.resource, self.type, self.shrink, self.namespace, selector, self.optional, self.pages = self.watched
        self.selector = dict(selector)
        self.listed = asyncio.Event()  # the first list is in the update queue
        self._version = ""
        self._known: dict[str, int | str] = {}  # version by uid
        self._unreadable: set[str] = set()  # uids in the latest list of objects that could not be decoded
        self._backoff = Backoff(self.jitter, first_ms=_FIRST_PAUSE_MS, most_ms=_LONGEST_PAUSE_MS)
        self._refused_s = 0.0  # since when the server forbids reading it, by the loop's clock; 0: it does not
        self._page = msgspec.json.Decoder(ObjectList[self.type])  # type: ignore[name-defined]
        self._event = msgspec.json.Decoder(WatchEvent[self.type])  # type: ignore[name-defined]
        self._bookmark = msgspec.json.Decoder(WatchEvent[PartialObject])
        self._error = msgspec.json.Decoder(WatchErrorEvent)

    async def follow(self) -> None:
        """List and watch, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            if not self._version and not await self._list():
                continue
            began_s = clock()
            refusal = await self._watch()
            is_short = clock() - began_s < self.options.steady_s
            if not is_short:
                self._backoff.reset()
            if refusal is not None:
                await self._handle_refusal(refusal)
            elif is_short:
                await self._pause()

    async def _pause(self, asked_ms: int = 0) -> None:
        await asyncio.sleep(self._backoff.next_ms(asked_ms) / 1000)

    async def _handle_refusal(self, refusal: ApiResponse) -> None:
        """Handle an error response: back off, relist after 410, or leave the kind out."""
        if refusal.status == _MISSING and self.optional:
            await self._await_kind()
            return
        self.stats.problem = self.stats.refusal = refusal.text()
        if refusal.status == _FORBIDDEN and self.optional and not self.listed.is_set() and self._is_refused_for_long():
            self.stats.left_out = self._missing_permission()
            self.listed.set()  # so that the first sync does not wait for it
        if self.stats.left_out:
            await asyncio.sleep(self.options.absent_s)
            return
        if refusal.status == _GONE:
            self._version = ""
        await self._pause(refusal.retry_after_ms)

    def _is_refused_for_long(self) -> bool:
        """Whether the server has answered 403 for longer than one that has just started."""
        now_s = asyncio.get_running_loop().time()
        self._refused_s = self._refused_s or now_s
        return now_s - self._refused_s >= self.options.unready_s

    def _missing_permission(self) -> str:
        """What is left out, and which permission is missing."""
        kind = self.resource
        return f"{kind.kind} is left out: {self.stats.problem}; grant get, list and watch on {kind.full_plural}"

    async def _await_kind(self) -> None:
        """Delete all known objects of a kind that the server does not have, and wait."""
        for uid in self._known:
            self.updates.put(self.kind, uid, None)
        self._known, self._version = {}, ""
        self.stats.absent, self.stats.problem, self.stats.refusal = True, "", ""
        self.listed.set()
        await asyncio.sleep(self.options.absent_s)

    # -- lists -------------------------------------------------------------------------------------------------

    async def _list(self) -> bool:
        """List or relist all pages; False if that failed and has to be retried."""
        self.stats.lists += 1
        self._unreadable = set()
        found: set[str] = set()
        token, coming = "", asyncio.create_task(self._ask_page(""))
        try:
            while True:
                answer = await coming
                ahead = self._token_ahead(answer.body) if answer.ok else ""
                if ahead:  # the server prepares the next page while this one is decoded
                    coming = asyncio.create_task(self._ask_page(ahead))
                    await asyncio.sleep(0)
                page = await self._read_page(answer, token) if answer.ok else answer
                if isinstance(page, ApiResponse):
                    await self._handle_refusal(page)  # an expired continue token (410) means: from the first page
                    return False
                for thing in page.items or ():
                    self._put_listed(thing, found)
                token = page.metadata.continue_
                if not token:
                    break
                if token != ahead:
                    coming.cancel()
                    coming = asyncio.create_task(self._ask_page(token))
        finally:
            coming.cancel()
        self._end_list(found, page.metadata.resource_version)
        return True

    async def _ask_page(self, token: str, *, as_json: bool = False) -> ApiResponse:
        query = {"limit": str(self.options.page), **self.selector, **({"continue": token} if token else {})}
        accept = self.pages.accept if self.pages and not as_json else ""
        path = self.resource.path(self.namespace)
        return await self.client.ask(ApiRequest("GET", path, query, timeout_s=60, accept=accept))

    def _token_ahead(self, body: bytes) -> str:
        return self.pages.token(body) if self._is_packed(body) and self.pages else token_ahead(body)

    def _is_packed(self, body: bytes) -> bool:
        return self.pages is not None and body.startswith(self.pages.magic)

    async def _read_page(self, answer: ApiResponse, token: str) -> ObjectList[Any] | ApiResponse:
        """Decode a page in its media type; a page that cannot be decoded is requested again as JSON."""
        if not self._is_packed(answer.body):
            return self._decode_page(answer.body)
        page = await self._unpack(answer.body)
        if page is not None:
            return page
        again = await self._ask_page(token, as_json=True)
        return self._decode_page(again.body) if again.ok else again

    async def _unpack(self, body: bytes) -> ObjectList[Any] | None:
        """Decode a page that is not JSON; None if too many of its objects are unlike all known ones."""
        assert self.pages is not None
        read = self.pages.read(body)
        if read is None:
            return None
        lacking = self.pages.lacking(read[1])
        if len(lacking) > _MOST_LEARNT:
            return None
        for thing in lacking:
            answer = await self._ask_one(thing.metadata)
            if not answer.ok or not self._learn(thing, answer.body):
                return None
        return ObjectList(*read)

    async def _ask_one(self, meta: KubeObjectMeta) -> ApiResponse:
        """List one object: a role that allows list may not allow get."""
        query = {"fieldSelector": f"metadata.name={meta.name}"}
        return await self.client.ask(ApiRequest("GET", self.resource.path(meta.namespace), query))

    def _learn(self, listed: Any, body: bytes) -> bool:
        assert self.pages is not None
        try:
            (whole,) = self._page.decode(body).items or []
            return self.pages.learn(listed, whole)
        except Exception:  # noqa: BLE001 - data from outside: an error is reported when it is put
            return False

    def _end_list(self, found: set[str], version: str) -> None:
        for uid in self._known.keys() - found - self._unreadable:
            del self._known[uid]
            self.updates.put(self.kind, uid, None)
        self._version = version
        self.stats.absent, self.stats.left_out, self._refused_s = False, "", 0.0
        self.stats.problem = self.stats.refusal = ""
        self.listed.set()

    def _decode_page(self, body: bytes) -> ObjectList[Any] | ApiResponse:
        """Decode a page; an object that cannot be decoded must not hide the others."""
        try:
            return self._page.decode(body)
        except msgspec.MsgspecError:
            pass
        except RecursionError:
            body = cut_nesting(body)
        try:
            rough = msgspec.json.decode(body, type=_Rough)
        except msgspec.MsgspecError as error:
            return ApiResponse(500, "Unreadable", f"a list of {self.resource.full_plural}: {error}")
        items = []
        for raw in rough.items or ():
            try:
                items.append(msgspec.json.decode(raw, type=self.type))
            except msgspec.MsgspecError:
                self._skip(raw)
        return ObjectList(rough.metadata, items)

    def _skip(self, raw: msgspec.Raw) -> None:
        """Keep an object as it was last decoded: it exists, though it cannot be decoded now."""
        self.stats.skipped += 1
        with suppress(msgspec.MsgspecError):
            self._unreadable.add(msgspec.json.decode(raw, type=PartialObject).metadata.uid)

    def _put_listed(self, thing: Any, found: set[str]) -> None:
        """Put a listed object if its version is new; it counts as known even if the list fails later."""
        meta = thing.metadata
        uid, version = meta.uid, _kept_version(meta.resource_version)
        found.add(uid)
        if self._known.get(uid) != version:
            self._known[uid] = version
            self._put(uid, thing)

    def _put(self, uid: str, thing: Any) -> None:
        """Shrink an object and put it; one that raises must not stop the others."""
        try:
            kept = self.shrink(thing)
        except Exception as error:  # noqa: BLE001 - data from outside
            self.stats.skipped += 1
            meta = thing.metadata
            self.stats.problem = f"{self.resource.kind} {meta.namespace}/{meta.name} cannot be understood: {error}"
        else:
            self.updates.put(self.kind, uid, kept)

    # -- watches -----------------------------------------------------------------------------------------------

    async def _watch(self) -> ApiResponse | None:
        """Watch until it ends; the error response, if there was one."""
        self.stats.watches += 1
        seconds = max(int(self.options.watch_s * (1 - 0.1 * self.jitter())), 1)
        query = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            **self.selector,
        }
        async with self.client.stream(
            ApiRequest("GET", self.resource.path(self.namespace), query), self.options.quiet_s
        ) as opened:
            if isinstance(opened, ApiResponse):
                return opened
            self.stats.problem = self.stats.refusal = ""
            return await self._read(opened)

    async def _read(self, stream: WatchStream) -> ApiResponse | None:
        """Read and decode a watch, each in its own task."""
        behind = _Behind()
        reading = asyncio.create_task(_drain(stream, behind))
        try:
            refusal = await self._decode(behind)
        finally:
            reading.cancel()
        self.stats.behind_bytes = max(self.stats.behind_bytes, behind.most)
        if refusal is None and (stream.cut or behind.overrun):
            self.stats.cuts += 1
        return refusal

    async def _decode(self, behind: _Behind) -> ApiResponse | None:
        """Decode whole lines; an unfinished line at the end is dropped."""
        rest = b""
        while True:
            chunk = await behind.next()
            if not chunk:
                return None
            *lines, rest = (rest + chunk).split(b"\n")
            for number, line in enumerate(lines, 1):
                refusal = self._take(line) if line else None
                if refusal is not None:
                    return refusal
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _take(self, line: bytes) -> ApiResponse | None:
        """Handle one watch event; the error response, if it is one."""
        try:
            if line.startswith(_ERROR):
                told = self._error.decode(line).object
                return ApiResponse(told.code or 500, told.reason, told.message)
            if line.startswith(_BOOKMARK):
                self._version = self._bookmark.decode(line).object.metadata.resource_version
                self.stats.bookmarks += 1
                return None
            self._record(self._decode_event(line))
        except msgspec.MsgspecError as error:
            # One object that cannot be decoded must not stop the others; the next relist has it if it still exists.
            self.stats.skipped += 1
            self.stats.problem = f"an event of {self.resource.full_plural} cannot be read: {error}"
        return None

    def _decode_event(self, line: bytes) -> WatchEvent[Any]:
        try:
            return self._event.decode(line)
        except RecursionError:
            return self._event.decode(cut_nesting(line))

    def _record(self, event: WatchEvent[Any]) -> None:
        meta = event.object.metadata
        self.stats.events += 1
        self._version = meta.resource_version
        if event.type == "DELETED":
            self._known.pop(meta.uid, None)
            self.updates.put(self.kind, meta.uid, None)
        else:
            self._known[meta.uid] = _kept_version(meta.resource_version)
            self._put(meta.uid, event.object)


def token_ahead(body: bytes) -> str:
    """The continue token of a page, found without decoding it; empty: there is none at the top."""
    found = _TOKEN.match(body, 0, _TOP)
    return found[1].decode() if found is not None else ""


def _kept_version(version: str) -> int | str:
    """A resourceVersion to keep for each of many objects: a number takes half the memory of a string."""
    return int(version) if version.isdecimal() and len(version) < _LONGEST_NUMBER else version


class _Rough(msgspec.Struct):
    """A page whose items are decoded one by one."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Behind:
    """Bytes of a watch that were read and not decoded."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._there = asyncio.Event()
        self._bytes = 0
        self.most = 0
        self.overrun = False

    def add(self, chunk: bytes) -> None:
        """Add a chunk; an empty one ends the watch."""
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self.most = max(self.most, self._bytes)
        self.overrun = self._bytes > _MOST_BEHIND
        self._there.set()

    async def next(self) -> bytes:
        """The oldest chunk; empty at the end of the watch."""
        while not self._chunks:
            self._there.clear()
            await self._there.wait()
        chunk = self._chunks.popleft()
        self._bytes -= len(chunk)
        return chunk


async def _drain(stream: WatchStream, behind: _Behind) -> None:
    """Read a watch and do nothing else, so that the server does not cut it as slow."""
    while not behind.overrun:
        chunk = await stream.chunk()
        behind.add(chunk)
        if not chunk:
            return
    behind.add(b"")
