"""The text of changes, of their effects, and of a queue position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.journal.decision_text import listed, reason_text, time_text
from tidegate.journal.queue_position import (
    GpuHolders,
    OrderRelation,
    QueuePosition,
    QuotaHolder,
    QuotaShortage,
    queue_names,
    requests_of,
)
from tidegate.journal.quota_names import FlavorResourceName, amount_text, share_text
from tidegate.model.reasons.catalogue import CATALOGUE, Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.id_map import UNKNOWN
from tidegate.whatif.budget import Fix, FixKind
from tidegate.whatif.changes import (
    AllowFlavor,
    AllowModel,
    Change,
    MoreBorrowing,
    MoreNodes,
    MoreQuota,
    MoveToQueue,
    SetPriority,
    StopWorkloads,
    work_of,
)
from tidegate.whatif.effect import ChangeEffect, EvictedWorkload
from tidegate.whatif.search import FixSearchResult

#: Names of other workloads that are listed.
_MOST_NAMED = 5


class EffectText(NamedTuple):
    """An outcome in words."""

    headline: str
    others: tuple[str, ...]


# -- changes ---------------------------------------------------------------------------------------------------


def change_text(change: Change, state: ClusterState) -> str:  # noqa: PLR0911 - one text for each kind
    """A change, as something that there is then: "4 GPUs more of flavor h100 for queue research"."""
    if isinstance(change, MoreQuota):
        more = "more" if change.amount >= 0 else "less"
        return f"{_much(change.lot, abs(change.amount), more)} for {_branch(state, change.branch)}"
    if isinstance(change, MoreBorrowing):
        return _borrowing_text(change, state)
    if isinstance(change, MoreNodes):
        return _nodes_text(change, state)
    if isinstance(change, AllowModel):
        return f"GPU model {change.model} accepted too"
    if isinstance(change, AllowFlavor):
        return f"flavor {change.flavor} allowed: its taints tolerated, no node selector in the way"
    if isinstance(change, SetPriority):
        return f"priority {change.priority} instead of {work_of(state, change.workload).priority}"
    if isinstance(change, StopWorkloads):
        return f"{whose(change.workload, state)} stopped{_holds(change.workload, state)}"
    if isinstance(change, MoveToQueue):
        return f"queue {change.queue} instead of {work_of(state, change.workload).queue}"
    return f"queue {change.queue} open"


def _much(lot: FlavorResourceName, amount: int, more: str) -> str:
    return f"{amount_text(lot.resource, amount)} {more} of flavor {lot.flavor}"


def _branch(state: ClusterState, name: str) -> str:
    return f"queue {name}" if name in queue_names(state).values() else f"cohort {name}"


def _borrowing_text(change: MoreBorrowing, state: ClusterState) -> str:
    who = f"for {_branch(state, change.branch)}, flavor {change.lot.flavor}"
    if change.amount is None:
        return f"no limit on borrowing {change.lot.resource} {who}"
    way = "higher" if change.amount >= 0 else "lower"
    return f"a borrowing limit {amount_text(change.lot.resource, abs(change.amount))} {way} {who}"


def _nodes_text(change: MoreNodes, state: ClusterState) -> str:
    like = state.node_specs[state.node_numbers.row(change.like)]
    gpus = like.shape.gpu_count
    has = f" ({gpus} GPU{'s' if gpus > 1 else ''}{' each' if change.nodes > 1 else ''})" if gpus else ""
    return f"{change.nodes} node{'s' if change.nodes > 1 else ''} more like {like.name}{has}"


def _holds(number: int, state: ClusterState) -> str:
    """What a workload holds of quota's main resource, and its priority."""
    row = state.workload_numbers.row(number)
    priority = work_of(state, number).priority
    asked = requests_of(state, row) if state.quota else {}
    gpus = f"holds {amount_text('gpu', asked['gpu'])}, " if asked.get("gpu") else ""
    return f" ({gpus}priority {priority})"


def whose(number: int, state: ClusterState) -> str:
    """A workload and its queue."""
    row = state.workload_numbers.row(number)
    if row == UNKNOWN:
        return f"workload {number}"
    return f"{state.workload_ids[row]} of {work_of(state, number).queue}"


