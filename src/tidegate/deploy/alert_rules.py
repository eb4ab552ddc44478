"""Alert rules for a PrometheusRule; each alert has a section in docs/runbooks.md."""

from __future__ import annotations

from typing import Any, NamedTuple

#: The page with the runbooks.
RUNBOOKS = "docs/runbooks.md"

_SLOW = "histogram_quantile(0.99, sum by (le) (rate(tidegate_lag_seconds_bucket[5m]))) > 5"


class Alert(NamedTuple):
    """An alert rule."""

    name: str
    expr: str
    lasts: str  # the `for` of the rule
    severity: str
    summary: str


ALERTS = (
    Alert(
        "TidegateNobodyLeads",
        "absent(tidegate_leader) or sum(tidegate_leader) == 0",
        "1m",
        "critical",
        "No replica of Tidegate leads: nothing is admitted, bound or preempted. What runs goes on.",
    ),
    Alert(
        "TidegateWriteUnconfirmed",
        "max(tidegate_assumed_oldest_seconds) > 600",
        "5m",
        "warning",
        "Work that Tidegate started {{ $value | humanizeDuration }} ago does not run.",
    ),
    Alert(
        "TidegateWritesFail",
        'sum(rate(tidegate_writes_total{outcome="failed"}[10m])) > 0.1',
        "15m",
        "warning",
        "Writes to the API server fail, {{ $value | humanize }} a second.",
    ),
    Alert(
        "TidegateObjectsRefused",
        "max(tidegate_refused_objects) > 0",
        "15m",
        "warning",
        "Objects that ask for what Tidegate does not support, and wait: {{ $value }}.",
    ),
    Alert(
        "TidegateAdmissionBypassed",
        "max(tidegate_bypassed_objects) > 0",
        "15m",
        "warning",
        "Objects that name a queue and run without being admitted, at no quota: {{ $value }}.",
    ),
    Alert(
        "TidegateGatesLeftOver",
        "max(tidegate_gates_left_over) > 0",
        "15m",
        "warning",
        "Pods with Tidegate's scheduling gate that belong to no workload, so that it is never removed: {{ $value }}.",
    ),
    Alert(
        "TidegateWatchBehind",
        f"max by (resource) (tidegate_watch_age_seconds) > 180 or {_SLOW}",
        "5m",
        "critical",
        "Tidegate sees the cluster {{ $value | humanizeDuration }} late (resource: {{ $labels.resource }}).",
    ),
    Alert(
        "TidegateJournalDegraded",
        "max(tidegate_journal_degraded) == 1",
        "5m",
        "warning",
        "The journal cannot be written. Scheduling goes on; its history has a gap.",
    ),
    Alert(
        "TidegatePolicyRefused",
        "max(tidegate_policy_refused) == 1",
        "5m",
        "warning",
        "The latest policy cannot be used; an older one is in force.",
    ),
)


def alert_groups() -> list[dict[str, Any]]:
    """The rule groups as Prometheus reads them."""
    return [{"name": "tidegate", "rules": [_rule(alert) for alert in ALERTS]}]


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": f"{RUNBOOKS}#{alert.name.lower()}"},
    }
