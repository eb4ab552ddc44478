"""Lists and watches against a server that misbehaves: nothing is lost, nothing is told twice, nothing hangs."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from kubefake import Fake, answer, bookmark, cut, event, gone, half, hang, listing, refusal, stream, thing
from tidegate.kube.transport.client import Client
from tidegate.kube.transport.objects import PartialObject
from tidegate.kube.transport.reflector import Reflector, ReflectorOptions, WatchedKind, token_ahead
from tidegate.kube.transport.resources import PODS
from tidegate.kube.transport.update_queue import UpdateQueue

_SILENT = stream(then="silence")


class _WithExtra(PartialObject, frozen=True):
    extra: str = ""


def follow(*behaviours, until, reflector_options=None, most_s=10.0, taken=False, type=PartialObject, **more):  # noqa: A002
    """Follow until a condition holds; what was told, the follower, and what the server was asked."""

    async def run():
        updates = UpdateQueue()
        if taken:
            updates.take()
        async with Fake(*behaviours) as fake, Client(fake.access) as client:
            pace_ = reflector_options or ReflectorOptions(page=2, quiet_s=5)
            follower = Reflector(client, WatchedKind(PODS, type, **more), updates, lambda: 0.0, options=pace_)
            task = asyncio.create_task(follower.follow())
            told = []
            try:
                async with asyncio.timeout(most_s):
                    while True:
                        told += [_told(item) for item in updates.take()[0]]
                        if until(told, fake, follower):
                            break
                        assert not task.done(), task.exception()
                        await asyncio.sleep(0.01)
            finally:
                task.cancel()
            return told, follower, fake.asked

    return asyncio.run(run())


def _told(news):
    return news.uid, news.thing.metadata.resource_version if news.thing else None


def told_of(*uids):
    return lambda told, fake, follower: set(uids) <= {uid for uid, _ in told}


def asked(count):
    return lambda told, fake, follower: len(fake.asked) >= count


def test_pages_are_joined_and_the_watch_begins_where_the_list_stands():
    pages = (listing(10, thing("a", 1), thing("b", 2), more="next"), listing(10, thing("c", 3)))
    told, _, requests = follow(*pages, _SILENT, until=asked(3))
    assert told == [("a", "1"), ("b", "2"), ("c", "3")]
    assert [request.query.get("continue") for request in requests] == [None, "next", None]
    assert requests[0].query["limit"] == "2"
    assert requests[2].query["resourceVersion"] == "10"
    assert requests[2].query["allowWatchBookmarks"] == "true"


def test_a_list_whose_token_stands_behind_its_objects_is_read_whole():
    """Custom resources come with their fields in the order of the alphabet."""
    first = answer(200, {"items": [thing("a", 1)], "metadata": {"resourceVersion": "10", "continue": "next"}})
    told, _, requests = follow(first, listing(10, thing("b", 2)), _SILENT, until=asked(3))
    assert told == [("a", "1"), ("b", "2")]
    assert [request.query.get("continue") for request in requests] == [None, "next", None]


@pytest.mark.parametrize(
    ("body", "token"),
    [
        (b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc"},"items":[', "abc"),
        (b'{ "metadata":{"continue":"abc","remainingItemCount":3},"items":[', "abc"),
        (b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"continue":"no"}}]}', ""),
        (b'{"items":[{"metadata":{"continue":"no"}}],"metadata":{"continue":"yes"}}', ""),
        (b'{"metadata":{"continue":""},"items":[]}', ""),
        (b'{"metadata":{"continue":"with \\" in it"},"items":[]}', ""),
        (b"no list", ""),
    ],
)
def test_the_token_of_the_next_page_is_found_at_the_top_of_a_list_or_not_at_all(body, token):
    assert token_ahead(body) == token


def test_a_watch_that_ends_goes_on_from_the_last_version_bookmarks_included():
    watch = stream(event("ADDED", "a", 11), bookmark(40))
    _, follower, requests = follow(listing(10), watch, _SILENT, until=asked(3))
    assert requests[2].query["resourceVersion"] == "40"
    assert follower.stats.lists == 1


def test_half_an_event_counts_as_never_sent():
    torn = stream(event("ADDED", "a", 11), b'{"type":"ADDED","object":{"metadata":{"uid":"b"', then="cut")
    told, follower, requests = follow(
        listing(10), torn, stream(event("ADDED", "b", 12), then="silence"), until=told_of("b")
    )
    assert told == [("a", "11"), ("b", "12")]
    assert requests[2].query["resourceVersion"] == "11"
    assert follower.stats.cuts == 1


@pytest.mark.parametrize("expired", [stream(gone()), refusal(410, "Expired")], ids=["event", "status"])
def test_a_version_that_is_forgotten_means_a_new_list_whose_difference_is_told(expired):
    first = listing(10, thing("a", 1), thing("b", 2), thing("c", 3))
    second = listing(20, thing("a", 1), thing("b", 15), thing("d", 16))
    told, follower, _ = follow(
        first, expired, second, _SILENT, until=told_of("d"), reflector_options=ReflectorOptions(page=500, quiet_s=5)
    )
    assert told[3:] == [("b", "15"), ("d", "16"), ("c", None)]
    assert follower.stats.lists == 2


def test_a_page_that_expired_means_the_list_from_its_beginning():
    told, follower, requests = follow(
        listing(10, thing("a", 1), more="next"),
        refusal(410, "Expired"),
        listing(20, thing("a", 1), thing("b", 12)),
        _SILENT,
        until=told_of("b"),
    )
    assert [uid for uid, _ in told].count("b") == 1
    assert "continue" not in requests[2].query
    assert follower.stats.lists == 2


@pytest.mark.parametrize("status", [410, 500, 503])
def test_what_a_list_told_before_it_failed_is_deleted_if_the_next_list_lacks_it(status):
    """A deletion between a list that fails midway and its relist is no ghost."""
    told, _, _ = follow(
        listing(10, thing("a", 1), more="next"),
        refusal(status, "Trouble"),
        listing(20, thing("b", 12)),
        _SILENT,
        until=told_of("b"),
        taken=True,
    )
    assert told == [("a", "1"), ("b", "12"), ("a", None)]


def test_an_object_that_cannot_be_read_in_a_relist_is_not_deleted():
    broken = {"metadata": {"name": "a", "uid": "a"}, "extra": 7}
    told, follower, _ = follow(
        listing(10, {**thing("a", 1), "extra": "x"}, thing("gone", 2)),
        stream(gone()),
        listing(20, broken, thing("b", 12)),
        _SILENT,
        until=told_of("b"),
        type=_WithExtra,
    )
    assert told == [("a", "1"), ("gone", "2"), ("b", "12"), ("gone", None)]
    assert follower.stats.skipped == 1


@pytest.mark.parametrize(
    "watch",
    [
        stream(),
        stream(then="cut"),
        stream(event("ADDED", "a", 11)),
        stream(event("ADDED", "a", 11), then="cut"),
        stream(gone()),
        stream(bookmark(12), gone()),
        refusal(410, "Expired"),
        refusal(500, "InternalError"),
    ],
    ids=["ends", "cut", "event-ends", "event-cut", "gone", "bookmark-gone", "expired", "500"],
)
@pytest.mark.parametrize("jitter", [0.0, 0.999])
def test_a_server_that_ends_every_watch_at_once_gets_at_most_20_requests_in_10_s(monkeypatch, watch, jitter):
    """The clock of the loop jumps over pauses, so that ten seconds take none."""
    _skip_pauses(monkeypatch)

    async def behave(asked_, writer):
        await (watch if asked_.is_watch else listing(10, thing("a", 1)))(asked_, writer)

    async def run():
        async with Fake(behave) as fake, Client(fake.access) as client:
            follower = Reflector(client, WatchedKind(PODS, PartialObject), UpdateQueue(), lambda: jitter)
            task, clock = asyncio.create_task(follower.follow()), asyncio.get_running_loop().time
            began_s, times = clock(), []
            while clock() - began_s < 60:
                await asyncio.sleep(0)
                times += [clock() - began_s] * (len(fake.asked) - len(times))
            task.cancel()
            return times

    times = asyncio.run(run())
    assert max(sum(at <= other < at + 10 for other in times) for at in times) <= 20
    assert len(times) >= 8  # it goes on trying


def _skip_pauses(monkeypatch):
    """Let a pause of the reflector pass at once, by a loop clock that jumps over it."""
    skipped, sleep, monotonic = [0.0], asyncio.sleep, time.monotonic
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda self: monotonic() + skipped[0])

    async def jump(seconds):
        skipped[0] += seconds
        await sleep(0)

    monkeypatch.setattr("tidegate.kube.transport.reflector.asyncio.sleep", jump)


def test_a_watch_that_lasted_is_resumed_at_once_and_pauses_begin_short_again():
    times = []

    async def noted(asked_, writer):
        times.append(asyncio.get_running_loop().time())
        await stream(bookmark(11), pause_s=0.25)(asked_, writer)

    reflector_options = ReflectorOptions(quiet_s=5, steady_s=0.2)
    follow(listing(10), stream(), stream(), noted, until=asked(7), reflector_options=reflector_options)
    assert max(after - before for before, after in itertools.pairwise(times)) < 0.5


def test_an_optional_kind_that_may_not_be_read_is_left_out_until_it_may():
    reflector_options, seen = ReflectorOptions(quiet_s=5, absent_s=0.05, unready_s=0.2), []

    def until(told, fake, follower):
        if follower.stats.left_out and not seen:
            seen.append((follower.listed.is_set(), follower.stats.left_out))
            fake.behaviours = [listing(10, thing("a", 1)), _SILENT]  # somebody lets us
        return bool(told)

    told, follower, requests = follow(
        refusal(403, "Forbidden"), until=until, reflector_options=reflector_options, optional=True
    )
    assert seen == [(True, "Pod is left out: 403 Forbidden; grant get, list and watch on pods")]
    assert len(requests) > 2  # not at the first refusal: a server that has just started refuses everybody
    assert told == [("a", "1")]
    assert follower.stats.left_out == ""


def test_what_must_be_read_is_waited_for():
    reflector_options = ReflectorOptions(quiet_s=5, absent_s=0.05, unready_s=0.05)
    _, follower, _ = follow(refusal(403, "Forbidden"), until=asked(5), reflector_options=reflector_options)
    assert not follower.listed.is_set()
    assert follower.stats.problem


def test_a_kind_that_may_not_be_read_any_more_is_not_forgotten():
    reflector_options = ReflectorOptions(quiet_s=5, absent_s=0.05, unready_s=0.05)
    known = (listing(10, thing("a", 1)), refusal(403, "Forbidden"))
    told, follower, _ = follow(*known, until=asked(5), reflector_options=reflector_options, optional=True)
    assert told == [("a", "1")]
    assert follower.stats.problem


@pytest.mark.parametrize(
    "problem",
    [
        cut(),
        refusal(500, "InternalError"),
        refusal(503, "ServiceUnavailable"),
        half(b'{"metadata":{},"items":[]}'),
        answer(200, b"{"),
    ],
    ids=["cut", "500", "503", "half", "torn"],
)
def test_a_list_that_fails_is_tried_again(problem):
    told, follower, _ = follow(problem, problem, listing(10, thing("a", 1)), _SILENT, until=told_of("a"))
    assert told == [("a", "1")]
    assert follower.stats.lists >= 2


def test_the_server_is_given_the_time_it_asks_for():
    loop_time = []

    async def noted(asked_, writer):
        loop_time.append(asyncio.get_running_loop().time())
        await (refusal(429, "TooManyRequests", retry_after=1) if len(loop_time) == 1 else listing(10, thing("a", 1)))(
            asked_, writer
        )

    follow(noted, noted, _SILENT, until=told_of("a"))
    assert loop_time[1] - loop_time[0] >= 1.0


def test_what_is_wrong_is_told_until_it_is_well_again():
    seen = []

    def until(told, fake, follower):
        seen.append(follower.stats.problem)
        return told_of("a")(told, fake, follower) and not follower.stats.problem

    follow(refusal(403, "Forbidden", "pods is forbidden"), listing(10, thing("a", 1)), _SILENT, until=until)
    assert "403 Forbidden: pods is forbidden" in seen


def test_a_dead_connection_is_noticed_by_its_silence():
    reflector_options = ReflectorOptions(page=2, quiet_s=0.2)
    _, follower, requests = follow(listing(10), hang(), _SILENT, until=asked(4), reflector_options=reflector_options)
    assert requests[2].query["resourceVersion"] == "10"
    assert follower.stats.lists == 1


def test_an_object_that_cannot_be_read_does_not_hide_the_others():
    broken = {"metadata": {"uid": 7}}
    told, follower, _ = follow(
        listing(10, thing("a", 1), broken),
        stream({"type": "ADDED", "object": broken}, event("ADDED", "b", 12), then="silence"),
        until=told_of("a", "b"),
    )
    assert told == [("a", "1"), ("b", "12")]
    assert follower.stats.skipped == 2


def test_news_of_an_object_are_joined_until_they_are_taken():
    updates = UpdateQueue()
    updates.take()
    for version in range(1000):
        updates.put(0, "a", version)
        updates.put(0, f"b{version % 3}", version)
    updates.put(0, "a", None)
    assert len(updates) == 4
    news, _ = updates.take()
    assert [(item.uid, item.thing) for item in news] == [("a", None), ("b0", 999), ("b1", 997), ("b2", 998)]
    assert updates.take() == ([], [])


def test_what_comes_and_goes_before_anybody_looks_leaves_nothing_behind():
    updates = UpdateQueue()
    for number in range(100):
        updates.put(0, f"a{number}", number)
        updates.put(0, f"a{number}", None)
    assert len(updates) == 0


def test_a_reader_who_never_takes_costs_no_more_than_the_objects():
    """50,000 events about 10 objects, with nobody taking them: the server is drained, and ten entries are held."""
    lines = b"".join(
        b'{"type":"MODIFIED","object":{"metadata":{"uid":"u%d","resourceVersion":"%d"}}}\n' % (n % 10, n)
        for n in range(100, 50_100)
    )

    async def run():
        updates = UpdateQueue()
        async with (
            Fake(listing(10), stream(lines, bookmark(60_000), then="silence")) as fake,
            Client(fake.access) as client,
        ):
            follower = Reflector(client, WatchedKind(PODS, PartialObject), updates, lambda: 0.0)
            task = asyncio.create_task(follower.follow())
            async with asyncio.timeout(20):
                while not follower.stats.bookmarks:
                    await asyncio.sleep(0.01)
            task.cancel()
            return updates, follower

    updates, follower = asyncio.run(run())
    assert len(updates) == 10
    assert follower.stats.events == 50_000
    assert follower.stats.cuts == 0


def test_an_object_that_is_not_understood_does_not_stop_the_others():
    def understand(thing_):
        if thing_.metadata.uid == "odd":
            raise ValueError("odd")
        return thing_

    async def run():
        updates = UpdateQueue()
        watch = stream(event("ADDED", "odd", 12), event("ADDED", "b", 13), then="silence")
        async with Fake(listing(10, thing("odd", 1), thing("a", 2)), watch) as fake, Client(fake.access) as client:
            follower = Reflector(client, WatchedKind(PODS, PartialObject, understand), updates, lambda: 0.0)
            task = asyncio.create_task(follower.follow())
            async with asyncio.timeout(10):
                while follower.stats.events < 2:
                    await asyncio.sleep(0.01)
            task.cancel()
            return [news.uid for news in updates.take()[0]], follower.stats

    told, stats = asyncio.run(run())
    assert told == ["a", "b"]
    assert stats.skipped == 2
    assert "cannot be understood" in stats.problem
