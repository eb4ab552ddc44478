"""Managed namespaces: those that match a selector and are not excluded; never kube-system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidegate.kube.transport.resources import Resource
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import check_fields
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.selectors import SELECTOR, read_selector
from tidegate.model.errors import UserError
from tidegate.model.work import NodeRequirement, Operator

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

#: Namespaces that are never managed: the control plane runs there.
NEVER = ("kube-system",)

#: The label that every namespace has, with its name.
NAME_LABEL = "kubernetes.io/metadata.name"

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9./_-]{0,251}[A-Za-z0-9])?"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TERM = re.compile(
    rf"\s*(?:(?P<not>!)?\s*(?P<has>{_LABEL})"
    rf"|(?P<key>{_LABEL})\s*(?P<op>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)"
    rf"|(?P<of>{_LABEL})\s+(?P<in>in|notin)\s+\((?P<values>[A-Za-z0-9._,\s-]*)\))\s*"
)
_BETWEEN = re.compile(r",(?![^(]*\))")


class SelectorError(UserError):
    """A selector that cannot be parsed; the text says what was expected."""


@dataclass(frozen=True)
class NamespaceRule:
    """A label selector that managed namespaces match, and excluded names."""

    requirements: tuple[NodeRequirement, ...] = ()
    excluded: tuple[str, ...] = ()

    def picks(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels is managed."""
        there = {NAME_LABEL: name, **labels}
        return not self.never(name) and all(one.holds(there) for one in self.requirements)

    def never(self, name: str) -> bool:
        """Whether a namespace is not managed, whatever its labels are."""
        return name in NEVER or name in self.excluded

    def as_selector(self) -> dict[str, Any]:
        """The rule as a Kubernetes label selector."""
        barred = [{"key": NAME_LABEL, "operator": "NotIn", "values": [*NEVER, *self.excluded]}]
        wanted = [
            {"key": one.key, "operator": one.operator.value, **({"values": list(one.values)} if one.values else {})}
            for one in self.requirements
        ]
        return {"matchExpressions": [*barred, *wanted]}


@dataclass
class ManagedNamespaces:
    """The managed namespaces of a cluster; without a selector their labels are not needed."""

    rule: NamespaceRule = NamespaceRule()
    labels: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)  # by name

    def __hash__(self) -> int:
        return hash(self.rule)

    @property
    def needs_labels(self) -> bool:
        """Whether namespaces have to be watched."""
        return bool(self.rule.requirements)

    def knows(self, name: str) -> bool:
        """Whether it is known if a namespace is managed."""
        return not self.needs_labels or self.rule.never(name) or name in self.labels

    def manages(self, name: str) -> bool:
        """Whether a namespace is managed; one that is not known yet is not."""
        if not self.rule.requirements:  # a fast path, as each pod takes it
            return not self.rule.never(name)
        return self.knows(name) and self.rule.picks(name, self.labels.get(name, {}))

    def see(self, name: str, labels: dict[str, str] | None) -> bool:
        """Update the labels of a namespace; whether that changes if a known namespace is managed."""
        before = self.manages(name) if name in self.labels else None
        if labels is None or not self.needs_labels:
            self.labels.pop(name, None)
            return False
        self.labels[name] = labels
        return before is not None and before != self.manages(name)


def read_rule(selector: str, excluded: tuple[str, ...]) -> NamespaceRule:
    """Parse the rule: a selector in kubectl's syntax or as JSON, and excluded names."""
    for name in excluded:
        if not _NAMESPACE.fullmatch(name):
            raise SelectorError(f"--exclude-namespace: expected the name of a namespace, found {name!r}")
    text = selector.strip()
    found = _from_json(text) if text.startswith("{") else _from_text(text) if text else ()
    return NamespaceRule(found, tuple(sorted(set(excluded))))


def _from_json(text: str) -> tuple[NodeRequirement, ...]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(text) from error
    findings = ManifestFindings()
    item = Item(value, findings, ObjectOrigin(kind="LabelSelector", name=""))
    check_fields(item, SELECTOR)
    requirements = read_selector(item)
    if findings.listed:
        raise SelectorError(f"--managed-jobs-namespace-selector: {findings.listed[0].problem.text()}")
    return requirements


def _from_text(text: str) -> tuple[NodeRequirement, ...]:
    return tuple(_requirement(term, text) for term in _BETWEEN.split(text))


def _requirement(term: str, text: str) -> NodeRequirement:
    found = _TERM.fullmatch(term)
    if found is None:
        raise _unreadable(text)
    if found["has"]:
        return NodeRequirement(key=found["has"], operator=Operator.DOES_NOT_EXIST if found["not"] else Operator.EXISTS)
    if found["key"]:
        negated = found["op"] == "!="
        operator = Operator.NOT_IN if negated else Operator.IN
        return NodeRequirement(key=found["key"], operator=operator, values=(found["value"],))
    values = tuple(value.strip() for value in found["values"].split(","))
    operator = Operator.IN if found["in"] == "in" else Operator.NOT_IN
    return NodeRequirement(key=found["of"], operator=operator, values=values)


def _unreadable(text: str) -> SelectorError:
    return SelectorError(
        "--managed-jobs-namespace-selector: expected labels such as team=a,tier in (x,y), or Kueue's selector as JSON, "
        f"found '{text[:80]}'"
    )
