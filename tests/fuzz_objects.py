"""Fuzzes what tenants and administrators write: mutated objects of every kind go through mirror, reconciler and engine.

    python tests/fuzz_objects.py --objects 1000000 --seed 1

Nothing may escape the guard, and nothing may reach it either: what it catches is a bug, and is told with its trace and
with the seed of the round that repeats it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fuzz_seeds import WORDS, Thing, seeds
from kubepaper import QUEUES
from tidegate.engine.step import step
from tidegate.kube.actuator.pending_writes import PendingWrite, WriteKind
from tidegate.kube.mirror.object_guard import ObjectFailure
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.queue_objects import AROUND_KINDS, QUEUE_KINDS
from tidegate.kube.transport.api_thread import WatchedKind, WriteReport
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.transport.write_pool import WriteResult
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.model.facts import WriteOutcome
from tidegate.model.policy import Policy
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

#: Objects of one round, of one step, and of each kind that are there at a time.
ROUND, STEP, SLOTS = 4_000, 50, 24

_SEEDS = seeds()
_SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**70), 1.5, 1e308, "", "x", "0", "-5", "1e99", "٣", "\u0000",
    "9" * 80, "1Ei", "100m", "a/b/c", "*", "nvidia.com/gpu", "n0", "default", [], {}, [None], [[]], {"": ""},
    "x" * 5_000, "2026-11-16T08:00:00Z", "In", "Exists", "tidegate",
)  # fmt: skip
_KEYS = (
    "nvidia.com/gpu", "cpu", "memory", "replicas", "parallelism", "completions", "suspend", "template", "spec", "name",
    "requests", "limits", "nodeName", "schedulerName", "initContainers", "restartPolicy", "overhead", "x", "", "~1",
)  # fmt: skip


class Mutator:
    """Makes objects of others, by chance."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def object(self, kind: str) -> Thing:
        """An object of a kind: as people write it, changed a little, much, or nothing but junk."""
        draw = self._draw
        thing: Thing = json.loads(json.dumps(draw.choice(_SEEDS[kind])))
        self._add_words(thing)
        for _ in range(draw.choice((0, 0, 1, 1, 2, 3, 8))):
            self._mutate(thing)
        if draw.random() < 0.02:
            thing["spec"] = deepcopy(self._junk(4))
        if draw.random() < 0.02:
            thing["status"] = deepcopy(self._junk(4))
        return thing

    def _add_words(self, thing: Thing) -> None:
        draw = self._draw
        meta = thing.setdefault("metadata", {})
        for _ in range(draw.choice((0, 1, 1, 2, 4))):
            word = draw.choice(list(WORDS))
            value = self._spoiled(draw.choice(WORDS[word])) if draw.random() < 0.2 else draw.choice(WORDS[word])
            for place in ("labels", "annotations"):
                meta[place] = {**(meta.get(place) or {}), word: value}

    def _spoiled(self, text: str) -> str:
        """A text with one part of it changed; of JSON, one value."""
        draw = self._draw
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text[: draw.randrange(len(text) + 1)]
        whole = {"": value}
        self._mutate(whole)
        return json.dumps(whole.get(""))

    def _mutate(self, thing: Any) -> None:
        """Change one place of an object."""
        draw = self._draw
        while True:
            keys = list(thing) if isinstance(thing, dict) else list(range(len(thing)))
            inner = [key for key in keys if isinstance(thing[key], dict | list) and thing[key]]
            if not inner or draw.random() < 0.25:
                break
            thing = thing[draw.choice(inner)]
        self._change(thing, draw.choice(keys) if keys else None)

    def _change(self, thing: Any, key: Any) -> None:
        draw, kind = self._draw, self._draw.randrange(6)
        if kind == 0 and key is not None:
            del thing[key]
        elif kind <= 3 and key is not None:
            thing[key] = deepcopy(self._value(thing[key]))
        elif isinstance(thing, dict):
            thing[draw.choice(_KEYS)] = deepcopy(self._value(None))
        else:
            thing += [deepcopy(self._value(None)) for _ in range(draw.choice((1, 2, 70)))]

    def _value(self, found: Any) -> Any:
        draw = self._draw
        kind = draw.randrange(8)
        if kind == 0:
            return self._junk(3)
        if kind == 1 and isinstance(found, int) and not isinstance(found, bool):
            return found + draw.choice((-1, 1, 10**6, 2**40))
        if kind == 2:
            return [found, found]
        if kind == 3:
            return {"name": found}
        if kind == 4 and draw.random() < 0.05:
            return _deep(draw.choice((60, 400)))
        return draw.choice(_SCALARS)

    def _junk(self, depth: int) -> Any:
        draw = self._draw
        kind = draw.randrange(3) if depth else 0
        if kind == 0:
            return draw.choice(_SCALARS)
        if kind == 1:
            return [self._junk(depth - 1) for _ in range(draw.randrange(4))]
        return {draw.choice(_KEYS): self._junk(depth - 1) for _ in range(draw.randrange(4))}


