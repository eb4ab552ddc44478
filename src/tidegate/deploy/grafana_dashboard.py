"""The Grafana dashboard: waits, quota in use, step durations and write outcomes."""

from __future__ import annotations

from typing import Any, NamedTuple

_WIDTH, _HEIGHT = 24, 8
_SOURCE = {"type": "prometheus", "uid": "${source}"}

_USED = (
    "max by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_usage) / "
    "(max by (cluster_queue, flavor, resource) (kueue_cluster_queue_nominal_quota) > 0)"
)


class Panel(NamedTuple):
    """A panel: its queries, each with a legend."""

    title: str
    lines: tuple[tuple[str, str], ...]  # query, legend
    unit: str = "short"
    told: str = ""
    kind: str = "timeseries"
    width: int = 12


def _quantile(metric: str, share: float, by: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le{by}) (rate({metric}_bucket[5m])))"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Health",
        (
            Panel("Leaders", (("sum(tidegate_leader)", ""),), told="Expected: exactly 1.", kind="stat", width=4),
            Panel("Changes of leader", (("max(tidegate_lease_transitions)", ""),), kind="stat", width=4),
            Panel(
                "Policy refused",
                (("max(tidegate_policy_refused)", ""),),
                told="1: the latest policy is wrong, and an older one is in force; the log has the reason.",
                kind="stat",
                width=4,
            ),
            Panel(
                "Oldest unconfirmed start",
                (("max(tidegate_assumed_oldest_seconds)", ""),),
                "s",
                "Decided and not yet seen to run. Alert on this.",
                "stat",
                4,
            ),
            Panel("Nodes", (("max(tidegate_nodes)", ""),), kind="stat", width=4),
            Panel("GPUs free", (('max(tidegate_gpus{state="free"})', ""),), kind="stat", width=4),
        ),
    ),
    (
        "Work",
        (
            Panel(
                "Workloads that wait",
                (("max by (cluster_queue, status) (kueue_pending_workloads)", "{{cluster_queue}} {{status}}"),),
            ),
            Panel(
                "Workloads that hold quota",
                (("max by (cluster_queue) (kueue_admitted_active_workloads)", "{{cluster_queue}}"),),
            ),
            Panel(
                "Wait until admission, p90",
                ((_quantile("kueue_admission_wait_time_seconds", 0.9, ", cluster_queue"), "{{cluster_queue}}"),),
                "s",
            ),
            Panel(
                "Admissions and evictions, a minute",
                (
                    ("60 * sum by (cluster_queue) (rate(kueue_admitted_workloads_total[5m]))", "{{cluster_queue}} in"),
                    (
                        "60 * sum by (cluster_queue, reason) (rate(kueue_evicted_workloads_total[5m]))",
                        "{{cluster_queue}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "Decisions by kind and reason, a minute",
                (("60 * sum by (kind, reason) (rate(tidegate_decisions_total[5m]))", "{{kind}} {{reason}}"),),
                width=24,
            ),
        ),
    ),
    (
        "Quota and GPUs",
        (
            Panel(
                "Quota in use",
                ((_USED, "{{cluster_queue}} {{flavor}} {{resource}}"),),
                "percentunit",
                "Above 100 %: borrowed.",
            ),
            Panel(
                "Weighted share",
                (("max by (cluster_queue) (kueue_cluster_queue_weighted_share)", "{{cluster_queue}}"),),
            ),
            Panel("GPUs", (("max by (state) (tidegate_gpus)", "{{state}}"),)),
            Panel(
                "Preemptions, a minute",
                (
                    (
                        "60 * sum by (preempting_cluster_queue, reason) (rate(kueue_preempted_workloads_total[5m]))",
                        "for {{preempting_cluster_queue}} {{reason}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Performance",
        (
            Panel(
                "Step and cycle, p99",
                (
                    (_quantile("tidegate_step_seconds", 0.99), "step"),
                    (_quantile("tidegate_cycle_seconds", 0.99), "cycle"),
                ),
                "s",
            ),
            Panel("Delay of updates, p99", ((_quantile("tidegate_lag_seconds", 0.99), "lag"),), "s"),
            Panel(
                "Writes, a second",
                (
                    ("sum by (outcome) (rate(tidegate_writes_total[5m]))", "{{outcome}}"),
                    ("max(tidegate_writes_waiting)", "waiting"),
                ),
            ),
            Panel(
                "Watches cut and objects skipped, a minute",
                (
                    (
                        '60 * sum by (resource, what) (rate(tidegate_watch_total{what=~"cuts|skipped"}[5m]))',
                        "{{resource}} {{what}}",
                    ),
                ),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's JSON model."""
    return {
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["tidegate", "gpu"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": _laid_out(),
    }


def _laid_out() -> list[dict[str, Any]]:
    """Lay out the rows, and the panels of each row."""
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS:
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top, left, height = top + 1, 0, _HEIGHT
        for panel in panels:
            height = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
            if left + panel.width > _WIDTH:
                top, left = top + height, 0
            made.append(_panel(len(made) + 1, panel, {"x": left, "y": top, "w": panel.width, "h": height}))
            left += panel.width
        top += height
    return made


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.told,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
            for at, (query, legend) in enumerate(panel.lines)
        ],
    }
