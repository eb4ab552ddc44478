"""Rules of Kueue's webhooks between the fields of one object.

Objects of a cluster have passed them; those of a folder have not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidegate.manifests.field_reader import Item
from tidegate.manifests.kinds import KUEUE, GroupKind
from tidegate.model.queues import FlavorMove, PreemptWhom


def validate_object(key: GroupKind, item: Item) -> None:
    """Report what breaks a rule of the object's kind."""
    rule = _RULES.get(key)
    if rule is not None:
        rule(item)


def _check_cluster_queue(item: Item) -> None:
    spec = item.part("spec")
    parent = spec.get("cohortName") or spec.get("cohort")
    _check_groups(spec, "" if parent else "set spec.cohortName, or leave the limit out", lends_own=True)
    _check_preemption(item.part("spec", "preemption"))
    _check_fungibility(item.part("spec", "flavorFungibility"))
    known = [flavor.get("name") for group in spec.parts("resourceGroups") for flavor in group.parts("flavors")]
    for check in item.part("spec", "admissionChecksStrategy").parts("admissionChecks"):
        for flavor in check.quiet().texts("onFlavors"):
            if flavor not in known:
                check.refuse("onFlavors", f"a flavor of the queue ({', '.join(map(str, known))})", flavor)


def _check_cohort(item: Item) -> None:
    spec = item.part("spec")
    hint = "" if spec.get("parentName") else "set spec.parentName, or leave the limit out"
    _check_groups(spec, hint, lends_own=False)


def _check_groups(spec: Item, no_parent: str, *, lends_own: bool) -> None:
    """Check resource groups; `no_parent` is what to do about limits that need one."""
    groups = spec.parts("resourceGroups")
    resources = Counter(name for group in groups for name in group.quiet().texts("coveredResources"))
    flavors = Counter(str(flavor.get("name")) for group in groups for flavor in group.parts("flavors"))
    for group in groups:
        covered = group.quiet().texts("coveredResources")
        if not covered:
            group.report("coveredResources", expected="one resource or more", found="none")
        for name in covered:
            _check_once(group, "coveredResources", name, resources)
        for flavor in group.parts("flavors"):
            _check_once(flavor, "name", str(flavor.get("name")), flavors)
            _check_listed(flavor, covered)
            for quota in flavor.parts("resources"):
                _check_limits(quota, no_parent, lends_own=lends_own)


def _check_once(item: Item, key: str, name: str, seen: Counter[str]) -> None:
    if seen[name] > 1:
        seen[name] = 0  # reported
        item.report(key, expected="each name once in all groups", found=f"{name!r} twice", hint="keep one of them")


def _check_listed(flavor: Item, covered: tuple[str, ...]) -> None:
    listed = tuple(str(quota.get("name")) for quota in flavor.parts("resources"))
    if listed != covered:
        order = " in their order" if sorted(listed) == sorted(covered) else ""
        expected = f"exactly the covered resources{order} ({', '.join(covered)})"
        flavor.report("resources", expected=expected, found=", ".join(listed) or "none")


def _check_limits(quota: Item, no_parent: str, *, lends_own: bool) -> None:
    if no_parent:
        for key in ("borrowingLimit", "lendingLimit"):
            if key in quota:
                what = "cohort" if lends_own else "parent"
                quota.report(key, found=f"has no meaning without a {what}", hint=no_parent)
    lent, owned = quota.quiet().quantity("lendingLimit"), quota.quiet().quantity("nominalQuota")
    if lends_own and lent is not None and owned is not None and lent > owned:
        quota.refuse("lendingLimit", "at most the nominalQuota", quota.get("lendingLimit"))


def _check_preemption(item: Item) -> None:
    inner = item.part("borrowWithinCohort")
    never, borrow = PreemptWhom.NEVER, inner.get("policy") or PreemptWhom.NEVER
    if (item.get("reclaimWithinCohort") or never) == never and borrow != never:
        expected, hint = "Never while reclaimWithinCohort is Never", "set reclaimWithinCohort to LowerPriority or Any"
        inner.refuse("policy", expected, borrow, hint)


def _check_fungibility(item: Item) -> None:
    moves = (item.get("whenCanBorrow"), item.get("whenCanPreempt"))
    if "preference" in item and moves != (FlavorMove.NEXT, FlavorMove.NEXT):
        expected, hint = "none unless both other fields are TryNextFlavor", "leave it out, or set both to TryNextFlavor"
        item.refuse("preference", expected, item.get("preference"), hint)


def _check_flavor(item: Item) -> None:
    spec = item.part("spec")
    if spec.get("topologyName") and not spec.get("nodeLabels"):
        spec.report("nodeLabels", expected="one label or more next to topologyName", found="none")


def _check_topology(item: Item) -> None:
    spec = item.part("spec")
    levels = [str(level.get("nodeLabel")) for level in spec.parts("levels")]
    if not levels:
        spec.report("levels", expected="one level or more", found="none")
    if len(set(levels)) < len(levels):
        spec.report("levels", expected="each label once", found=", ".join(levels))
    if "kubernetes.io/hostname" in levels[:-1]:
        spec.report("levels", found="kubernetes.io/hostname is not the last level", hint="put it last")


def _check_local_queue(item: Item) -> None:
    spec = item.part("spec")
    if "clusterQueue" not in spec:
        spec.report("clusterQueue", found="required field is missing", hint="name a ClusterQueue")


def _check_workload(item: Item) -> None:
    spec = item.part("spec")
    sets = spec.parts("podSets")
    if not sets:
        spec.report("podSets", expected="one pod set or more", found="none")
    names = Counter(str(pods.get("name") or "main") for pods in sets)
    for pods in sets:
        _check_once(pods, "name", str(pods.get("name") or "main"), names)
        count, least = pods.quiet().whole("count", 1), pods.quiet().whole("minCount")
        if least > count:
            pods.refuse("minCount", f"at most the count of {count}", least)
    if sum("minCount" in pods for pods in sets) > 1:
        spec.report("podSets", expected="minCount in at most one pod set", found="in more")


_RULES: dict[GroupKind, Callable[[Item], None]] = {
    (KUEUE, "ClusterQueue"): _check_cluster_queue,
    (KUEUE, "Cohort"): _check_cohort,
    (KUEUE, "ResourceFlavor"): _check_flavor,
    (KUEUE, "Topology"): _check_topology,
    (KUEUE, "LocalQueue"): _check_local_queue,
    (KUEUE, "Workload"): _check_workload,
}
