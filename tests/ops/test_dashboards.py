"""Dashboards: made from `grafana/build`, fit for any Grafana, about metrics that exist. Against a real Prometheus:
`test_prometheus`."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from itertools import combinations

import pytest

from service.telemetry import QueueState, Telemetry
from tests.support.prometheus import (
    DASHBOARDS,
    OURS,
    ROOT,
    TARGET_LABELS,
    find_matchers,
    find_selectors,
    iterate_metrics,
    list_panels,
    list_shown,
    load_dashboards,
    load_rules,
    name_of,
)

NAMES = ("delivery-engine", "ingest-and-batches", "overview", "webhook-health")


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Every series name on /metrics, with its labels."""
    telemetry = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=(timedelta(seconds=5),))
    telemetry.publish_queue(QueueState())
    telemetry.records_behind("extraction.jobs", 0, 0)
    found: dict[str, set[str]] = {}
    for name, labels in iterate_metrics(telemetry.render()[0].decode()):
        found.setdefault(name, set()).update(labels)
    return found


@pytest.fixture(scope="module")
def values() -> dict[tuple[str, str], set[str]]:
    """The values that a label of a metric has."""
    telemetry = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=(timedelta(seconds=5),))
    telemetry.publish_queue(QueueState())
    found: dict[tuple[str, str], set[str]] = {}
    for name, labels in iterate_metrics(telemetry.render()[0].decode()):
        for label, value in labels.items():
            found.setdefault((name, label), set()).add(value)
    return found


def test_the_files_are_what_the_code_makes():
    check = subprocess.run(
        [sys.executable, "-m", "grafana.build", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, f"run `python -m grafana.build`: {check.stdout}{check.stderr}"
    assert tuple(path.stem for path in DASHBOARDS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_f75_any_grafana_can_load_it(name):
    text = (ROOT / "grafana" / "dashboards" / f"{name}.json").read_text()
    assert "__inputs" not in text
    assert "DS_PROMETHEUS" not in text
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {"${datasource}", f"webhookd-{name}"}
    dashboard = load_dashboards()[name]
    assert "id" not in dashboard
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "namespace", "job"]
    assert [(link["type"], link["tags"]) for link in dashboard["links"]] == [("dashboards", ["webhookd"])]
    assert dashboard["tags"] == ["webhookd"]


def test_links_lead_to_dashboards_that_exist():
    uids = {dashboard["uid"] for dashboard in load_dashboards().values()}
    targets = {
        re.match(r"/d/([\w-]+)\?", link["url"])[1]
        for dashboard in load_dashboards().values()
        for panel in list_panels(dashboard)
        for link in panel.get("links", ())
    }
    assert targets <= uids
    assert targets >= uids - {"webhookd-overview"}


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows(name):
    panels = list_panels(load_dashboards()[name])
    titles = [panel["title"] for panel in panels]
    assert len(titles) == len(set(titles))
    for panel in panels:
        if panel["type"] == "text":
            continue
        assert len(panel["title"]) <= 6.5 * panel["gridPos"]["w"], f"{panel['title']} is cut"
        assert len(panel["description"]) > 15, panel["title"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"]
        assert defaults["noValue"]
        assert (
            panel["type"] != "stat" or len(defaults["thresholds"]["steps"]) > 1 or panel["title"] == "Enabled webhooks"
        )
        assert all("{{" in target["legendFormat"] or target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_covers_another(name):
    places = [panel["gridPos"] for panel in load_dashboards()[name]["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_every_expression_is_about_what_the_reader_chose():
    for shown in list_shown():
        for braces in re.findall(r"\b(?:webhookd|process|python)_\w+(\{[^}]*\})?", shown.expr):
            assert 'namespace=~"$namespace", job=~"$job"' in braces, str(shown)


def test_every_metric_and_label_of_an_expression_exists(exposed):
    recorded = {rule["record"] for rule in load_rules() if "record" in rule}
    places = [(str(shown), shown.expr) for shown in list_shown()] + [(name_of(r), r["expr"]) for r in load_rules()]
    for place, expr in places:
        for name, labels in find_selectors(expr).items():
            if OURS.match(name):
                assert name in exposed, place
                assert labels <= exposed[name] | TARGET_LABELS, place
            else:
                assert name in recorded | {"ALERTS", "up"}, place


def test_every_label_value_of_an_expression_exists(values):
    """A misspelt word selects nothing, and looks like good news."""
    places = [(str(shown), shown.expr) for shown in list_shown()] + [(name_of(r), r["expr"]) for r in load_rules()]
    for place, expr in places:
        for name in find_selectors(expr):
            for label in ("outcome", "state", "kind", "le", "scope"):
                if (name, label) in values:
                    assert find_matchers(expr, label) <= values[name, label], place


def test_every_metric_of_ours_is_shown(exposed):
    shown = {name for each in list_shown() for name in find_selectors(each.expr)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed if name.startswith("webhookd_")}
    assert families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == set()


def test_legends_name_labels_that_the_expression_keeps():
    for shown in list_shown():
        named = set(re.findall(r"\{\{(\w+)\}\}", shown.legend))
        kept = {label.strip() for found in re.findall(r"\bby \(([^)]*)\)", shown.expr) for label in found.split(",")}
        assert named <= kept, str(shown)
