"""Defaults of a cluster that apply to jobs: priority classes, limits, runtimes, settings."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from tidegate.manifests.field_reader import Item
from tidegate.manifests.quantity import Amounts, added


class PriorityClass(NamedTuple):
    """A priority with a name."""

    name: str
    value: int
    default: bool = False  # of work that names none


class ResourceLimits(NamedTuple):
    """A LimitRange of containers, or pods: default amounts, and bounds."""

    requests: Amounts
    limits: Amounts
    least: Amounts
    most: Amounts


class Transformation(NamedTuple):
    """A resource that quota counts as others."""

    resource: str
    keeps: bool  # it is counted itself, too
    times: str  # a resource whose amount multiplies; empty: none
    outputs: Amounts


class ClusterDefaults(NamedTuple):
    """Everything in a cluster that applies to a job."""

    namespace: str = ""  # of objects that name none
    workload_priorities: Mapping[str, PriorityClass] = {}
    pod_priorities: Mapping[str, PriorityClass] = {}
    queues_by_default: frozenset[str] = frozenset()  # namespaces that have a queue called default
    container_bounds: Mapping[str, ResourceLimits] = {}  # by namespace
    pod_bounds: Mapping[str, ResourceLimits] = {}  # by namespace
    overheads: Mapping[str, Amounts] = {}  # by runtime class
    training_runtimes: Mapping[str, Item] = {}  # by kind and name
    excluded: tuple[str, ...] = ()  # beginnings of names of resources that quota does not count
    transformations: tuple[Transformation, ...] = ()
    gates: frozenset[str] = frozenset()  # features of Kueue that are on and are not by default

    def default_pod_priority(self) -> int:
        """The priority of work that names no class: the lowest of the defaults."""
        return min((found.value for found in self.pod_priorities.values() if found.default), default=0)

    def counted(self, amounts: Amounts) -> Amounts:
        """What quota counts of what a pod asks for."""
        kept = {name: amount for name, amount in amounts.items() if not name.startswith(self.excluded)}
        rules = {rule.resource: rule for rule in self.transformations}
        if not rules.keys() & kept.keys():
            return kept
        plain = {name: amount for name, amount in kept.items() if name not in rules or rules[name].keeps}
        made: Amounts = {}
        for name, amount in kept.items():
            if name in rules:
                made = added(made, _outputs(rules[name], amount, kept))
        return added(plain, {name: max(amount, Fraction()) for name, amount in made.items()})


def _outputs(rule: Transformation, amount: Fraction, asked: Amounts) -> Amounts:
    factor = amount * asked.get(rule.times, Fraction(1)) if rule.times else amount
    return {output: value * factor for output, value in rule.outputs.items()}


NO_DEFAULTS = ClusterDefaults()
