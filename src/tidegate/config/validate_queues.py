"""Checks queues, cohorts and flavors against each other: unknown names, limits without effect, cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from tidegate.config.convert_queues import KEYS, amounts_of
from tidegate.config.messages import did_you_mean
from tidegate.config.quantities import Amount
from tidegate.config.schema import PolicyEntry
from tidegate.config.schema_queues import (
    DEFAULT_FLAVOR,
    AmountsEntry,
    CohortEntry,
    LocalQueueEntry,
    QueueEntry,
    QuotaEntry,
    QuotaNodeEntry,
)
from tidegate.model.problem import Path, Problem, Severity, path_text, shortened
from tidegate.model.queues import WHOLE_WEIGHT

#: Known names that are listed for an unknown one.
MOST_LISTED = 8

_KEY_OF = {key.resource: name for name, key in KEYS.items()}


def queue_errors(policy: PolicyEntry) -> Iterator[Problem]:
    """What makes the queues of a policy unusable."""
    for kind, entries in (
        ("queues", policy.queues),
        ("cohorts", policy.cohorts),
        ("flavors", policy.flavors),
        ("topologies", policy.topologies),
    ):
        yield from _clashes(kind, [entry.name for entry in entries])
    yield from _local_queue_clashes(policy.queues)
    yield from _unknown_topologies(policy)
    yield from _cohort_errors(policy)
    for number, queue in enumerate(policy.queues):
        yield from _queue_errors(policy, queue, ("policy", "queues", number))


# -- names -----------------------------------------------------------------------------------------------------


def _clashes(kind: str, names: Sequence[str]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if first.setdefault(name, number) != number:
            yield repeated(("policy", kind, number, "name"), name, ("policy", kind, first[name]))


def _local_queue_clashes(queues: Sequence[QueueEntry]) -> Iterator[Problem]:
    """LocalQueues that two queues have, or that have the name of a queue."""
    first: dict[str, Path] = {queue.name: ("policy", "queues", at) for at, queue in enumerate(queues)}
    for at, queue in enumerate(queues):
        for number, entrance in enumerate(queue.local_queues):
            name = entrance.name if isinstance(entrance, LocalQueueEntry) else entrance
            where: Path = ("policy", "queues", at, "local_queues", number)
            if first.setdefault(name, where) != where:
                yield repeated(where, name, first[name])


def repeated(at: Path, name: str, first: Path, whose: str = "") -> Problem:
    """A name, or an id, that something else has too."""
    found = f"{shortened(name)}, which {whose}{path_text(first)} has too"
    return Problem(path=at, expected=f"{'an id' if at[-1] == 'id' else 'a name'} of its own", found=found)


def unknown_name(at: Path, what: str, name: str, known: Sequence[str]) -> Problem:
    """An unknown name, with the one that was probably meant, or the known names."""
    hint = did_you_mean(name, known)
    if not hint and known and len(known) <= MOST_LISTED:
        hint = f"known: {', '.join(sorted(known))}"
    return Problem(path=at, found=f"there is no {what} {shortened(name)}", hint=hint)


def _unknown_topologies(policy: PolicyEntry) -> Iterator[Problem]:
    known = [topology.name for topology in policy.topologies]
    for number, flavor in enumerate(policy.flavors):
        if flavor.topology and flavor.topology not in known:
            yield unknown_name(("policy", "flavors", number, "topology"), "topology", flavor.topology, known)


# -- cohorts ---------------------------------------------------------------------------------------------------


def _cohort_errors(policy: PolicyEntry) -> Iterator[Problem]:
    parents = {cohort.name: cohort.parent for cohort in policy.cohorts}
    for number, cohort in enumerate(policy.cohorts):
        at: Path = ("policy", "cohorts", number)
        if circle := _circle(parents, cohort.name):
            found = f"a cycle: {' -> '.join(circle)}"
            yield Problem(path=(*at, "parent"), expected="cohorts that form a tree", found=found)
        yield from _quota_errors(policy, cohort, at)
        yield from _limit_errors(cohort, at, above=cohort.parent, missing="parent")


def _circle(parents: dict[str, str], start: str) -> list[str]:
    """The path from a cohort back to itself; empty if there is none. Only the first name of a cycle reports it."""
    way = [start]
    while way[-1] in parents and parents[way[-1]]:
        way.append(parents[way[-1]])
        if way[-1] == start:
            return way if start == min(way) else []
        if len(way) > len(parents) + 1:
            return []
    return []


# -- queues ----------------------------------------------------------------------------------------------------


def _queue_errors(policy: PolicyEntry, queue: QueueEntry, at: Path) -> Iterator[Problem]:
    yield from _quota_errors(policy, queue, at)
    yield from _limit_errors(queue, at, above=queue.cohort, missing="cohort")
    yield from _group_errors(queue, at)
    if not queue.flavors and not amounts_of(queue):
        hint = "write gpus: 0 for a queue that only borrows" if queue.cohort else "write gpus, cpu or memory"
        yield Problem(path=at, expected="some quota", found="none", hint=hint)
    rule = queue.preemption
    if rule.borrow != "Never" and rule.reclaim == "Never":
        expected = "reclaim too: a queue that may not take back its own quota may not take more"
        yield Problem(path=(*at, "preemption", "borrow"), expected=expected, found="reclaim: Never")


def _quota_errors(policy: PolicyEntry, entry: QuotaNodeEntry, at: Path) -> Iterator[Problem]:
    """Flavors that are unknown, named twice or not named at all."""
    known = [flavor.name for flavor in policy.flavors] or [DEFAULT_FLAVOR]
    unnamed = bool(amounts_of(entry)) or _has_limits(entry)
    if entry.flavors and unnamed:
        hint = "move them into flavors"
        yield Problem(path=at, expected="amounts or flavors", found="both", hint=hint)
    elif unnamed and len(known) > 1:
        hint = f"write flavors: [{{name: {known[0]}, …}}]"
        yield Problem(path=at, expected=f"quota by flavor, as there are {len(known)}", found="none named", hint=hint)
    seen: set[str] = set()
    for number, flavor in enumerate(entry.flavors):
        where: Path = (*at, "flavors", number)
        if flavor.name not in known:
            yield unknown_name((*where, "name"), "flavor", flavor.name, known)
        if flavor.name in seen:
            yield Problem(path=(*where, "name"), expected="each flavor once", found=f"{shortened(flavor.name)} again")
        seen.add(flavor.name)
        if not amounts_of(flavor):
            yield Problem(path=where, expected="some quota", found="none", hint="write gpus, cpu or memory")


def _has_limits(entry: QuotaEntry) -> bool:
    return bool(amounts_of(entry.borrow) or amounts_of(entry.lend))


def _limit_errors(entry: QuotaNodeEntry, at: Path, *, above: str, missing: str) -> Iterator[Problem]:
    """Limits without a cohort to lend to or borrow from, or of a resource without quota."""
    given: list[tuple[Path, QuotaEntry]] = [((*at, "flavors", n), flavor) for n, flavor in enumerate(entry.flavors)]
    for where, quotas in given or [(at, entry)]:
        owned = amounts_of(quotas)
        for kind, limits in (("borrow", quotas.borrow), ("lend", quotas.lend)):
            for resource, limit in amounts_of(limits).items():
                path = (*where, kind, *_key(resource))
                if not above:
                    yield Problem(path=path, expected=f"a {missing} to {kind} {_TOWARDS[kind]}", found="none")
                elif resource not in owned:
                    yield Problem(path=path, expected=f"quota of {_key(resource)[-1]} too", found="none")
                elif kind == "lend" and limit > owned[resource]:
                    expected = f"at most what is owned, {_said(quotas, resource)}"
                    yield Problem(path=path, expected=expected, found=_said(limits, resource))


_TOWARDS = {"borrow": "from", "lend": "to"}


def _key(resource: str) -> tuple[str, ...]:
    """The key that a resource is written with."""
    return (_KEY_OF[resource],) if resource in _KEY_OF else ("other", resource)


def _said(entry: AmountsEntry, resource: str) -> str:
    """An amount as people write it."""
    written = entry.other[resource] if resource in entry.other else getattr(entry, _KEY_OF[resource])
    return written.text() if isinstance(written, Amount) else f"{written:,}"


def _group_errors(queue: QueueEntry, at: Path) -> Iterator[Problem]:
    """Flavors of a queue give the same resources, or none in common: a pod gets all of a group from one flavor."""
    given = [(flavor.name, set(amounts_of(flavor))) for flavor in queue.flavors]
    for number, (name, mine) in enumerate(given):
        for other, theirs in given[:number]:
            if mine & theirs and mine != theirs:
                missing = sorted(_key(resource)[-1] for resource in mine ^ theirs)
                expected = f"the same resources as flavor {other}, or none of them"
                found = f"{', '.join(missing)} in only one of {other} and {name}"
                hint = "write 0 for what a flavor has not"
                yield Problem(path=(*at, "flavors", number), expected=expected, found=found, hint=hint)
                break


# -- what does nothing -----------------------------------------------------------------------------------------


def idle_queue_keys(policy: PolicyEntry) -> Iterator[Problem]:
    """Keys of queues that have no effect."""
    if not policy.queues:
        yield from _without_queues(policy)
        return
    yield from _lonely_cohorts(policy)
    entrances = any(queue.local_queues for queue in policy.queues)
    if policy.usage_sharing is not UNSET and not entrances:
        yield no_effect(("policy", "usage_sharing"), "a queue has local_queues")
    for number, queue in enumerate(policy.queues):
        at: Path = ("policy", "queues", number)
        if queue.preemption.reclaim != "Never" and not queue.cohort:
            yield no_effect((*at, "preemption", "reclaim"), "the queue has a cohort")
        if queue.preemption.borrow_threshold is not UNSET and queue.preemption.borrow == "Never":
            yield no_effect((*at, "preemption", "borrow_threshold"), "borrow is LowerPriority")
    if not policy.fair_sharing:
        branches: list[tuple[str, Sequence[QueueEntry | CohortEntry]]] = [
            ("queues", policy.queues),
            ("cohorts", policy.cohorts),
        ]
        for kind, entries in branches:
            for number, entry in enumerate(entries):
                if entry.weight != WHOLE_WEIGHT:
                    yield no_effect(("policy", kind, number, "weight"), "fair_sharing is true")


def _without_queues(policy: PolicyEntry) -> Iterator[Problem]:
    for key in ("cohorts", "flavors", "topologies", "fair_sharing"):
        if getattr(policy, key):
            yield no_effect(("policy", key), "there are queues")
    if policy.usage_sharing is not UNSET:
        yield no_effect(("policy", "usage_sharing"), "there are queues")
    if policy.admission is not PolicyEntry().admission:
        yield no_effect(("policy", "admission"), "there are queues")


def _lonely_cohorts(policy: PolicyEntry) -> Iterator[Problem]:
    """Cohorts without members, and queues alone in a cohort: mostly mistyped names."""
    members = [queue.cohort for queue in policy.queues] + [cohort.parent for cohort in policy.cohorts]
    declared = [cohort.name for cohort in policy.cohorts]
    for number, cohort in enumerate(policy.cohorts):
        if cohort.name not in members:
            yield no_effect(("policy", "cohorts", number), "a queue, or another cohort, belongs to it")
    for number, queue in enumerate(policy.queues):
        if queue.cohort and queue.cohort not in declared and members.count(queue.cohort) == 1:
            others = sorted({*members, *declared} - {"", queue.cohort})
            yield Problem(
                path=("policy", "queues", number, "cohort"),
                found=f"no other queue is in the cohort {shortened(queue.cohort)}",
                hint=did_you_mean(queue.cohort, others),
                severity=Severity.WARNING,
            )


def no_effect(at: Path, unless: str) -> Problem:
    """A key that has no effect where it is."""
    return Problem(path=at, found=f"has no effect unless {unless}", severity=Severity.WARNING)
