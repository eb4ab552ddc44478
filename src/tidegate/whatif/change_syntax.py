"""Changes as text: `quota:research/h100/gpu+8`, `nodes:h100x8+2`, `stop:job-7`; read and written the same way."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from tidegate.journal.queue_position import find_shortages
from tidegate.journal.quota_names import FlavorResourceName, number_text
from tidegate.journal.reader import matching_ids
from tidegate.model.quota_limits import gpu_milli_of
from tidegate.model.units import WHOLE_MILLI, UnitError, parse_quantity
from tidegate.state.cluster import ClusterState
from tidegate.whatif.budget import FixKind
from tidegate.whatif.changes import (
    AllowFlavor,
    AllowModel,
    Change,
    ImpossibleChangeError,
    MoreBorrowing,
    MoreNodes,
    MoreQuota,
    MoveToQueue,
    OpenQueue,
    SetPriority,
    StopWorkloads,
    branch_of,
    work_of,
)
from tidegate.whatif.options import node_patterns

#: What each kind looks like, for those who wrote it otherwise.
FORMS = {
    FixKind.QUOTA: "quota:QUEUE[/FLAVOR][/RESOURCE]+N",
    FixKind.BORROW: "borrow:QUEUE[/FLAVOR][/RESOURCE]+N, or without +N for no limit",
    FixKind.NODES: "nodes:SHAPE+N",
    FixKind.MODEL: "model:NAME",
    FixKind.FLAVOR: "flavor:NAME",
    FixKind.PRIORITY: "priority:N or priority:+N",
    FixKind.STOP: "stop:JOB",
    FixKind.QUEUE: "queue:NAME",
    FixKind.OPEN: "open:QUEUE",
}

#: Resources that quota counts in thousandths.
_IN_MILLI = ("gpu", "cpu")

#: Nodes that can be asked for: more would not be a change, but another cluster.
_MOST_NODES = 1_000

_SIGNED = re.compile(r"(?P<name>.+)(?P<sign>[+-])(?P<amount>[0-9][0-9A-Za-z.]*)")


def read_change(text: str, state: ClusterState, number: int) -> Change:
    """The change that a text means, for a workload; an ImpossibleChangeError says what was expected."""
    word, colon, rest = text.strip().partition(":")
    if word not in FORMS:
        near = difflib.get_close_matches(word, list(FORMS), 1, 0.6)
        known = f"did you mean {FORMS[FixKind(near[0])]}?" if near else f"expected one of {'; '.join(FORMS.values())}"
        raise ImpossibleChangeError(f"{word!r} is no kind of change; {known}")
    if not colon or not rest:
        raise ImpossibleChangeError(f"it does not say which {word}; expected {FORMS[FixKind(word)]}")
    return _READERS[FixKind(word)](rest, state, number)


def write_change(change: Change, state: ClusterState) -> str:  # noqa: PLR0911 - one text for each kind
    """The text that `read_change` reads as this change."""
    if isinstance(change, MoreQuota):
        return f"{FixKind.QUOTA}:{_lot_text(change.branch, change.lot)}{_signed(change.lot.resource, change.amount)}"
    if isinstance(change, MoreBorrowing):
        more = "" if change.amount is None else _signed(change.lot.resource, change.amount)
        return f"{FixKind.BORROW}:{_lot_text(change.branch, change.lot)}{more}"
    if isinstance(change, MoreNodes):
        return f"{FixKind.NODES}:{_pattern_name(state, change.like)}+{change.nodes}"
    if isinstance(change, AllowModel):
        return f"{FixKind.MODEL}:{change.model}"
    if isinstance(change, AllowFlavor):
        return f"{FixKind.FLAVOR}:{change.flavor}"
    if isinstance(change, SetPriority):
        return f"{FixKind.PRIORITY}:{change.priority}"
    if isinstance(change, StopWorkloads):
        return f"{FixKind.STOP}:{state.workload_ids[state.workload_numbers.row(change.workload)]}"
    return f"{FixKind.QUEUE}:{change.queue}" if isinstance(change, MoveToQueue) else f"{FixKind.OPEN}:{change.queue}"


def _lot_text(branch: str, lot: FlavorResourceName) -> str:
    return f"{branch}/{lot.flavor}/{lot.resource}"


def _signed(resource: str, amount: int) -> str:
    return f"{'-' if amount < 0 else '+'}{number_text(resource, abs(amount)).replace(',', '')}"


# -- names -----------------------------------------------------------------------------------------------------


def _known(what: str, name: str, names: Iterable[str]) -> str:
    """A name, if it is one of those there are."""
    there = sorted(names)
    if name in there:
        return name
    raise ImpossibleChangeError(f"there is no {what} {name!r}; {_hint(name, there)}")


def _hint(name: str, there: list[str]) -> str:
    near = difflib.get_close_matches(name, there, 3, 0.5)
    if near:
        return f"did you mean {', '.join(near)}?"
    if not there:
        return "there is none at all"
    more = f" and {len(there) - 5:,} more" if len(there) > 5 else ""
    return f"there is {', '.join(there[:5])}{more}"


def _split(kind: FixKind, text: str) -> tuple[str, int, str]:
    """Name, sign and amount of `NAME+N`."""
    found = _SIGNED.fullmatch(text)
    if found is None:
        raise ImpossibleChangeError(f"{text!r} does not say how much more; expected {FORMS[kind]}")
    return found["name"], -1 if found["sign"] == "-" else 1, found["amount"]


# -- quota -----------------------------------------------------------------------------------------------------


def _read_quota(text: str, state: ClusterState, number: int) -> Change:
    name, sign, amount = _split(FixKind.QUOTA, text)
    branch, lot = _read_lot(name, state, number)
    return MoreQuota(branch, lot, sign * _read_amount(lot.resource, amount))


def _read_borrow(text: str, state: ClusterState, number: int) -> Change:
    if _SIGNED.fullmatch(text) is None or _is_branch(text, state):
        branch, lot = _read_lot(text, state, number)
        return MoreBorrowing(branch, lot, None)
    name, sign, amount = _split(FixKind.BORROW, text)
    branch, lot = _read_lot(name, state, number)
    return MoreBorrowing(branch, lot, sign * _read_amount(lot.resource, amount))


def _is_branch(text: str, state: ClusterState) -> bool:
    return text in _branches(state)


def _branches(state: ClusterState) -> list[str]:
    shares = state.policy.shares
    return [queue.name for queue in shares.queues] + [cohort.name for cohort in shares.cohorts]


def _read_lot(text: str, state: ClusterState, number: int) -> tuple[str, FlavorResourceName]:
    """A queue or cohort, and which of its lots: a flavor, a resource, or both; GPUs where none is named."""
    name, *rest = text.split("/", 1)
    branch = _known("queue or cohort", name, _branches(state))
    lots = [FlavorResourceName(quota.flavor, quota.resource) for quota in branch_of(state.policy.shares, branch).quotas]
    fits = [lot for lot in lots if _is_meant(lot, rest[0] if rest else "")]
    if not fits:
        has = ", ".join(f"{branch}/{lot.flavor}/{lot.resource}" for lot in lots[:6]) or "no quota at all"
        raise ImpossibleChangeError(f"{branch} has no quota of {rest[0] if rest else 'GPUs'!r}; it has {has}")
    return branch, _nearest(fits, state, number)


def _is_meant(lot: FlavorResourceName, text: str) -> bool:
    """Whether a lot is what `FLAVOR/RESOURCE`, `FLAVOR`, `RESOURCE` or nothing means."""
    if text in (f"{lot.flavor}/{lot.resource}", lot.resource):
        return True
    return bool(gpu_milli_of(lot.resource)) and text in ("", lot.flavor)


def _nearest(lots: list[FlavorResourceName], state: ClusterState, number: int) -> FlavorResourceName:
    """Of several lots the one that the workload lacks, wants, or the first."""
    wants = find_shortages(state, number)
    lacks = [want.lot for want in wants if want.missing] + [want.lot for want in wants]
    return next((lot for lot in lacks if lot in lots), lots[0])


def _read_amount(resource: str, text: str) -> int:
    """An amount in the units that people count in: GPUs, cores, memory with its suffix."""
    expected = {"gpu": "GPUs, such as 8 or 0.5", "cpu": "cores, such as 16", "memory": "memory, such as 64Gi"}
    wrong = f"{text!r} is no amount of {resource}; expected {expected.get(resource, 'a whole number')}"
    try:
        amount = parse_quantity(text) * (WHOLE_MILLI if resource in _IN_MILLI else 1)
    except UnitError:
        raise ImpossibleChangeError(wrong) from None
    if amount.denominator != 1:
        raise ImpossibleChangeError(wrong)
    return int(amount)


# -- nodes -----------------------------------------------------------------------------------------------------


def _pattern_name(state: ClusterState, like: int) -> str:
    """The shape of a kind of nodes, where no other kind has it; else the name of one of them."""
    patterns = dict(node_patterns(state))
    shapes = [node.shape.name for node in patterns.values()]
    node = patterns.get(like) or state.node_specs[state.node_numbers.row(like)]
    return node.shape.name if node.shape.name and shapes.count(node.shape.name) == 1 else node.name


def _read_nodes(text: str, state: ClusterState, _: int) -> Change:
    name, sign, amount = _split(FixKind.NODES, text)
    if sign < 0 or not amount.isdecimal() or not 1 <= int(amount) <= _MOST_NODES:
        raise ImpossibleChangeError(
            f"{text!r} does not say how many nodes come; expected {FORMS[FixKind.NODES]}, N from 1 to 1,000"
        )
    by_name = {node.name: int(state.nodes.number[row]) for row, node in state.node_specs.items()}
    by_name |= {node.shape.name: number for number, node in reversed(node_patterns(state)) if node.shape.name}
    return MoreNodes(by_name[_known("shape or node", name, by_name)], int(amount))


# -- work ------------------------------------------------------------------------------------------------------


def _read_model(text: str, state: ClusterState, number: int) -> Change:
    models = {node.shape.gpu_model for node in state.node_specs.values()} - {""}
    return AllowModel(number, _known("GPU model", text, models))


def _read_flavor(text: str, state: ClusterState, number: int) -> Change:
    return AllowFlavor(number, _known("flavor", text, [flavor.name for flavor in state.policy.shares.flavors]))


def _read_priority(text: str, state: ClusterState, number: int) -> Change:
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None:
        raise ImpossibleChangeError(f"{text!r} is no priority; expected {FORMS[FixKind.PRIORITY]}")
    by = work_of(state, number).priority if text.startswith("+") else 0
    return SetPriority(number, by + int(text))


def _read_stop(text: str, state: ClusterState, number: int) -> Change:
    rows = {str(state.workload_ids[row]): row for row in state.live_workloads().tolist()}
    meant = matching_ids(text, rows)
    if len(meant) > 1:
        raise ImpossibleChangeError(f"{text} may be {', '.join(meant)}; name one of them")
    found = int(state.workloads.number[rows[_known("job that is not over", meant[0] if meant else text, rows)]])
    if found == number:
        raise ImpossibleChangeError(f"{text} is the job that is asked about; name another one")
    return StopWorkloads(found)


def _read_queue(text: str, state: ClusterState, number: int) -> Change:
    shares = state.policy.shares
    names = [queue.name for queue in shares.queues] + [entrance.id for entrance in shares.entrances]
    return MoveToQueue(number, _known("queue", text, names))


def _read_open(text: str, state: ClusterState, _: int) -> Change:
    return OpenQueue(_known("queue", text, [queue.name for queue in state.policy.shares.queues]))


_READERS: dict[FixKind, Callable[[str, ClusterState, int], Change]] = {
    FixKind.QUOTA: _read_quota,
    FixKind.BORROW: _read_borrow,
    FixKind.NODES: _read_nodes,
    FixKind.MODEL: _read_model,
    FixKind.FLAVOR: _read_flavor,
    FixKind.PRIORITY: _read_priority,
    FixKind.STOP: _read_stop,
    FixKind.QUEUE: _read_queue,
    FixKind.OPEN: _read_open,
}
