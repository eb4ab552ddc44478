"""Topology requests of pods, and their topology assignments."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.manifests import label_names
from tidegate.manifests.field_reader import LARGEST_COUNT, Item
from tidegate.manifests.field_support import schema
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.problem import found_text
from tidegate.model.work import SliceRule, TopologyRequest

REQUEST = schema(
    "required preferred unconstrained podSetGroupName podSetSliceRequiredTopology podSetSliceSize",
    idle="podIndexLabel subGroupIndexLabel subGroupCount",
    podsetSliceRequiredTopologyConstraints=schema("topology size"),
)
ASSIGNMENT = schema(
    "levels",
    domains=schema("values count"),
    slices=schema(
        "domainCount",
        podCounts=schema("universal individual"),
        valuesPerLevel=schema("universal", individual=schema("prefix suffix roots")),
    ),
)

#: Layers of slices that Kueue knows.
MOST_LAYERS = 3

#: Domains that one assignment may name.
MOST_DOMAINS = 100_000

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def read_topology_request(item: Item) -> TopologyRequest:
    """Read the topology request of a pod set."""
    slices = [_slice(inner) for inner in item.items("podsetSliceRequiredTopologyConstraints")]
    level = item.text("podSetSliceRequiredTopology")
    if level and not slices:
        slices = [SliceRule(level=level, size=item.whole("podSetSliceSize", 1, least=1))]
    return TopologyRequest(
        required=item.text("required"),
        preferred=item.text("preferred"),
        unconstrained=item.flag("unconstrained"),
        slices=tuple(slices),
        group=item.text("podSetGroupName"),
    )


def _slice(item: Item) -> SliceRule:
    return SliceRule(level=item.needed_text("topology"), size=item.whole("size", 1, least=1))


def read_topology_annotations(meta: Item) -> TopologyRequest:
    """Read what the annotations of a pod template ask of the topology: the first of the three kinds that is there."""
    inner, found = meta.mapping("annotations"), meta.pairs("annotations")
    levels = {
        key: found[key]
        for key in (label_names.REQUIRED, label_names.PREFERRED, label_names.UNCONSTRAINED)
        if key in found
    }
    if len(levels) > 1:
        inner.warn(list(levels)[1], f"has no effect next to {next(iter(levels))}", "keep one of them")
    kind = next(iter(levels), "")
    grouped = kind in (label_names.REQUIRED, label_names.PREFERRED)
    if label_names.POD_SET_GROUP in found and not grouped:
        inner.warn(
            label_names.POD_SET_GROUP, f"has no effect without {label_names.REQUIRED} or {label_names.PREFERRED}"
        )
    return TopologyRequest(
        required=found[kind] if kind == label_names.REQUIRED else "",
        preferred=found[kind] if kind == label_names.PREFERRED else "",
        unconstrained=kind == label_names.UNCONSTRAINED and _truth(inner, label_names.UNCONSTRAINED, found[kind]),
        slices=tuple(_annotated_slices(inner, found)),
        group=found.get(label_names.POD_SET_GROUP, "") if grouped else "",
    )


def _truth(item: Item, key: str, written: str) -> bool:
    if written not in (*_TRUE, *_FALSE):
        item.refuse(key, '"true" or "false"', written)
    return written in _TRUE


def _annotated_slices(item: Item, found: dict[str, str]) -> Iterator[SliceRule]:
    if label_names.SLICES in found:
        yield from _layers(item, found[label_names.SLICES])
        return
    if label_names.SLICE_LEVEL in found and label_names.SLICE_SIZE in found:
        size = found[label_names.SLICE_SIZE]
        if size.isdecimal() and 0 < int(size[:12]) <= LARGEST_COUNT:
            yield SliceRule(level=found[label_names.SLICE_LEVEL], size=int(size))
        else:
            item.refuse(label_names.SLICE_SIZE, "a whole number of at least 1, as text", size)
    elif label_names.SLICE_LEVEL in found or label_names.SLICE_SIZE in found:
        there = label_names.SLICE_LEVEL if label_names.SLICE_LEVEL in found else label_names.SLICE_SIZE
        other = label_names.SLICE_SIZE if there is label_names.SLICE_LEVEL else label_names.SLICE_LEVEL
        item.report(there, found=f"has no effect without {other}", hint="add it, or leave this out")


def _layers(item: Item, written: str) -> Iterator[SliceRule]:
    try:
        layers = msgspec.json.decode(written.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        layers = None
    if not isinstance(layers, list) or not 1 <= len(layers) <= MOST_LAYERS:
        expected = f'JSON such as [{{"topology": "rack-label", "size": 4}}] with one to {MOST_LAYERS} layers'
        item.report(label_names.SLICES, expected=expected, found=found_text(written))
        return
    for number, layer in enumerate(layers):
        inner = item.field(label_names.SLICES, layers).field(number, layer)
        if inner.is_mapping():
            yield _slice(inner)


def read_topology_assignment(item: Item) -> tuple[DomainAssignment, ...]:
    """Read where pods were put, as a list of domains (v1beta1) or in slices (v1beta2)."""
    domains = [
        DomainAssignment(values=inner.texts("values"), count=inner.whole("count")) for inner in item.items("domains")
    ]
    for inner in item.items("slices"):
        domains += _slice_domains(inner, len(item.texts("levels")))
    return tuple(domains)


def _slice_domains(item: Item, levels: int) -> Iterator[DomainAssignment]:
    domains, counts = item.whole("domainCount", least=1, most=MOST_DOMAINS), item.mapping("podCounts")
    columns = [_level_values(level, domains) for level in item.items("valuesPerLevel")]
    if len(columns) != levels:
        item.report("valuesPerLevel", expected=f"one entry for each of {levels} levels", found=str(len(columns)))
    numbers = _pod_counts(counts, domains)
    for number, *values in zip(numbers, *columns, strict=False):
        yield DomainAssignment(values=tuple(map(str, values)), count=number)


def _pod_counts(item: Item, domains: int) -> list[int]:
    if "universal" in item:
        return [item.whole("universal")] * domains
    found = item.get("individual")
    if not isinstance(found, list) or len(found) != domains or any(type(count) is not int for count in found):
        item.report("individual", expected=f"{domains} whole numbers", found=found_text(found))
        return [0] * domains
    return list(found)


def _level_values(item: Item, domains: int) -> list[str]:
    if "universal" in item:
        return [item.text("universal")] * domains
    inner = item.mapping("individual")
    roots = inner.texts("roots")
    if len(roots) != domains:
        inner.report("roots", expected=f"{domains} texts", found=str(len(roots)))
    prefix, suffix = inner.text("prefix"), inner.text("suffix")
    return [f"{prefix}{root}{suffix}" for root in roots]
