"""An explanation as text and as plain data."""

from __future__ import annotations

from shlex import quote
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tidegate.journal.decision_text import reason_text
from tidegate.journal.queue_position import GpuHolders, QueuePosition, QuotaHolder, QuotaShortage
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.whatif.budget import Fix
from tidegate.whatif.change_syntax import write_change
from tidegate.whatif.change_text import (
    changes_text,
    effect_text,
    fix_text,
    gpu_holders_text,
    holders_text,
    position_text,
    search_text,
    shortage_text,
)
from tidegate.whatif.changes import is_own
from tidegate.whatif.effect import ChangeEffect
from tidegate.whatif.explain import Explanation, WhatIf
from tidegate.whatif.search import FixSearchResult

#: Flavor-resources whose holders are listed.
_MOST_WANTS = 2

#: Holders in JSON, of each lot.
_MOST_HOLDERS = 50


#: Who can make a change.
_OWNER, _ADMIN = "namespace", "administrator"


# -- for people ------------------------------------------------------------------------------------------------


def show(explanation: Explanation, console: Console) -> None:
    """Print an explanation."""
    answer = explanation.answer
    console.print(Text(answer.headline, style="bold"))
    for sentence in (*answer.because, *_standing(explanation), *explanation.lacks):
        console.print(Text(sentence))
    if answer.lift:
        console.print(Text(answer.lift, style="green"))
    if explanation.asked is not None:
        _show_asked(explanation, explanation.asked, console)
    if explanation.findings is not None:
        _show_findings(explanation, explanation.findings, console)


def _standing(explanation: Explanation) -> list[str]:
    """Its place in the queue, and who holds what it waits for."""
    state, line = explanation.state, explanation.line
    if state is None:
        return []
    said = [position_text(line, state)] if line is not None else []
    for want in explanation.wants[:_MOST_WANTS]:
        said += [shortage_text(want, line.queue if line is not None else "its queue"), *holders_text(want, state)]
    return said + list(gpu_holders_text(explanation.room, state) if explanation.room is not None else ())


def _show_asked(explanation: Explanation, asked: WhatIf, console: Console) -> None:
    assert explanation.state is not None
    told = effect_text(asked.outcome, explanation.number, explanation.state)
    console.print(Text.assemble("\n", ("With ", "bold"), (changes_text(asked.changes, explanation.state), "bold")))
    mood = "green" if asked.outcome.starts else "yellow"
    console.print(Padding(Text(told.headline, style=mood), (0, 0, 0, 2), expand=False))
    for sentence in told.others:
        console.print(Padding(Text(sentence), (0, 0, 0, 2), expand=False))


def _show_findings(explanation: Explanation, findings: FixSearchResult, console: Console) -> None:
    assert explanation.state is not None
    state = explanation.state
    console.print()
    if findings.fixes:
        console.print(Text("What would start it now, the smallest change of each kind", style="bold"))
    for at, (fix, outcome) in enumerate(_own_first(explanation, findings), 1):
        item = Table.grid(padding=(0, 1, 0, 0))
        by_admin = " (an administrator's change)" if _maker(explanation, fix) == _ADMIN else ""
        item.add_row(f"{at:>2}.", Text(f"{fix_text(fix, outcome, state)}{by_admin}"))
        item.add_row("", Text(_ifs(fix, state), style="cyan"))
        console.print(item)
    for sentence in search_text(findings):
        console.print(Text(sentence, style="dim" if findings.fixes else ""))


def _own_first(explanation: Explanation, findings: FixSearchResult) -> list[tuple[Fix, ChangeEffect]]:
    """Changes with what they do; those that the owners of the work can make themselves come first."""
    found = list(zip(findings.fixes, explanation.outcomes, strict=True))
    return sorted(found, key=lambda pair: _maker(explanation, pair[0]) == _ADMIN)


def _maker(explanation: Explanation, fix: Fix) -> str:
    """Who can make changes: the namespace of the work, or an administrator; empty where work has no namespace."""
    if explanation.state is None or "/" not in explanation.job:
        return ""
    own = all(is_own(change, explanation.state, explanation.number) for change in fix.changes)
    return _OWNER if own else _ADMIN


def _ifs(fix: Fix, state: ClusterState) -> str:
    """The options that try a fix."""
    return " ".join(f"--if {quote(write_change(change, state))}" for change in fix.changes)


# -- for programs ----------------------------------------------------------------------------------------------