def changes_text(changes: Sequence[Change], state: ClusterState) -> str:
    """Several changes that are made together."""
    stops = [change for change in changes if isinstance(change, StopWorkloads)]
    said = [change_text(change, state) for change in changes if not isinstance(change, StopWorkloads)]
    if len(stops) == 1:
        said.append(change_text(stops[0], state))
    elif stops:
        said.append(f"{listed([whose(stop.workload, state) for stop in stops], _MOST_NAMED + 1)} stopped")
    return listed(said)


def fix_text(fix: Fix, outcome: ChangeEffect, state: ClusterState) -> str:
    """A change that starts a workload, and whom it costs what."""
    victims = [whose(victim.number, state) for victim in outcome.sent_away]
    cost = f", which sends away {listed(victims, _MOST_NAMED)}" if victims else ""
    return f"{changes_text(fix.changes, state)}{cost}"


# -- what was not found ----------------------------------------------------------------------------------------

_TRIED = {
    FixKind.OPEN: "opening its queue",
    FixKind.MODEL: "other GPU models",
    FixKind.FLAVOR: "other flavors",
    FixKind.QUEUE: "other queues",
    FixKind.BORROW: "a higher borrowing limit",
    FixKind.QUOTA: "more quota",
    FixKind.PRIORITY: "a higher priority",
    FixKind.NODES: "more nodes",
    FixKind.STOP: "stopping others",
    FixKind.TOGETHER: "several of these together",
}


def search_text(found: FixSearchResult) -> tuple[str, ...]:
    """The result of the search, next to the fixes it found."""
    if found.blocked is not Reason.NONE:
        why = CATALOGUE[found.blocked]
        return (f"No change around it would start it: {reason_text(found.blocked)}. {why.lift}",)
    if found.due:
        return ("Nothing has to change: it starts in the next cycle.",)
    if found.again:
        what = "it starts when it is tried again from its first flavor on"
        return (f"Nothing has to change: {what}, as after any change in its cohort or of the policy.",)
    said = (
        ["Nothing has to change: it starts once the workloads that are terminating are gone."] if found.leaving else []
    )
    vain = [_TRIED[attempt.kind] for attempt in found.attempts if not attempt.fix and attempt.tried]
    unfinished = [_TRIED[attempt.kind] for attempt in found.attempts if not attempt.finished]
    if not found.fixes and not found.leaving:
        said.append("No change that was tried would start it now.")
    if vain:
        said.append(f"Tried without success: {listed(vain)}.")
    if unfinished:
        said.append(f"Not tried to the end, for time: {listed(unfinished)}; --trials allows more.")
    return tuple(said)


# -- what would happen -----------------------------------------------------------------------------------------


def effect_text(outcome: ChangeEffect, number: int, state: ClusterState) -> EffectText:
    """What would happen to a workload, and to others."""
    name = state.workload_ids[state.workload_numbers.row(number)]
    if outcome.starts:
        when = ("starts at once", "") if outcome.at_once else ("starts", ", once those preempted for it have left")
        headline = f"{name} {when[0]}{_with_what(outcome)}{when[1]}."
    else:
        headline = f"{name} still waits{_why_still(outcome)}."
    others = []
    if outcome.sent_away:
        others += _sent_away_texts(outcome.sent_away, state)
    if outcome.started:
        others.append(f"Others who start: {_names(outcome.started, state)}.")
    if outcome.kept:
        others.append(f"Who would have started otherwise, and waits: {_names(outcome.kept, state)}.")
    return EffectText(headline, tuple(others) or ("Nobody else starts or has to go.",))


def _with_what(outcome: ChangeEffect) -> str:
    totals: dict[int, int] = {}
    for lot, amount, _ in outcome.grants:
        totals[lot] = totals.get(lot, 0) + amount
    lots = outcome.names.lots
    granted = [share_text(lots[lot], amount) for lot, amount in totals.items() if 0 <= lot < len(lots) and amount]
    gpus: Counter[str] = Counter()
    for node, devices in outcome.places:
        gpus[node] += devices
    nodes = [f"{node} ({count} GPU{'s' if count != 1 else ''})" if count else node for node, count in gpus.items()]
    parts = ([f"with {listed(granted, 4)}"] if granted else []) + ([f"on {listed(nodes, 4)}"] if nodes else [])
    return f" {' '.join(parts)}" if parts else ""


def _why_still(outcome: ChangeEffect) -> str:
    refusal = outcome.refusal
    if refusal is None or refusal.reason is Reason.NONE:
        return ""
    return f": {reason_text(refusal.reason, refusal.evidence, outcome.names)}"


