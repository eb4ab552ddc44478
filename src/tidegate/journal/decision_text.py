"""The text of reasons, decisions and workload histories. All text about decisions is made here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from tidegate.journal.history import HistoryEntry, JournalNames, WorkloadHistory
from tidegate.journal.phases import PhaseKind, WorkloadPhase, split_phases, waits_by_reason
from tidegate.journal.quota_names import QuotaNames, amount_text, share_text, undeclared_resources
from tidegate.journal.why_not import NodeMismatch
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.reasons.catalogue import CATALOGUE, Reason
from tidegate.model.topology_failures import TOPOLOGY_FAILURE_TEXTS, TopologyFailure
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, cpu_text, duration_text, gpus_text, memory_text
from tidegate.model.work import PodSet, Share, Work

#: Times from here on are dates, and not counted from the start of a run.
DATES_MS = 3_650 * DAY_MS

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

#: How a number of evidence is said, by the name it has in the catalogue.
_SAID: dict[str, Callable[[int], str]] = {"cpu_milli": cpu_text, "memory_mib": memory_text, "milli": gpus_text}
_SAID["topology_failure"] = lambda misfit: (
    TOPOLOGY_FAILURE_TEXTS[TopologyFailure(misfit)] if misfit in set(TopologyFailure) else str(misfit)
)


class JobAnswer(NamedTuple):
    """An explanation: a headline, what led to it, and what would change it."""

    headline: str
    because: tuple[str, ...]
    lift: str


def time_text(at_ms: int) -> str:
    """A time of the twin, which begins on a Monday at midnight: "Tue 09:14"; with the week from the second on.

    A time of a cluster is a date.
    """
    if at_ms >= DATES_MS:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    day, rest = divmod(at_ms, DAY_MS)
    week = f"week {day // 7 + 1} " if day >= 7 else ""
    return f"{week}{_DAYS[day % 7]} {rest // HOUR_MS:02d}:{rest % HOUR_MS // MINUTE_MS:02d}"


def reason_text(reason: Reason, evidence: tuple[int, ...] = (), names: QuotaNames = QuotaNames()) -> str:  # noqa: B008 - a constant
    """A reason with its numbers, as part of a sentence."""
    spec = CATALOGUE[reason]
    values = dict(zip(spec.evidence, evidence, strict=False))
    numbers = {name: _SAID.get(name, str)(value) for name, value in values.items()} | _named(values, names)
    return spec.template.format(**numbers) if numbers or not spec.evidence else spec.title


def reason_text_for(
    work: Work,
    reason: Reason,
    evidence: tuple[int, ...] = (),
    names: QuotaNames = QuotaNames(),  # noqa: B008 - a constant
) -> str:
    """A reason with its numbers, and with the resources of the work that it is about."""
    said, named = reason_text(reason, evidence, names), list[str]()
    if reason is Reason.RESOURCE_UNDECLARED:
        named = undeclared_resources(work, names)
    elif reason is Reason.LACKS_RESOURCE and evidence:
        named = _other_resources(work, evidence[0])
    return f"{said}: {listed(named)}" if named else said


def _other_resources(work: Work, amount: int) -> list[str]:
    """Resources of which a pod asks for this amount, besides those that have reasons of their own."""
    asked = [pair for pods in work.pod_sets for pair in pods.request if pair[0] not in ("cpu", "memory", "pods")]
    return list(dict.fromkeys(name for name, each in asked if each == amount))


def _named(values: dict[str, int], names: QuotaNames) -> dict[str, str]:
    """What numbers of quota mean, in words."""
    said = {}
    lot = values.get("flavor_resource", -1)
    if 0 <= lot < len(names.lots):
        said["flavor_resource"] = f"flavor {names.lots[lot].flavor}"
        for name in ("missing", "amount"):
            if name in values:
                said[name] = amount_text(names.lots[lot].resource, values[name])
    if 0 <= values.get("queue", -1) < len(names.branches):
        said["queue"] = names.branches[values["queue"]]
    if "why" in values:
        why = Reason(values["why"]) if values["why"] in set(Reason) else Reason.NONE
        title = CATALOGUE[why].title if why in CATALOGUE else "it does not match"
        flavor = names.options[values["option"]] if 0 <= values["option"] < len(names.options) else ""
        said["why"] = f"{title} ({flavor})" if flavor else title
    return said


_UNITS: dict[Reason, tuple[str, Callable[[int], str]]] = {
    Reason.LACKS_GPU: ("idle GPUs", str),
    Reason.LACKS_FRACTION: ("of a GPU left on one device", gpus_text),
    Reason.LACKS_GPU_MEMORY: ("of GPU memory left on one device", memory_text),
    Reason.LACKS_CPU: ("CPU cores", cpu_text),
    Reason.LACKS_MEMORY: ("of memory", memory_text),
    Reason.LACKS_SLOT: ("pod slots", str),
}


def mismatch_text(lack: NodeMismatch, node: str) -> str:
    """Why a node does not take a pod now."""
    if lack.reason is Reason.NONE:
        return f"Node {node} would take a pod of set {lack.pod_set} now."
    if lack.reason not in _UNITS:
        return f"Node {node} does not take pods of set {lack.pod_set}: {CATALOGUE[lack.reason].title}."
    what, said = _UNITS[lack.reason]
    return f"Node {node} has {said(lack.free)} {what}; a pod of set {lack.pod_set} asks for {said(lack.asked)}."


def explain(history: WorkloadHistory, cast: JournalNames) -> JobAnswer:
    """What became of a workload, why, and what would change it."""
    phases = split_phases(history)
    last = phases[-1]
    because = [_asks(history)]
    waited = _waits(phases)
    if waited:
        because.append(waited)
    because += _interruptions(history, phases, cast)
    because += _victims(history, cast)
    because += [*_admission(history), *_spots(history, cast)]
    placed = [phase for phase in phases if phase.cause is not None and phase.cause.pods]
    if placed:
        because.append(_place(placed[-1], cast))
    used = _use(history)
    if used:
        because.append(used)
    if last.doing is PhaseKind.WAITING and last.cause is not None and last.cause.tally:
        because.append(_tally(last.cause))
    return JobAnswer(_headline(history, phases), tuple(because), _lift(last))


def _headline(history: WorkloadHistory, phases: list[WorkloadPhase]) -> str:  # noqa: PLR0911 - one sentence for each end of a history
    last = phases[-1]
    wait_ms = sum(phase.end_ms - phase.start_ms for phase in phases if phase.doing is PhaseKind.WAITING)
    if last.doing is PhaseKind.WAITING:
        since = time_text(last.start_ms) if len(phases) > 1 else time_text(history.submitted_ms)
        why = f": {_why(last, history.work)}" if last.cause is not None else ""
        return f"{history.id} is waiting, {duration_text(max(wait_ms, 0))} so far (last change {since}){why}."
    if last.doing is PhaseKind.REJECTED and last.cause is not None:
        return f"{history.id} was rejected on {time_text(last.start_ms)}: {_why(last, history.work)}."
    if last.doing is PhaseKind.CANCELLED:
        return f"{history.id} was cancelled on {time_text(last.start_ms)} before it started."
    so_far = _until_it_held(history, phases)
    if last.doing is PhaseKind.FINISHED:
        took = duration_text(last.start_ms - history.submitted_ms)
        so_far.append(f"finished on {time_text(last.start_ms)}, {took} after it was submitted")
        return f"{history.id} {listed(so_far)}."
    if last.doing is PhaseKind.ADMITTED:
        return _admitted_headline(history, last, so_far)
    if last.doing is PhaseKind.HOLDING:
        so_far.append(f"has held its place since {time_text(last.start_ms)}")
        return f"{history.id} {listed(so_far)}."
    return f"{history.id} was evicted on {time_text(last.start_ms)} and is terminating: {_why(last, history.work)}."


def _until_it_held(history: WorkloadHistory, phases: list[WorkloadPhase]) -> list[str]:
    """How long it waited at first, how often it lost its place, and how long it waited in all."""
    began = (phase for phase in phases if phase.doing in (PhaseKind.HOLDING, PhaseKind.ADMITTED, PhaseKind.LEAVING))
    first_ms = next(began, phases[-1]).start_ms - history.submitted_ms
    total_ms = sum(waits_by_reason(phases).values())
    away = sum(phase.doing is PhaseKind.LEAVING for phase in phases)
    if not away:
        return [_waited(max(first_ms, total_ms))]
    parts = [_waited(first_ms), f"was evicted {_times(away)}"]
    return [*parts, f"waited {duration_text(total_ms)} in all"] if total_ms >= MINUTE_MS else parts


def _waited(waited_ms: int) -> str:
    return "started at once" if waited_ms < MINUTE_MS else f"waited {duration_text(waited_ms)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _admitted_headline(history: WorkloadHistory, last: WorkloadPhase, so_far: list[str]) -> str:
    """It holds quota: without a place where there are nodes, or that is all there is."""
    if last.cause is not None and last.cause.decision is DecisionKind.HOLD:
        since, why = time_text(last.start_ms), _why(last, history.work)
        return f"{history.id} holds its quota and waits for a place since {since}: {why}."
    so_far.append(f"has held its quota since {time_text(last.start_ms)}")
    return f"{history.id} {listed(so_far)}."


def _why(phase: WorkloadPhase, work: Work) -> str:
    assert phase.cause is not None
    if phase.cause.decision is None:
        return "it was evicted and waits for a new place"
    if phase.cause.reason is Reason.REFUSED_AT_FIRST_TRY:
        first = reason_text(Reason(phase.cause.evidence[0]))
        return f"{reason_text(phase.cause.reason, phase.cause.evidence)} ({first})"
    return reason_text_for(work, phase.cause.reason, phase.cause.evidence, phase.cause.names)


def _asks(history: WorkloadHistory) -> str:
    pods = " and ".join(_pod_set_text(pod_set) for pod_set in history.work.pod_sets)
    priority = f", priority {history.work.priority}" if history.work.priority else ""
    when = time_text(history.submitted_ms)
    return (
        f"It is {history.work.kind} work of queue {history.work.queue}{priority}, submitted {when}, asking for {pods}."
    )


def _pod_set_text(pod_set: PodSet) -> str:
    gpu = pod_set.gpu
    models = f" of {' or '.join(gpu.models)}" if gpu.models else ""
    if gpu.share is Share.NONE:
        what = f"{cpu_text(dict(pod_set.request).get('cpu', 0))} CPU cores and no GPU"
    elif gpu.share is Share.FRACTION:
        what = f"{gpus_text(gpu.milli)} of a GPU{models}"
    else:
        what = f"{gpu.count} GPU{'s' if gpu.count > 1 else ''}{models}"
    return f"a gang of {pod_set.count} pods with {what} each" if pod_set.count > 1 else f"one pod with {what}"


def _waits(phases: list[WorkloadPhase]) -> str:
    """Where the waiting went."""
    waits = {reason: ms for reason, ms in waits_by_reason(phases).items() if ms >= MINUTE_MS}
    if not waits:
        return ""
    titles = {reason: CATALOGUE[reason].title if reason in CATALOGUE else "not yet tried" for reason in waits}
    return f"Where the wait went: {listed([f'{titles[reason]} {duration_text(ms)}' for reason, ms in waits.items()])}."


def _interruptions(history: WorkloadHistory, phases: list[WorkloadPhase], cast: JournalNames) -> list[str]:
    said = []
    for phase in phases:
        if phase.doing is PhaseKind.LEAVING and phase.cause is not None:
            known = phase.cause.cause in cast.workloads and phase.cause.decision is DecisionKind.PREEMPT
            by = f" (for {_whose(phase.cause.cause, cast)})" if known else ""
            said.append(f"On {time_text(phase.start_ms)} it was evicted{by}: {_why(phase, history.work)}.")
    return said if len(said) <= 3 else [*said[:2], f"That happened {len(said) - 2} more times."]


def _whose(number: int, cast: JournalNames) -> str:
    """A workload and its queue."""
    name = cast.workloads.get(number, f"workload {number}")
    return f"{name} of queue {cast.queues[number]}" if number in cast.queues else name


def _victims(history: WorkloadHistory, cast: JournalNames) -> list[str]:
    """Workloads that were preempted for it, and why: those of one time and reason together."""
    told: dict[tuple[int, Reason], list[str]] = {}
    for victim in history.victims:
        told.setdefault((victim.at_ms, victim.reason), []).append(_whose(victim.number, cast))
    said = []
    for (at_ms, reason), names in told.items():
        were = "was" if len(names) == 1 else "were"
        said.append(f"On {time_text(at_ms)} {listed(names, 4)} {were} preempted for it: {CATALOGUE[reason].title}.")
    return said if len(said) <= 3 else [*said[:2], f"That happened {len(said) - 2} more times."]


def _admission(history: WorkloadHistory) -> list[str]:
    """What it was granted last: lots and amounts."""
    admitted = [entry for entry in history.entries if entry.decision is DecisionKind.ADMIT]
    if not admitted:
        return []
    last = admitted[-1]
    totals: dict[int, int] = {}
    for lot, amount, *_ in last.grants:
        totals[lot] = totals.get(lot, 0) + amount
    parts = [share_text(last.names.lots[lot], n) for lot, n in totals.items() if 0 <= lot < len(last.names.lots)]
    what = listed(parts, 6) if parts else "nothing that is counted"
    return [f"{CATALOGUE[last.reason].title.capitalize()} on {time_text(last.at_ms)}: {what}."]


def _spots(history: WorkloadHistory, cast: JournalNames) -> list[str]:
    """Where in the topology its pods are to be: pods by node, or by a node of the domain."""
    assigned = [entry for entry in history.entries if entry.decision is DecisionKind.ASSIGN]
    if not assigned:
        return []
    last, names = assigned[-1], dict[str, int]()
    for _, node, pods in last.spots:
        name = cast.nodes[node].name if node in cast.nodes else "a node that is gone"
        names[name] = names.get(name, 0) + pods
    parts = [f"{pods} pod{'s' if pods != 1 else ''} on {name}" for name, pods in names.items()]
    return [f"{CATALOGUE[last.reason].title.capitalize()} on {time_text(last.at_ms)}: {listed(parts, 4)}."]


def proposal_text(entry: HistoryEntry, cast: JournalNames) -> str:
    """What was proposed, and not done."""
    if entry.decision is DecisionKind.PLACE:
        return f"Nobody has started it; Tidegate would now, on {_places_text(entry, cast)}."
    return f"Tidegate would send it away: {reason_text(entry.reason, entry.evidence, entry.names)}."


def _place(phase: WorkloadPhase, cast: JournalNames) -> str:
    assert phase.cause is not None
    return f"Its place from {time_text(phase.start_ms)}: {_places_text(phase.cause, cast)}."


def _places_text(entry: HistoryEntry, cast: JournalNames) -> str:
    names: dict[str, int] = {}
    for _, node, devices in entry.pods:
        name = cast.nodes[node].name if node in cast.nodes else f"node {node}"
        names[name] = names.get(name, 0) + devices.bit_count()
    listed = [f"{name} ({gpus} GPU{'s' if gpus != 1 else ''})" if gpus else name for name, gpus in names.items()]
    more = f" and {len(listed) - 4} more nodes" if len(listed) > 4 else ""
    return f"{', '.join(listed[:4])}{more}"


def _use(history: WorkloadHistory) -> str:
    """How much of what it held was busy."""
    observed = [entry.values for entry in history.entries if entry.fact is FactKind.USE_OBSERVED]
    busy, held = sum(v[0] for v in observed), sum(v[1] for v in observed)
    if not held:
        return ""
    idle_hours = (held - busy) / HOUR_MS
    return (
        f"It was seen busy {busy / held:.0%} of the {held / HOUR_MS:,.1f} GPU-hours it held: "
        f"{idle_hours:,.1f} GPU-hours were allocated and idle."
    )


def _tally(entry: HistoryEntry) -> str:
    parts = [f"{nodes:,} {CATALOGUE[reason].title}" for reason, nodes in sorted(entry.tally, key=lambda t: -t[1])]
    return f"Why the nodes did not take it then: {listed(parts)}."


def _lift(last: WorkloadPhase) -> str:
    if last.doing in (PhaseKind.FINISHED, PhaseKind.HOLDING, PhaseKind.CANCELLED) or last.cause is None:
        return ""
    if last.doing is PhaseKind.ADMITTED and last.cause.decision is not DecisionKind.HOLD:
        return ""
    if last.cause.decision is None:
        return "It starts again when a place is free."
    return CATALOGUE[last.cause.reason].lift


def listed(parts: list[str], most: int = 1 << 30) -> str:
    """Say a list: "a, b and c"; beyond the most that are named, how many more there are."""
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1:,} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