def as_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as plain data; keys are stable, and null where there is nothing to say."""
    state = explanation.state
    return {
        "job": explanation.job,
        **explanation.answer._asdict(),
        "node": explanation.node,
        "lacks": explanation.lacks,
        "line": _line(explanation.line, state) if explanation.line is not None and state is not None else None,
        "wants": [_want(want, state) for want in explanation.wants] if state is not None else [],
        "room": _room(explanation.room, state) if explanation.room is not None and state is not None else None,
        "changes": _remedies(explanation),
        "search": _search(explanation.findings) if explanation.findings is not None else None,
        "if": _asked(explanation, explanation.asked) if explanation.asked is not None else None,
    }


def _name(number: int, state: ClusterState) -> str:
    row = state.workload_numbers.row(number)
    return str(state.workload_ids[row]) if row >= 0 else str(number)


def _line(line: QueuePosition, state: ClusterState) -> dict[str, Any]:
    return {
        "queue": line.queue,
        "ahead": len(line.ahead),
        "waiting": line.waiting,
        "head": _name(line.ahead[0][0], state) if line.ahead else None,
        "first_ahead": [{"job": _name(number, state), "why": why} for number, why in line.ahead[:_MOST_HOLDERS]],
    }


def _holders(holders: tuple[QuotaHolder, ...], state: ClusterState) -> list[dict[str, Any]]:
    return [
        {
            "job": _name(holder.number, state),
            "queue": holder.queue,
            "amount": holder.amount,
            "since_ms": holder.since_ms,
            "leaving": holder.leaving,
        }
        for holder in holders[:_MOST_HOLDERS]
    ]


def _want(want: QuotaShortage, state: ClusterState) -> dict[str, Any]:
    return {
        "flavor": want.lot.flavor,
        "resource": want.lot.resource,
        "asked": want.asked,
        "free": want.free,
        "missing": want.missing,
        "nominal": want.nominal,
        "used": want.used,
        "borrow_limit": want.borrow_limit,
        "holders": _holders(want.holders, state),
        "borrowers": _holders(want.borrowers, state),
    }


def _room(room: GpuHolders, state: ClusterState) -> dict[str, Any]:
    return {**room._asdict(), "holders": _holders(room.holders, state)}


def _remedies(explanation: Explanation) -> list[dict[str, Any]]:
    state, findings = explanation.state, explanation.findings
    if state is None or findings is None:
        return []
    found = [attempt for attempt in findings.attempts if attempt.fix is not None]
    return [
        {
            "kind": attempt.kind,
            "text": fix_text(attempt.fix, outcome, state),
            "by": _maker(explanation, attempt.fix) or None,
            "if": [write_change(change, state) for change in attempt.fix.changes],
            "at_once": attempt.fix.at_once,
            "every_smaller_tried": attempt.fix.every_smaller,
            **_others(outcome, state),
        }
        for attempt, outcome in zip(found, explanation.outcomes, strict=True)
        if attempt.fix is not None
    ]


def _others(outcome: ChangeEffect, state: ClusterState) -> dict[str, Any]:
    return {
        "sent_away": [{"job": _name(gone.number, state), "reason": gone.reason.name} for gone in outcome.sent_away],
        "started": [_name(number, state) for number in outcome.started],
        "kept_waiting": [_name(number, state) for number in outcome.kept],
    }


def _search(findings: FixSearchResult) -> dict[str, Any]:
    return {
        "tried": {attempt.kind: attempt.tried for attempt in findings.attempts},
        "unfinished": [attempt.kind for attempt in findings.attempts if not attempt.finished],
        "starts_unchanged": findings.due,
        "starts_when_others_left": findings.leaving,
        "starts_when_tried_again": findings.again,
        "blocked": findings.blocked.name if findings.blocked is not Reason.NONE else None,
        "text": search_text(findings),
    }


def _asked(explanation: Explanation, asked: WhatIf) -> dict[str, Any]:
    assert explanation.state is not None
    state, outcome = explanation.state, asked.outcome
    told = effect_text(outcome, explanation.number, state)
    lots = outcome.names.lots
    refusal = outcome.refusal
    return {
        "changes": [write_change(change, state) for change in asked.changes],
        "text": changes_text(asked.changes, state),
        "starts": outcome.starts,
        "at_once": outcome.at_once,
        "headline": told.headline,
        "others": told.others,
        "grants": [
            {"flavor": lots[lot].flavor, "resource": lots[lot].resource, "amount": amount, "pods": pods}
            for lot, amount, pods in outcome.grants
            if 0 <= lot < len(lots)
        ],
        "places": [{"node": node, "gpus": gpus} for node, gpus in outcome.places],
        "reason": refusal.reason.name if refusal is not None else None,
        "why": reason_text(refusal.reason, refusal.evidence, outcome.names) if refusal and refusal.reason else None,
        **_others(outcome, state),
    }
