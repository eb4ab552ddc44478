"""Steady work by seed, with bursts: Jobs, gangs, JobSets, pod groups, Deployments and single pods that come and finish.

Who owns work is here, too: Deployments are deleted when their time is over, pods of groups are made again when they are
lost, and what is finished is deleted after a while.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, NamedTuple

from gameday.ground import URGENT
from gameday.policies import QUEUES
from kubebench import Api, ApiError
from kubebench.objects import job, pod, pod_spec
from kubejobs import PATHS

Thing = dict[str, Any]

#: The label by which everything that belongs to one work is found.
WORK = "gameday/work"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"

#: How pods go once they are deleted (kwok's stages): some take their time.
_LEAVES = "tidegate.io/leaves-after"

PODS = PATHS["Pod"]
_NOW = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


class Kind(NamedTuple):
    """A kind of work, and how much of the load it is."""

    name: str
    share: int  # in hundredths of all work
    path: str
    gang: bool = False  # its pods start together, and one that is lost costs all
    most_pods: int = 1
    sizes: tuple[int, ...] = (1, 2, 4)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("pod", 25, PODS, sizes=(1, 2, 4, 8)),
        Kind("job", 25, PATHS["Job"], most_pods=6),
        Kind("indexed", 15, PATHS["Job"], most_pods=6),
        Kind("gang", 10, PATHS["Job"], gang=True, most_pods=4, sizes=(2, 4, 8)),
        Kind("jobset", 10, PATHS["JobSet"], gang=True, most_pods=4, sizes=(2, 4, 8)),
        Kind("group", 10, PODS, gang=True, most_pods=4, sizes=(2, 4, 8)),
        Kind("deployment", 5, PATHS["Deployment"], most_pods=3, sizes=(1, 2, 4)),
    )
}


@dataclass
class Work:
    """One work, as its owner made it."""

    name: str
    kind: Kind
    queue: str
    urgent: bool
    pods: int
    gpus: int  # of each pod
    runs_s: float
    waves: int  # pods that each of its pods is followed by, with itself
    made_s: float = 0.0
    over_s: float = 0.0  # when it was seen to be over; 0: it is not
    serial: int = 0  # pods of a group that were made so far


class Pace(NamedTuple):
    """How much work comes, and how long it runs."""

    gpus: float  # that are asked for on average
    shortest_s: float = 20.0
    longest_s: float = 300.0
    burst_every_s: float = 150.0
    burst: int = 12


class Load:
    """Makes work, and looks after it as its owners would."""

    def __init__(self, api: Api, mode: str, pace: Pace, seed: int, *, job_sets: bool) -> None:
        self._api, self._mode, self._pace = api, mode, pace
        self.tell_deleted: Callable[[str], object] = lambda name: None  # work that is deleted while it runs
        self._rng = random.Random(seed)
        self._kinds = [kind for kind in KINDS.values() if job_sets or kind.name != "jobset"]
        self.works: dict[str, Work] = {}
        self.queues = list(QUEUES)
        self.deleted: set[str] = set()  # names of work that was deleted by its owner, running or not
        self._next_s = self._next_burst_s = 0.0
        self._looked_s = 0.0
        self.late: list[str] = []  # what could not be made or deleted, and is tried again

    # -- arrivals ----------------------------------------------------------------------------------------------

    def arrive(self, now_s: float) -> None:
        """Make the work that has come since the last time."""
        if not self._next_s:
            self._next_s, self._next_burst_s = now_s, now_s + self._gap_s(self._pace.burst_every_s)
        while self._next_s <= now_s:
            self._make(self._draw())
            self._next_s += self._gap_s(self._mean_gap_s())
        if self._next_burst_s <= now_s:
            queue = self._rng.choice(self.queues)
            for _ in range(self._pace.burst):
                self._make(self._draw(queue))
            self._next_burst_s = now_s + self._gap_s(self._pace.burst_every_s)

    def _gap_s(self, mean_s: float) -> float:
        return self._rng.expovariate(1 / mean_s)

    def _mean_gap_s(self) -> float:
        """The time between two arrivals that asks for so many GPUs on average, bursts included."""
        shares = sum(kind.share for kind in self._kinds)
        each = sum(
            kind.share * (kind.most_pods + min(kind.most_pods, 2)) / 2 * _mean(kind.sizes) for kind in self._kinds
        )
        pace = self._pace
        runs_s = (pace.longest_s - pace.shortest_s) / math.log(pace.longest_s / pace.shortest_s)
        rate = pace.gpus / (each / shares * runs_s) - pace.burst / pace.burst_every_s
        return 1 / max(rate, 0.02)

    def _draw(self, queue: str = "") -> Work:
        rng, pace = self._rng, self._pace
        (kind,) = rng.choices(self._kinds, [kind.share for kind in self._kinds])
        runs_s = math.exp(rng.uniform(math.log(pace.shortest_s), math.log(pace.longest_s)))
        waves = rng.choice((1, 1, 2)) if kind.name in ("job", "indexed") else 1
        return Work(
            name=f"{kind.name}-{len(self.works):04d}",
            kind=kind,
            queue=queue or rng.choice(self.queues),
            urgent=rng.random() < 0.1,
            pods=rng.randint(min(kind.most_pods, 2), kind.most_pods),
            gpus=rng.choice(kind.sizes),
            runs_s=runs_s / waves,
            waves=waves,
        )

    def _make(self, work: Work) -> None:
        work.made_s = time.monotonic()
        self.works[work.name] = work
        for thing in self._things(work):
            self._surely(lambda thing=thing: self._api.post(work.kind.path, thing))  # type: ignore[misc]

    def _surely(self, ask: Callable[[], Any]) -> None:
        """Ask the API server, which may just be restarting."""
        for _ in range(150):
            try:
                ask()
            except ApiError as error:
                if error.status in (404, 409):
                    return
                self.late.append(str(error))
            except (OSError, HTTPException):
                pass
            else:
                return
            time.sleep(0.2)

    # -- objects -----------------------------------------------------------------------------------------------

    def _things(self, work: Work) -> Iterator[Thing]:
        name = work.kind.name
        if name == "pod":
            yield self._owned(work, pod(work.name, work.gpus, runs=_seconds(work), **self._spec(work)))
        elif name == "group":
            yield from (self.member(work) for _ in range(work.pods))
        elif name == "deployment":
            yield self._deployment(work)
        elif name == "jobset":
            yield self._job_set(work)
        else:
            yield self._job(work)

    def _spec(self, work: Work) -> dict[str, Any]:
        scheduler = {"scheduler": "tidegate"} if self._mode == "bind" else {}
        return {**scheduler, **({"priorityClassName": URGENT} if work.urgent else {})}

    def _owned(self, work: Work, thing: Thing) -> Thing:
        meta = thing["metadata"]
        meta["labels"] = {**meta.get("labels", {}), WORK: work.name, QUEUE: work.queue}
        template = thing["spec"].get("template")
        if template is not None:
            inner = template.setdefault("metadata", {})
            inner["labels"] = {**inner.get("labels", {}), WORK: work.name}
            if int(work.name[-1]) % 3 == 0:
                inner.setdefault("annotations", {})[_LEAVES] = "2s"
        return thing

    def member(self, work: Work) -> Thing:
        """One more pod of a group."""
        work.serial += 1
        made = pod(
            f"{work.name}-{work.serial}",
            work.gpus,
            runs=_seconds(work),
            group=(work.name, work.pods),
            **self._spec(work),
        )
        return self._owned(work, made)

    def _job(self, work: Work) -> Thing:
        made = job(work.name, work.pods, work.gpus, runs=_seconds(work), suspend=True, **self._spec(work))
        spec = made["spec"]
        spec |= {"completions": work.pods * work.waves, "backoffLimit": 60}
        if work.kind.name == "indexed":
            spec["completionMode"] = "Indexed"
        else:
            spec["podFailurePolicy"] = _FORGIVING
        if work.kind.gang:
            made["metadata"]["labels"] = {"tidegate.io/recovery": "gang"}
        return self._owned(work, made)

    def _job_set(self, work: Work) -> Thing:
        inner = job("", work.pods, work.gpus, runs=_seconds(work), **self._spec(work))["spec"]
        del inner["suspend"]
        inner |= {"backoffLimit": 60, "podFailurePolicy": _FORGIVING}
        inner["template"]["metadata"]["labels"] = {WORK: work.name}
        jobs = [{"name": "workers", "replicas": 1, "template": {"spec": inner}}]
        meta = {"name": work.name}
        spec = {"suspend": True, "replicatedJobs": jobs}
        return self._owned(
            work, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}
        )

    def _deployment(self, work: Work) -> Thing:
        labels = {"app": work.name, WORK: work.name, QUEUE: work.queue}
        spec = {**pod_spec(work.gpus, **self._spec(work)), "restartPolicy": "Always"}
        inner = {"replicas": work.pods, "selector": {"matchLabels": {"app": work.name}}}
        template = {"metadata": {"labels": labels}, "spec": spec}
        meta = {"name": work.name}
        made = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {**inner, "template": template},
        }
        return self._owned(work, made)

    # -- owners ------------------------------------------------------------------------------------------------

    def look_after(self, now_s: float, *, at_the_end: bool = False) -> None:
        """Do what owners do, once in a while."""
        if now_s - self._looked_s < 2.0:
            return
        self._looked_s = now_s
        try:
            pods = self._pods_by_work()
            over = self._over_by_status()
        except (ApiError, OSError, HTTPException):
            return
        for work in list(self.works.values()):
            if work.over_s:
                self._clean_up(work, now_s)
            elif self._is_over(work, pods.get(work.name, []), over, now_s, at_the_end=at_the_end):
                work.over_s = now_s
            elif work.kind.name == "group":
                self._make_again(work, pods.get(work.name, []))

    def _pods_by_work(self) -> dict[str, list[Thing]]:
        found: dict[str, list[Thing]] = {}
        for one in self._api.get(PODS)["items"]:
            found.setdefault(one["metadata"].get("labels", {}).get(WORK, ""), []).append(one)
        return found

    def _over_by_status(self) -> set[str]:
        """Names of jobs that are over or gone are those that are not among these."""
        paths = {kind.path for kind in self._kinds if kind.path != PODS}
        return {
            one["metadata"]["name"]
            for path in paths
            for one in self._api.get(path)["items"]
            if not has_condition(one, "Complete", "Completed", "Failed")
        }

    def _is_over(self, work: Work, pods: list[Thing], alive: set[str], now_s: float, *, at_the_end: bool) -> bool:
        name = work.kind.name
        if work.name in self.deleted:
            return True
        if name == "deployment" and (at_the_end or now_s - work.made_s > work.runs_s):
            return True
        if name == "group":
            done = [one for one in pods if one["status"].get("phase") == "Succeeded"]
            return len(done) >= work.pods
        if name == "pod":
            return {one["status"].get("phase") for one in pods} <= {"Succeeded", "Failed"}
        return work.name not in alive

    def _make_again(self, work: Work, pods: list[Thing]) -> None:
        """A pod of a group that was lost is made again, and one that failed goes."""
        there = 0
        for one in pods:
            if one["status"].get("phase") == "Failed" and "deletionTimestamp" not in one["metadata"]:
                self._delete(f"{PODS}/{one['metadata']['name']}")
            else:
                there += 1
        for _ in range(work.pods - there):
            thing = self.member(work)
            self._surely(lambda thing=thing: self._api.post(PODS, thing))  # type: ignore[misc]

    def _clean_up(self, work: Work, now_s: float) -> None:
        wait_s = 0.0 if work.kind.name == "deployment" else 15.0
        if now_s - work.over_s < wait_s:
            return
        if work.kind.name in ("pod", "group"):
            for number in range(work.serial + 1):
                name = f"{work.name}-{number}" if work.kind.name == "group" else work.name
                self._delete(f"{PODS}/{name}")
        else:
            self.tell_deleted(work.name)
            self._delete(f"{work.kind.path}/{work.name}")
        work.over_s = math.inf

    def _delete(self, path: str) -> None:
        self._surely(lambda: self._api.delete(path, _NOW))

    def left(self) -> list[str]:
        """Work that is not over."""
        return [work.name for work in self.works.values() if not work.over_s]


_FORGIVING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def _mean(values: tuple[int, ...]) -> float:
    return sum(values) / len(values)


def _seconds(work: Work) -> str:
    return f"{work.runs_s:.1f}s"


def has_condition(thing: Thing, *words: str) -> bool:
    """Whether a condition of one of these types is true."""
    found = thing.get("status", {}).get("conditions") or ()
    return any(one["type"] in words and one["status"] == "True" for one in found)


__all__ = ["KINDS", "PODS", "PRIORITY", "QUEUE", "WORK", "Kind", "Load", "Pace", "Work", "has_condition"]