def _sent_away_texts(sent: tuple[EvictedWorkload, ...], state: ClusterState) -> list[str]:
    by_reason: dict[Reason, list[int]] = {}
    for victim in sent:
        by_reason.setdefault(victim.reason, []).append(victim.number)
    return [
        f"Evicted: {_names(tuple(numbers), state)} ({CATALOGUE[reason].title})."
        for reason, numbers in by_reason.items()
    ]


def _names(numbers: tuple[int, ...], state: ClusterState) -> str:
    return listed([whose(number, state) for number in numbers], _MOST_NAMED + 1)


# -- where it stands -------------------------------------------------------------------------------------------

_BEFORE = {
    OrderRelation.MADE_ROOM: "others were preempted for it",
    OrderRelation.USED_LESS: "its team used less recently",
    OrderRelation.PRIORITY: "a higher priority",
    OrderRelation.TIME: "submitted earlier",
}


def position_text(line: QueuePosition, state: ClusterState) -> str:
    """The place of a workload in its queue, and who is first."""
    where = f"queue {line.queue}" if line.queue else "the line"
    others = line.waiting - 1
    if not line.ahead:
        rest = f", before {others:,} other{'s' if others > 1 else ''}" if others else " and waits alone"
        return f"It is the head of {where}{rest}."
    counts = Counter(why for _, why in line.ahead)
    why = [f"{count:,} {_BEFORE[why]}" if len(counts) > 1 else _BEFORE[why] for why, count in counts.items()]
    go = f"{len(line.ahead):,} go" if len(line.ahead) > 1 else "1 goes"
    head = _name(line.ahead[0][0], state)
    return f"In {where} {go} before it ({listed(why)}) of {others:,} others that wait; the head is {head}."


def shortage_text(want: QuotaShortage, queue: str) -> str:
    """What it wants of a lot, and what its queue has of it."""
    resource = want.lot.resource
    asked, free = amount_text(resource, want.asked), amount_text(resource, max(want.free, 0))
    limit = "" if want.borrow_limit is None else f", may borrow {amount_text(resource, want.borrow_limit)}"
    owns = f"{queue} owns {amount_text(resource, want.nominal)}, uses {amount_text(resource, want.used)}{limit}"
    return f"It wants {asked} of flavor {want.lot.flavor}: {owns}, and could use {free} more now."


def holders_text(want: QuotaShortage, state: ClusterState) -> tuple[str, ...]:
    """Who holds what it waits for: in its own queue, and those who borrow in its cohort."""
    said = []
    if want.holders:
        said.append(f"Its queue's part is held by {_held(want.holders, want.lot.resource, state)}.")
    if want.borrowers:
        queues = by_queue(want.borrowers, want.lot.resource)
        said.append(f"Queues of the cohort that use more than their own: {queues}.")
        said.append(f"There it is held by {_held(want.borrowers, want.lot.resource, state)}.")
    return tuple(said)


def gpu_holders_text(room: GpuHolders, state: ClusterState) -> tuple[str, ...]:
    """Who has the GPUs of the nodes that could take it."""
    idle = f"{room.idle:,} of {room.gpus:,} GPUs are idle"
    said = [f"On the {room.nodes:,} node{'s' if room.nodes != 1 else ''} that could take its pods {idle}."]
    if room.holders:
        said.append(f"Queues that hold the rest: {by_queue(room.holders, 'gpu')}.")
        said.append(f"Most is held by {_held(room.holders, 'gpu', state)}.")
    return tuple(said)


def by_queue(holders: tuple[QuotaHolder, ...], resource: str) -> str:
    """Who holds how much, by queue, the largest first."""
    queues = Counter[str]()
    for holder in holders:
        queues[holder.queue] += holder.amount
    return listed(
        [f"{name or 'no queue'} ({amount_text(resource, amount)})" for name, amount in queues.most_common()], 5
    )


def _held(holders: tuple[QuotaHolder, ...], resource: str, state: ClusterState) -> str:
    each = [
        f"{_name(holder.number, state)} ({amount_text(resource, holder.amount)} since {time_text(holder.since_ms)}"
        f"{', leaving' if holder.leaving else ''})"
        for holder in holders
    ]
    return listed(each, 4)


def _name(number: int, state: ClusterState) -> str:
    row = state.workload_numbers.row(number)
    return str(state.workload_ids[row]) if row != UNKNOWN else f"workload {number}"
