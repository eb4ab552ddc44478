"""Selectors, node affinity, taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.model.hardware import Taint, TaintEffect
from tidegate.model.work import NodeRequirement, NodeTerm, Operator, PreferredTerm, Toleration

REQUIREMENT = schema("key operator values")
SELECTOR = schema(matchLabels=ANYTHING, matchExpressions=REQUIREMENT)
TOLERATION = schema("key operator value effect", idle="tolerationSeconds")
TAINT = schema("key value effect", idle="timeAdded")
_TERM = schema(
    matchExpressions=REQUIREMENT,
    refused={
        "matchFields": Unsupported("nodes chosen by a field", "choose them by a label, such as kubernetes.io/hostname")
    },
)
_BETWEEN_PODS = schema(
    refused={
        "requiredDuringSchedulingIgnoredDuringExecution": Unsupported(
            "pods that must be near or far from others", "use a topology annotation, or leave it out"
        )
    },
    unmodelled={"preferredDuringSchedulingIgnoredDuringExecution": "nearness to other pods is not preferred"},
)
NODE_AFFINITY = schema(
    requiredDuringSchedulingIgnoredDuringExecution=schema(nodeSelectorTerms=_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=schema("weight", preference=_TERM),
)
AFFINITY = schema(nodeAffinity=NODE_AFFINITY, podAffinity=_BETWEEN_PODS, podAntiAffinity=_BETWEEN_PODS)

_NAMESPACE_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_EFFECTS = {effect.value: effect for effect in TaintEffect}


def read_selector(item: Item) -> tuple[NodeRequirement, ...]:
    """Read a label selector; an empty one selects everything."""
    labels = sorted(item.pairs("matchLabels").items())
    equal = [NodeRequirement(key=key, values=(value,)) for key, value in labels]
    return (*equal, *_requirements(item, _NAMESPACE_OPERATORS))


def read_node_affinity(affinity: Item) -> tuple[tuple[NodeTerm, ...], tuple[PreferredTerm, ...]]:
    """Read the node affinity of a pod: terms of which one must hold, and terms that make a node better."""
    required = affinity.mapping("requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.items("nodeSelectorTerms")
    if required.value and not terms:
        required.report("nodeSelectorTerms", expected="one term or more", found="none")
    weighted = affinity.items("preferredDuringSchedulingIgnoredDuringExecution")
    return tuple(_term(term) for term in terms), tuple(_preferred(item) for item in weighted)


def _preferred(item: Item) -> PreferredTerm:
    return PreferredTerm(weight=item.whole("weight", 1, least=1, most=100), term=_term(item.mapping("preference")))


def _term(item: Item) -> NodeTerm:
    return NodeTerm(requirements=tuple(_requirements(item, tuple(Operator))))


def _requirements(item: Item, allowed: tuple[Operator, ...]) -> Iterable[NodeRequirement]:
    return [_requirement(inner, allowed) for inner in item.items("matchExpressions")]


def _requirement(item: Item, allowed: tuple[Operator, ...]) -> NodeRequirement:
    if "operator" not in item:
        item.report("operator", found="required field is missing")
    operator, values = item.choice("operator", Operator, Operator.IN), item.texts("values")
    if operator not in allowed:
        item.refuse("operator", f"one of {', '.join(allowed)}", operator.value)
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        item.report("values", expected=f"one value or more with {operator}", found="none")
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        item.report("values", expected=f"no values with {operator}", found=str(len(values)))
    if operator in (Operator.GREATER, Operator.LESS) and not (len(values) == 1 and _is_number(values[0])):
        item.report("values", expected=f"one whole number, as text, with {operator}", found=", ".join(values) or "none")
    return NodeRequirement(key=item.needed_text("key"), operator=operator, values=values)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def read_tolerations(items: Iterable[Item]) -> tuple[Toleration, ...]:
    """Read tolerations."""
    return tuple(_toleration(item) for item in items)


def _toleration(item: Item) -> Toleration:
    key, operator, effect = item.text("key"), item.text("operator", "Equal"), item.text("effect")
    if operator in ("Lt", "Gt"):
        found = f"{operator} is not supported: taints compared as numbers"
        item.report("operator", found=found, hint="use Equal or Exists")
    elif operator not in ("Equal", "Exists"):
        item.refuse("operator", "Equal or Exists", operator)
    if not key and operator != "Exists":
        item.report("key", expected="a key, or operator Exists", found="neither")
    if effect and effect not in _EFFECTS:
        item.refuse("effect", f"one of {', '.join(_EFFECTS)}", effect)
    return Toleration(
        key=key,
        operator=Operator.EXISTS if operator == "Exists" else Operator.IN,
        value=item.text("value"),
        effect=_EFFECTS.get(effect),
    )


def toleration_object(toleration: Toleration) -> dict[str, str]:
    """A toleration as pods have it."""
    exists = toleration.operator is Operator.EXISTS
    fields = {
        "key": toleration.key,
        "operator": "Exists" if exists else "Equal",
        "value": toleration.value,
        "effect": next((name for name, effect in _EFFECTS.items() if effect is toleration.effect), ""),
    }
    return {name: value for name, value in fields.items() if value}


def read_taints(items: Iterable[Item]) -> tuple[Taint, ...]:
    """Read taints."""
    return tuple(
        Taint(
            key=item.needed_text("key"),
            value=item.text("value"),
            effect=item.choice("effect", TaintEffect, TaintEffect.NO_SCHEDULE),
        )
        for item in items
    )
