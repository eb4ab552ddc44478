"""The policy kept current, against a server that misbehaves: refused, unreachable and reachable are told apart."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager

import pytest

from kubefake import answer, event, listing, refusal, stream, thing
from test_live_leading import serving, wait_for
from tidegate.live.policy_sources import PolicyUnreachableError, policy_source
from tidegate.live.policy_watcher import PolicyResult, PolicyWatcher

GOOD, OTHER, BAD = (f"version: 1\npolicy:\n  placement: {rule}\n" for rule in ("bestfit", "spread", "wrong"))
_SILENT = stream(then="silence")


class Server:
    """One ConfigMap, listed and watched, and what is told of it next."""

    def __init__(self, text):
        self.text, self.version, self.watches, self.lists = text, 1, 0, 0
        self.down = None  # how requests are refused

    def object(self):
        return thing("policy", self.version, data={"tidegate.yaml": self.text})

    async def __call__(self, asked, writer):
        await self._respond(asked)(asked, writer)

    def _respond(self, asked):
        if self.down is not None:
            return self.down
        if asked.is_watch:
            self.watches += 1
            known = asked.query["resourceVersion"] == str(self.version)
            return _Watch(self, 0 if known else 1)
        if asked.path.endswith("/policy"):
            return answer(200, self.object())
        self.lists += 1
        return listing(self.version, *([self.object()] if self.text is not None else []))

    def change(self, text):
        self.text, self.version = text, self.version + 1


class _Watch:
    """A watch that tells every change of the object, until the server is down."""

    def __init__(self, server, behind):
        self.server, self.seen = server, server.version - behind

    async def __call__(self, asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n")
        while self.server.down is None:
            if self.seen != self.server.version:
                self.seen = self.server.version
                change = {"type": "MODIFIED", "object": self.server.object()}
                if self.server.text is None:
                    change = event("DELETED", "policy", self.server.version)
                line = json.dumps(change).replace('{"type": "', '{"type":"').encode() + b"\n"
                writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                await writer.drain()
            await asyncio.sleep(0.02)
        writer.transport.abort()


@contextmanager
def watching(text=GOOD, outage_s=0.5):
    server = Server(text)
    with serving(server) as fake:
        watcher = PolicyWatcher(fake.access, policy_source("configmap:default/policy", ""), 0.2, outage_s)
        watcher.first(1)
        watcher.start()
        wait_for(lambda: server.watches)
        try:
            yield server, watcher, fake
            watcher.thread.check()
        finally:
            watcher.stop()


def news(watcher, count=1):
    told = []

    def came():
        told.extend(watcher.take())
        return len(told) >= count

    wait_for(came)
    return told


def test_what_was_read_at_the_start_is_no_news():
    with watching() as (_, watcher, fake):
        time.sleep(1.5)
        assert watcher.take() == []
        assert len(fake.asked) == 3  # the first look, a list, a watch


def test_a_change_is_read_as_soon_as_it_is_watched():
    with watching() as (server, watcher, _):
        server.change(OTHER)
        (update,) = news(watcher)
        assert update.result is PolicyResult.READ
        assert update.policy.placement.kind == "spread"
        assert server.lists == 1


def test_a_bad_policy_is_refused_once_and_a_good_one_taken_again():
    with watching() as (server, watcher, _):
        server.change(BAD)
        (update,) = news(watcher)
        assert update.result is PolicyResult.REFUSED
        assert "configmap:default/policy" in update.problem
        assert "placement" in update.problem
        server.change(GOOD)
        assert [update.result for update in news(watcher)] == [PolicyResult.READ]


def test_a_policy_that_is_deleted_is_refused():
    with watching() as (server, watcher, _):
        server.change(None)
        (update,) = news(watcher)
        assert update.result is PolicyResult.REFUSED
        assert "there is no such ConfigMap" in update.problem


@pytest.mark.parametrize("down", [refusal(503, "ServiceUnavailable"), refusal(403, "Forbidden"), refusal(401, "x")])
def test_a_server_that_does_not_answer_makes_the_policy_unreachable_and_not_bad(down):
    with watching() as (server, watcher, _):
        server.down = down
        (update,) = news(watcher)
        assert update.result is PolicyResult.UNREACHABLE
        time.sleep(1.2)
        assert watcher.take() == []  # it is told once
        server.down = None
        assert [update.result for update in news(watcher)] == [PolicyResult.REACHABLE]


def test_what_changed_in_an_outage_is_read_after_it():
    with watching() as (server, watcher, _):
        server.down = refusal(503, "ServiceUnavailable")
        assert news(watcher)[0].result is PolicyResult.UNREACHABLE
        server.change(OTHER)
        server.down = None
        assert [update.result for update in news(watcher)] == [PolicyResult.READ]


def test_a_short_outage_is_not_worth_a_word():
    with watching(outage_s=5) as (server, watcher, _):
        server.down = refusal(503, "ServiceUnavailable")
        time.sleep(1)
        server.down = None
        time.sleep(1.5)
        assert watcher.take() == []


def test_whoever_asks_is_told_even_if_nothing_changed():
    with watching() as (server, watcher, _):
        watcher.ask()
        assert [update.result for update in news(watcher)] == [PolicyResult.READ]
        server.change(BAD)
        assert [update.result for update in news(watcher)] == [PolicyResult.REFUSED]
        watcher.ask()
        assert [update.result for update in news(watcher)] == [PolicyResult.REFUSED]


def test_an_answer_that_is_no_object_is_an_outage_too():
    with serving(answer(200, b"<html>maintenance</html>")) as fake:
        for source in ("configmap:default/policy", "kueue"):
            with pytest.raises(PolicyUnreachableError, match="cannot be read"):
                PolicyWatcher(fake.access, policy_source(source, ""), 1).first(0.1)


def test_files_are_read_again_every_now_and_then(tmp_path):
    path = tmp_path / "tidegate.yaml"
    path.write_text(GOOD)
    with serving(refusal(503, "ServiceUnavailable")) as fake:
        watcher = PolicyWatcher(fake.access, policy_source(str(path), ""), 0.1)
        watcher.first()
        watcher.start()
        path.write_text(BAD)
        assert [update.result for update in news(watcher)] == [PolicyResult.REFUSED]
        path.write_text(OTHER)
        assert [update.result for update in news(watcher)] == [PolicyResult.READ]
        began_s = time.monotonic()
        watcher.stop()
        assert time.monotonic() - began_s < 2
        assert fake.asked == []
