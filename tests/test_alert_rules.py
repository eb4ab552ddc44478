"""Alerts: a real Prometheus takes them, they fire when they should, and each has metrics that exist and a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from prometheus_server import program
from tidegate.deploy.alert_rules import ALERTS, alert_groups
from tidegate.live.metrics import Metrics

_RUNBOOKS = (Path(__file__).parent.parent / "docs" / "runbooks.md").read_text()

#: Series at which each alert fires, one sample a minute.
_FIRING = {
    "TidegateNobodyLeads": {'tidegate_leader{pod="a"}': "0x30", 'tidegate_leader{pod="b"}': "0x30"},
    "TidegateWriteUnconfirmed": {"tidegate_assumed_oldest_seconds": "700+60x30"},
    "TidegateWritesFail": {'tidegate_writes_total{outcome="failed"}': "0+60x30"},
    "TidegateObjectsRefused": {"tidegate_refused_objects": "2x30"},
    "TidegateAdmissionBypassed": {"tidegate_bypassed_objects": "1x30"},
    "TidegateGatesLeftOver": {"tidegate_gates_left_over": "3x30"},
    "TidegateWatchBehind": {'tidegate_watch_age_seconds{resource="pods"}': "200+60x30"},
    "TidegateJournalDegraded": {"tidegate_journal_degraded": "1x30"},
    "TidegatePolicyRefused": {"tidegate_policy_refused": "1x30"},
}

#: A replica that leads and is well, and one that stands by.
_WELL = {
    'tidegate_leader{pod="a"}': "1x30",
    'tidegate_leader{pod="b"}': "0x30",
    "tidegate_assumed_oldest_seconds": "30x30",
    'tidegate_writes_total{outcome="failed"}': "3x30",
    "tidegate_refused_objects": "0x30",
    "tidegate_bypassed_objects": "0x30",
    "tidegate_gates_left_over": "0x30",
    'tidegate_watch_age_seconds{resource="pods"}': "20x30",
    "tidegate_journal_degraded": "0x30",
    "tidegate_policy_refused": "0x30",
}


def promtool(folder, *arguments):
    command = [program("promtool"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": alert_groups()}))
    return tmp_path


def test_prometheus_takes_the_rules(rules):
    done = promtool(rules, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_an_alert_fires_when_it_should_and_not_when_all_is_well(rules, alert):
    case = {"alertname": alert, "eval_time": "29m"}
    tests = [
        {"interval": "1m", "input_series": series(_WELL | _FIRING[alert]), "promql_expr_test": [firing(alert, 1)]},
        {"interval": "1m", "input_series": series(_WELL), "alert_rule_test": [case], "promql_expr_test": []},
    ]
    (rules / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    done = promtool(rules, "test", "rules", "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def series(values):
    return [{"series": name, "values": text} for name, text in values.items()]


def firing(alert, count):
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {"expr": expr, "eval_time": "29m", "exp_samples": [{"labels": "{}", "value": count}]}


def test_every_metric_of_the_rules_exists():
    there = {sample.name for metric in Metrics().registry.collect() for sample in metric.samples}
    there |= {metric.name for metric in Metrics().registry.collect()}
    there |= {f"{metric.name}_{end}" for metric in Metrics().registry.collect() for end in ("total", "bucket")}
    used = {name for alert in ALERTS for name in re.findall(r"\b(?:tidegate|kueue)_\w+", alert.expr)}
    assert used
    assert used <= there


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_every_alert_has_a_runbook(alert):
    section = re.search(rf"^## {alert}\n(.*?)(?=^## |\Z)", _RUNBOOKS, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert all(word in section[1] for word in ("**Means.**", "**See.**", "**Do.**"))


def test_every_runbook_is_of_an_alert():
    assert set(re.findall(r"^## (\w+)", _RUNBOOKS, re.MULTILINE)) == {alert.name for alert in ALERTS}
