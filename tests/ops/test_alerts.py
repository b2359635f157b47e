"""Alert rules: complete, explained, and tested with promtool. Against a real Prometheus: `test_prometheus`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.prometheus import ROOT, RULE_TESTS, RULES, load_rules, name_of
from tests.support.require import require_program

RUNBOOK = ROOT / "grafana" / "RUNBOOK.md"
ALERTS = {rule["alert"]: rule for rule in load_rules() if "alert" in rule}
PROMISED = {  # chapter 6, "Alerts:"
    "SLO burn, fast": "WebhookdSloBurnFast",
    "SLO burn, slow": "WebhookdSloBurnSlow",
    "oldest due delivery": "WebhookdOldestDueDelivery",
    "consumer stuck": "WebhookdConsumerStuck",
    "consumer behind": "WebhookdConsumerBehind",
    "dead letters growing": "WebhookdDeadLetters",
    "webhooks being disabled": "WebhookdWebhooksDisabled",
    "leases expiring": "WebhookdLeasesExpiring",
    "outcomes unrecorded": "WebhookdOutcomesUnrecorded",
    "database unreachable": "WebhookdDatabaseUnreachable",
    "partitions running out": "WebhookdPartitionsRunningOut",
    "clock skew": "WebhookdClockSkew",
    "requeue without generation": "WebhookdRequeueWithoutGeneration",
    "records missed": "WebhookdRecordsMissed",
    "internal errors": "WebhookdInternalErrors",
    "own faults": "WebhookdOwnFaults",
    "deliveries exhausted": "WebhookdDeliveriesExhausted",
}
CHECKS = [
    check
    for path in RULE_TESTS
    for test in yaml.safe_load(path.read_text())["tests"]
    for check in test["alert_rule_test"]
]
BESIDE = {"WebhookdNoLeader", "WebhookdInstanceDown", "WebhookdGone"}


def promtool(*arguments: object) -> None:
    tool = require_program("promtool")
    ended = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_of_the_specification_is_there():
    assert set(ALERTS) == set(PROMISED.values()) | BESIDE


def test_promtool_accepts_the_rules():
    promtool("check", "rules", "--lint-fatal", *RULES)


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_promtool_unit_tests(path: Path):
    promtool("test", "rules", path)


def test_every_rule_file_has_unit_tests():
    assert [path.name for path in RULE_TESTS] == [path.name for path in RULES]


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_seen_to_fire_and_not_to_fire(alert):
    checks = [check for check in CHECKS if check["alertname"] == alert]
    assert any(check.get("exp_alerts") for check in checks)
    assert any(not check.get("exp_alerts") for check in checks)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_it_means_and_where_to_look(alert):
    rule = ALERTS[alert]
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"grafana/RUNBOOK.md#{alert.lower()}"
    assert "$labels.namespace" in rule["annotations"]["summary"] or "$labels.instance" in rule["annotations"]["summary"]


def test_the_runbook_has_a_section_for_every_alert_and_no_other():
    sections = dict(re.findall(r"^## (Webhookd\w+)\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(), re.DOTALL | re.MULTILINE))
    assert set(sections) == set(ALERTS)
    for alert, text in sections.items():
        assert f"**{ALERTS[alert]['labels']['severity']}**" in text, alert
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in text, f"{alert}: {part}"


def test_the_runbook_names_nothing_that_does_not_exist():
    text = RUNBOOK.read_text()
    known = (ROOT / "service" / "telemetry" / "metrics.py").read_text()
    known += (ROOT / "service" / "telemetry" / "queue.py").read_text()
    for name in set(re.findall(r"`webhookd_(\w+?)(?:_total)?(?:\{[^`]*)?`", text)):
        assert f'"{name}"' in known or f"webhookd_{name}" in known, name
    settings = (ROOT / "service" / "SETTINGS.md").read_text()
    for name in set(re.findall(r"`(WEBHOOKD_\w+)`", text)):
        assert name in settings, name


def test_what_a_process_met_before_its_first_scrape_counts():
    counting = {alert: rule["expr"] for alert, rule in ALERTS.items() if rule["expr"].count("increase(") == 1}
    found = 0
    for alert, expr in counting.items():
        if counted := re.match(r"sum by \([^)]+\) \(increase\((\S+)\[(\d+)([mh])\]\)\) > 0", expr):
            seconds = int(counted[2]) * {"m": 60, "h": 3600}[counted[3]]
            assert f"process_start_time_seconds > time() - {seconds})" in expr, alert
            assert expr.count(counted[1]) == 2, alert
            found += 1
    assert found == 8


def test_rules_are_grouped_by_what_every_target_has():
    for rule in load_rules():
        assert re.search(r"by \(namespace|on \(namespace|webhookd:", rule["expr"]), name_of(rule)