def _deep(depth: int) -> Any:
    value: Any = 0
    for number in range(depth):
        value = [value] if number % 2 else {"x": value}
    return value


class _Pool:
    backlog = 0


@dataclass
class Told:
    """What came of it."""

    objects: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0  # objects that no server would send: passed over by the reflector
    decisions: int = 0
    steps: int = 0
    caught: dict[str, tuple[int, ObjectFailure]] = field(default_factory=dict)  # by where: seed and failure


class Round:
    """A few thousand objects that come, change and go before one leader, and then before the next."""

    def __init__(self, seed: int, told: Told) -> None:
        self._seed, self._told, self._draw = seed, told, random.Random(seed)
        self._mutator, self._things = Mutator(self._draw), dict[str, tuple[int, Thing]]()
        self._now_ms, self._version = 1_800_000_000_000, 0
        self._writes: list[PendingWrite] = []
        self._lead()

    def _lead(self) -> None:
        """Begin, or take over: nothing is known but objects."""
        draw = self._draw
        ownership = draw.choice(
            (
                Ownership(),
                Ownership(),
                Ownership(scheduler="", gates=True),
                Ownership(gates=True),
                Ownership(watches=True),
                Ownership(watches=True, unqueued=False),
            )
        )
        options = WorldOptions(ownership=ownership, batch_ms=0, queues=draw.random() < 0.5)
        policy = draw.choice((QUEUES, Policy(placement=QUEUES.placement)))
        self.world = KubeWorld(Connection("https://nowhere"), policy, lambda: self._now_ms, draw.random, options)
        self.state = ClusterState()
        api: Any = self.world.api
        api.pool, api.send = _Pool(), self._writes.extend
        api.listed.set()
        report = self.world.reconciler.guard._report
        self.world.reconciler.guard._report = self._note(report)
        self._kinds = {topic.resource.kind: (at, topic) for at, topic in enumerate(self.world.watched_kinds)}
        self._names = [name for name in _SEEDS if name in self._kinds]
        seldom = dict.fromkeys((kind.kind for kind in (*AROUND_KINDS, *QUEUE_KINDS)), 0.1)  # all jobs are read again
        weights = {"Pod": 40.0, "Job": 8.0, "ResourceClaim": 4.0, "Node": 3.0, **seldom}
        self._weights = [weights.get(name, 1.0) for name in self._names]
        for uid, (_, thing) in list(self._things.items()):
            if thing["kind"] in self._kinds:
                self._send(uid, thing)

    def _note(self, report: Callable[[ObjectFailure], None]) -> Callable[[ObjectFailure], None]:
        def note(failure: ObjectFailure) -> None:
            where = [line for line in failure.trace.splitlines() if "File " in line and "tidegate" in line]
            key = f"{failure.error[:60]} {where[-1] if where else ''}"
            self._told.caught.setdefault(key, (self._seed, failure))
            report(failure)

        return note

    def run(self, objects: int) -> None:
        """Tell of so many objects, deciding in between."""
        for number in range(objects):
            self._tell()
            if number % STEP == STEP - 1:
                self._step()
            if number % (ROUND // 4) == ROUND // 4 - 1:
                check(self.state)
                self._lead()
        self._step()
        check(self.state)

    def _tell(self) -> None:
        kind = self._draw.choices(self._names, self._weights)[0]
        slot = self._draw.randrange(SLOTS)
        plural = self._kinds[kind][1].resource.plural
        uid = f"{plural}-{slot}"
        self._told.objects[kind] += 1
        if self._draw.random() < 0.08:
            self._things.pop(uid, None)
            self.world.api.updates.put(self._kinds[kind][0], uid, None)
            return
        thing = self._mutator.object(kind)
        self._identify(thing, kind, slot, uid)
        self._send(uid, thing)

    def _identify(self, thing: Thing, kind: str, slot: int, uid: str) -> None:
        """What the API server sees to: who an object is."""
        meta = thing["metadata"] if isinstance(thing.get("metadata"), dict) else {}
        self._version += 1
        names = {
            "Node": f"n{slot}",
            "Pod": f"p{slot}",
            "ResourceClaim": "resourceclaim",
            "ClusterQueue": "clusterqueue",
        }
        meta |= {"uid": uid, "name": names.get(kind, f"{kind.lower()}{slot or ''}"), "namespace": "default"}
        thing |= {"metadata": {**meta, "resourceVersion": str(self._version)}, "kind": kind}

    def _send(self, uid: str, thing: Thing) -> None:
        at, topic = self._kinds[thing["kind"]]
        decoded = _decoded(topic, thing)
        if decoded is None:
            self._told.unreadable += 1
            return
        self._things[uid] = (at, thing)
        self.world.api.updates.put(at, uid, topic.shrink(decoded))

    def _step(self) -> None:
        self._now_ms += self._draw.choice((1, 1000, 200_000))
        events = self.world.poll(self._now_ms)
        result = step(self.state, events, self._now_ms)
        self._told.decisions += len(result.decisions.kind)
        self._told.steps += 1
        self.world.carry_out(result.decisions)
        writes, self._writes[:] = list(self._writes), []
        for pending in writes:
            self._carry_out(pending)

    def _carry_out(self, pending: PendingWrite) -> None:
        outcome = self._draw.choice((WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.FAILED, WriteOutcome.UNKNOWN))
        found = self._things.get(pending.write.key)
        if pending.write_kind is WriteKind.BIND and outcome is WriteOutcome.DONE and found is not None:
            body = json.loads(pending.write.request.body or b"{}")
            thing = found[1]
            if isinstance(thing.get("spec"), dict):
                thing["spec"]["nodeName"] = body["target"]["name"]
                self._send(pending.write.key, thing)
        self.world.api.updates.note(WriteReport(pending, WriteResult(outcome, ApiResponse(200), 1)))


def _decoded(topic: WatchedKind, thing: Thing) -> Any:
    """The object as the reflector decodes it; None if it is none of its kind."""
    try:
        return msgspec.json.decode(json.dumps(thing), type=topic.type)
    except (msgspec.MsgspecError, RecursionError):
        return None


def fuzz(objects: int, seed: int, most_s: float = float("inf"), say: Callable[[str], None] = lambda _: None) -> Told:
    """Fuzz with so many objects, or for so long; stops at the first round in which the guard caught something."""
    told, began, began_s = Told(), time.process_time(), time.monotonic()

    def spent() -> float:
        """CPU seconds; on a busy machine, half of those that passed."""
        return max(time.process_time() - began, (time.monotonic() - began_s) / 2)

    while told.objects.total() < objects and spent() < most_s and not told.caught:
        Round(seed, told).run(min(ROUND, objects - told.objects.total()))
        seed += 1
        if seed % 10 == 0:
            say(f"seed {seed}: {told.objects.total():,} objects, {told.decisions:,} decisions, {spent():.0f} s")
    return told


def main() -> int:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round takes the next")
    options = parser.parse_args()
    told = fuzz(options.objects, options.seed, say=lambda text: print(text, flush=True))
    for seed, failure in told.caught.values():
        print(f"seed {seed}: {failure.ref.resource.plural} {failure.error}\n{failure.trace}")
    print(f"{told.objects.total():,} objects, {told.unreadable:,} of them no server would send, {told.steps:,} steps, ")
    print(f"{told.decisions:,} decisions; the guard caught {len(told.caught)} kinds of failures")
    return 1 if told.caught else 0


if __name__ == "__main__":
    sys.exit(main())
