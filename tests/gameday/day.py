"""The day: load, operators, rules and owners together, and what came of it."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from gameday.ending import Ending
from gameday.ground import LEASES, NODES, POLICY, Ground, Setting
from gameday.load import PODS, Load, Pace
from gameday.operators import HandOver, Operators, rss_mib
from gameday.records import Records
from gameday.rules import EVENT_S, Rules
from gameday.watching import Change, Watches
from kubejobs import PATHS
from kubeowners import Owners

#: How long it may take until the next work ends when nothing is done any more, beyond what work runs.
_SETTLE_S = 240.0

#: How long nobody may lead: the Lease, two tries, and time to take over; the outage of an API server comes on top.
_SLACK_S = 15.0
_MEMORY_EVERY_S = 5.0

#: How long a replica may take from its start until it has read its policy, on a machine that has other work.
_START_S = 60.0


class Plan(NamedTuple):
    """How long the day is, and how hard."""

    setting: Setting
    minutes: float
    pace: Pace
    action_every_s: float = 8.0


class _Memory(NamedTuple):
    life: tuple[str, int]  # replica, process
    at_s: float
    mib: int


class Day:
    """Use it in a with statement."""

    def __init__(self, plan: Plan, folder: Path | None = None) -> None:
        self._plan = plan
        self.ground = Ground(plan.setting, folder)
        self._memory: list[_Memory] = []
        self._leads: list[tuple[float, str]] = []  # since when, and who: empty: nobody

    def __enter__(self) -> Self:
        plan = self._plan
        with ExitStack() as stack:
            stack.enter_context(self.ground)
            plane, job_sets = self.ground.plane, self.ground.has_job_sets
            self.load = Load(plane.api("admin"), plan.setting.mode, plan.pace, plan.setting.seed, job_sets=job_sets)
            self.records = Records(time.monotonic())
            self.rules = Rules(self.records, self.ground.deleters, 15.0 if plan.setting.quick else EVENT_S)
            self.load.tell_deleted = lambda name: self.records.note("its owner deletes it", f"work/{name}")
            if job_sets:
                stack.enter_context(Owners(plane, "JobSet"))
            self._watches = stack.enter_context(Watches(plane, _paths(job_sets=job_sets)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def live(self, report: Callable[[str], object] = str) -> None:
        """Live through it: work and actions first, then the end of all work."""
        seed, every_s = self._plan.setting.seed + 1, self._plan.action_every_s
        until_s = time.monotonic() + 60 * self._plan.minutes
        last_s = until_s - self._plan.pace.longest_s / 2  # work that comes later would only run after the day
        with Operators(self.ground, self.load, seed, every_s, self.records) as self.operators:
            while (now_s := time.monotonic()) < until_s:
                if now_s < last_s:
                    self.load.arrive(now_s)
                self._turn(now_s)
                report(self._state(until_s - now_s))
        wait_s = self._plan.pace.longest_s + _SETTLE_S
        self.ending = Ending(self.records, self.load.works, wait_s, time.monotonic())
        while (left_s := self.ending.left_s(now_s := time.monotonic())) > 0 and self._is_open():
            self.operators.revive()
            self._turn(now_s, at_the_end=True)
            self.ending.see(now_s, self._left())
            report(self._state(left_s))
        self._finish()

    def _turn(self, now_s: float, *, at_the_end: bool = False) -> None:
        self.load.look_after(now_s, at_the_end=at_the_end)
        for change in self._watches.take():
            self._see(change)
        self.rules.check_time(now_s - 3)
        self._sample(now_s)
        time.sleep(0.2)

    def _see(self, change: Change) -> None:
        if change.kind == "leases":
            holder = "" if change.gone else change.thing["spec"].get("holderIdentity") or ""
            self._leads.append((change.at_s, holder))
        else:
            self.rules.see(change)

    def _sample(self, now_s: float) -> None:
        if not self._memory or now_s - self._memory[-1].at_s >= _MEMORY_EVERY_S:
            for replica in self.ground.replicas:
                if replica.process.poll() is None:
                    self._memory.append(_Memory((replica.name, replica.process.pid), now_s, rss_mib(replica)))

    def _is_open(self) -> bool:
        """Whether there is still something to wait for."""
        return bool(self._left()) or self.rules.pending or self._assumed()

    def _left(self) -> list[str]:
        """Work that has not ended, and is not refused for good."""
        return [name for name in self.load.left() if not self._is_refused(name)]

    def _assumed(self) -> bool:
        leader = self.ground.leader()
        return leader is None or bool(leader.metric("tidegate_assumed_workloads"))

    def _state(self, left_s: float) -> str:
        used = sum(self.records.used().values())
        found, waiting = len(self.rules.violations), len(self.load.left())
        return f"{left_s:5.0f} s left, {used} GPUs used, {waiting} works alive, {found} violations"

    # -- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        now_s = time.monotonic()
        for name, why in self.ending.endless(now_s, self._left()):
            self.rules.complain(now_s, "work without an end", name, f"{why}; {self._why(name)}")
        self._check_hand_overs()
        self._check_memory()
        for replica in self.ground.replicas:
            self._check_log(replica.name, replica.log.read_text(errors="replace"))
        for ended in self.operators.ended:
            if ended.code and not (ended.code == 2 and self.records.had_no_policy(ended.at_s - _START_S, ended.at_s)):
                self.rules.complain(ended.at_s, "exit code", ended.name, str(ended.code))
        for name in self.operators.never_done():
            self.rules.complain(now_s, "action without effect", name, "it failed whenever it was tried")
        for name in ("refused_objects", "bypassed_objects", "gates_left_over"):
            leader = self.ground.leader()
            left = leader.metric(f"tidegate_{name}") if leader is not None else 0
            if left:
                self.rules.complain(now_s, "left behind", name, f"{left:.0f}")

    def _is_refused(self, name: str) -> bool:
        """Whether work of a queue that is gone is told so."""
        work = self.records.works.get(name)
        since_s = -1.0 if work is None else self.records.gone_since(work.queue)
        if work is None or since_s < 0:
            return False
        told = [one for uid in (work.uid, *work.pods) for one in self.records.told.get(uid, ()) if one.at_s >= since_s]
        return any("(NoQueue)" in one.note for one in told)

    def _why(self, name: str) -> str:
        """What the cluster says of work that has no end."""
        work = self.records.works.get(name)
        if work is None:
            return "it was never seen"
        told = [one for uid in (work.uid, *work.pods) for one in self.records.told.get(uid, ())]
        last = max(told, default=None)
        pods = Counter(
            f"{pod.phase}{' gated' if pod.gated else ''}{' bound' if pod.node else ''}"
            for pod in work.pods.values()
            if not pod.gone
        )
        said = f"; last Event: {last.reason}: {last.note}" if last is not None else ""
        return f"queue {work.queue}, suspended {work.suspended}, pods {dict(pods)}{said}"

    def hand_over_times(self) -> list[tuple[str, float]]:
        """How long it took until somebody led again, each time that a leader was killed or stopped."""
        found = []
        for one in self.operators.hand_overs:
            later = (
                at_s - one.at_s
                for at_s, who in self._leads
                if at_s > one.at_s + 0.2 and who and self._renewed(one, who, at_s)
            )
            found.append(("killed" if one.killed else "stopped", round(next(later, -1.0), 1)))
        return found

    def _renewed(self, one: HandOver, who: str, at_s: float) -> bool:
        """Whether this holds the Lease after a leader went: another, or the same one in another life."""
        return who != one.identity or at_s > one.at_s + (1.0 if one.killed else 0.5)

    def _check_hand_overs(self) -> None:
        lease_s = 4.0 if self._plan.setting.quick else 15.0
        for one, (how, took_s) in zip(self.operators.hand_overs, self.hand_over_times(), strict=True):
            down_s = sum(
                end - begin for begin, end in self.operators.outages if begin < one.at_s + lease_s and end > one.at_s
            )
            if one.followed and not 0 <= took_s <= lease_s + _SLACK_S + down_s:
                self.rules.complain(one.at_s, "hand-over", one.identity, f"{how}, nobody led for {took_s} s")

    def memory_lives(self) -> list[dict[str, Any]]:
        """Each life of a replica: how old it became, and its memory early and late in it."""
        lives: dict[tuple[str, int], list[_Memory]] = {}
        for sample in self._memory:
            lives.setdefault(sample.life, []).append(sample)
        found = []
        for (name, _), samples in lives.items():
            age_s = samples[-1].at_s - samples[0].at_s
            early = [one.mib for one in samples if 60 <= one.at_s - samples[0].at_s <= 120]
            late = [one.mib for one in samples if one.at_s >= samples[-1].at_s - 60]
            most = max(one.mib for one in samples)
            found.append(
                {
                    "replica": name,
                    "minutes": round(age_s / 60, 1),
                    "early_mib": _mean(early),
                    "late_mib": _mean(late),
                    "most_mib": most,
                }
            )
        return found

    def _check_memory(self) -> None:
        for life in self.memory_lives():
            if life["minutes"] >= 8 and life["late_mib"] > 1.25 * life["early_mib"] + 25:
                self.rules.complain(time.monotonic(), "memory", life["replica"], json.dumps(life))

    def _check_log(self, name: str, text: str) -> None:
        for line in filter(None, text.splitlines()):
            if line.startswith("configmap:") and any(ended.code == 2 for ended in self.operators.ended):
                continue  # the last words of a replica that was started under a policy that cannot be used
            if not line.startswith("{"):
                self.rules.complain(time.monotonic(), "log", f"{name}: {line[:80]}", line[:400])
                continue
            entry = json.loads(line)
            if (
                entry.get("event") == "policy refused"
                and self.operators.done["invalid policy"] + self.operators.done["empty policy"]
            ):
                continue
            if entry.get("level") in ("error", "critical") or "Traceback" in line:
                what = re.sub(r"\d+", "#", str(entry.get("event")))
                self.rules.complain(time.monotonic(), "log", f"{name}: {what}", line[:600])

    def summary(self) -> dict[str, Any]:
        """What came of it."""
        rules, setting = self.rules, self._plan.setting
        waits = [wait for some in rules.waits.values() for wait in some]
        return {
            "mode": setting.mode,
            "seed": setting.seed,
            "minutes": self._plan.minutes,
            "nodes": setting.nodes,
            "quota": setting.quota,
            "works": dict(sorted(Counter(work.kind.name for work in self.load.works.values()).items())),
            "actions": dict(sorted(self.operators.done.items())),
            "found nothing to do": dict(sorted(self.operators.nothing.items())),
            "failed actions": dict(Counter(map(str.strip, self.operators.failed)).most_common(20)),
            "job sets": self.ground.has_job_sets,
            "works left": len(self._left()),
            "pods lost, by why": dict(rules.deaths.most_common()),
            "events": dict(sorted(self.records.reasons.items())),
            "waits_s": {kind: _quantiles(some) for kind, some in sorted(rules.waits.items())}
            | {"all": _quantiles(waits)},
            "hand-overs": self.hand_over_times(),
            "replicas that ended by themselves": [
                f"{ended.name}: exit code {ended.code}" for ended in self.operators.ended
            ],
            "latest binding to a closed node_s": round(rules.most_late_s, 2),
            "memory": self.memory_lives(),
            "watches cut": self._watches.cuts,
            "violations": [violation._asdict() for violation in rules.violations],
        }

    def details(self) -> list[dict[str, Any]]:
        """Every action and violation, in order."""
        began_s = self.records.began_s
        lines = [
            {"at_s": round(deed.at_s - began_s, 1), "action": deed.action, "targets": sorted(deed.targets)}
            for deed in self.records.deeds
        ]
        lines += [
            {"at_s": one.at_s, "violation": one.rule, "object": one.object, "what": one.what}
            for one in self.rules.violations
        ]
        lines += [
            {"at_s": round(at_s - began_s, 1), "pod lost": pod, "why": why} for at_s, pod, why in self.rules.losses
        ]
        return sorted(lines, key=lambda line: float(line["at_s"]))


def _paths(*, job_sets: bool) -> dict[str, str]:
    kinds = {
        "nodes": NODES,
        "pods": PODS,
        "jobs": PATHS["Job"],
        "deployments": PATHS["Deployment"],
        "events": "/apis/events.k8s.io/v1/namespaces/default/events",
        "configmaps": POLICY.rpartition("/")[0],
        "leases": LEASES,
    }
    return {**kinds, **({"jobsets": PATHS["JobSet"]} if job_sets else {})}


def _mean(values: list[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "n": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 1),
        "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
    }
