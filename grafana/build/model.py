"""What a dashboard is made of, and how it becomes Grafana's JSON.

In an expression, ``…`` between braces stands for the namespace and job that the reader has chosen.
Belongs here: layout, defaults, variables. Does not belong here: any panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

Json = dict[str, Any]
Kind = Literal["timeseries", "state-timeline", "stat", "heatmap", "table", "text"]

CHOSEN = 'namespace=~"$namespace", job=~"$job"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "webhookd"
WIDTH = 24

GREEN, ORANGE, RED, YELLOW, BLUE, PURPLE, GREY = "green", "orange", "red", "yellow", "blue", "purple", "#8e8e8e"
COLORS: Mapping[str, Mapping[str, str]] = {  # one colour a word, on every panel; by the label whose word it is
    "state": {
        "delivered": GREEN,
        "failed": RED,
        "superseded": BLUE,
        "canceled": GREY,
        "enabled": GREEN,
        "paused": YELLOW,
        "disabled": RED,
    },
    "outcome": {
        "applied": GREEN,
        "duplicate": BLUE,
        "stale": GREY,
        "conflict": YELLOW,
        "dead_letter": RED,
        "delivered": GREEN,
        "http_error": ORANGE,
        "timeout": RED,
        "reset": "dark-red",
        "connect_error": PURPLE,
        "connect_timeout": "dark-purple",
        "dns_error": BLUE,
        "tls_error": YELLOW,
        "protocol_error": "dark-orange",
        "redirect": "light-blue",
        "blocked_address": "dark-blue",
        "url_refused": "dark-yellow",
        "gone": GREY,
        "tombstone": "light-blue",
        "expired": "dark-orange",
        "requeue_without_generation": PURPLE,
    },
    "status_class": {"2xx": GREEN, "3xx": BLUE, "4xx": ORANGE, "5xx": RED, "none": PURPLE},
    "scope": {"batch": BLUE, "job": PURPLE, "none": GREY},
    "renotified": {"false": BLUE, "true": PURPLE},
    "": {
        "p50": GREEN,
        "p95": YELLOW,
        "p99": ORANGE,
        "p99.9": RED,
        "over 1h": RED,
        "over 6h": ORANGE,
        "waiting": BLUE,
        "held": YELLOW,
        "messages made": PURPLE,
        "claimed": PURPLE,
    },
}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; ``legend`` names its series, by ``{{label}}`` where it has several."""

    expr: str
    legend: str

    @property
    def full(self) -> str:
        """The expression that Grafana sends, variables in it."""
        return self.expr.replace("…", CHOSEN)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``thresholds`` are (from which value, colour), the first from None; ``ahead`` says where to look next.

    A panel of kind ``text`` has a description and no query. ``line`` draws the thresholds into a graph.
    """

    title: str
    description: str
    queries: Sequence[Query] = ()
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 8
    thresholds: Sequence[tuple[float | None, str]] = ()
    decimals: int | None = None
    stacked: bool = False
    logarithmic: bool = False
    signed: bool = False
    maximum: float | None = None
    nothing: str = "no data"
    ahead: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and what is below it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; ``name`` is the file's and, after ``webhookd-``, the uid's."""

    name: str
    title: str
    description: str
    rows: Sequence[Row] = field(default_factory=tuple)


def quantiles(metric: str, *shares: float, by: str = "") -> tuple[Query, ...]:
    """The quantiles of a histogram, or with ``by`` one of them per value of a label."""
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket{{…}}[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({share:g}, {rate})", f"{{{{{by}}}}}" if by else f"p{share * 100:g}")
        for share in shares
    )


def per_minute(metric: str, by: str, where: str = "") -> Query:
    """How often a minute, by a label."""
    return Query(f"60 * sum by ({by}) (rate({metric}{{…{where}}}[$__rate_interval]))", f"{{{{{by}}}}}")


def total_per_minute(metric: str, legend: str) -> Query:
    """How often a minute, all labels together."""
    return Query(f"60 * sum(rate({metric}{{…}}[$__rate_interval]))", legend)


def buckets(metric: str) -> Query:
    """What a heat map is drawn from: how much fell into each bucket of a histogram."""
    return Query(f"sum by (le) (increase({metric}_bucket{{…}}[$__rate_interval]))", "{{le}}")


def tile(title: str, description: str, queries: Sequence[Query], *, height: int = 4, **more: Any) -> Panel:
    """One number, six of them in a row."""
    return Panel(title, description, queries, kind="stat", width=4, height=height, **more)


def render(dashboard: Dashboard) -> bytes:
    """The file."""
    return orjson.dumps(build(dashboard), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def build(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana reads it, for import by hand, provisioning and the sidecar alike."""
    return {
        "uid": f"webhookd-{dashboard.name}",
        "title": f"webhookd / {dashboard.title}",
        "description": dashboard.description,
        "tags": [TAG],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [_links()],
        "templating": {"list": _variables()},
        "annotations": {"list": [_releases()]},
        "panels": list(_lay_out(dashboard.rows)),
    }


def _links() -> Json:
    return {
        "title": "webhookd",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _variables() -> list[Json]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
        # All is `.*`: outside Kubernetes nothing has a namespace.
        _variable("namespace", "Namespace", "label_values(webhookd_build_info, namespace)", ".*"),
        # All is the list of ours: process metrics have no name that tells them from others'.
        _variable("job", "Job", 'label_values(webhookd_build_info{namespace=~"$namespace"}, job)', None),
    ]


def _variable(name: str, label: str, query: str, everything: str | None) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": everything,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _releases() -> Json:
    """A mark where another version starts."""
    return {
        "name": "Starts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": BLUE,
        "expr": f"changes(process_start_time_seconds{{{CHOSEN}}}[$__rate_interval]) > 0",
        "titleFormat": "{{instance}} started",
        "step": "60s",
    }


def _lay_out(rows: Sequence[Row]) -> Iterator[Json]:
    """Left to right, a row of panels as high as its first."""
    number = top = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, **_panel(panel), "gridPos": place}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel) -> Json:
    common = {"type": panel.kind, "title": panel.title, "description": panel.description}
    if panel.kind == "text":
        return {**common, "options": {"mode": "markdown", "content": panel.description}, "description": ""}
    return {
        **common,
        "datasource": DATASOURCE,
        "targets": [_target(panel, number, query) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _colors(panel) + _hiding(panel)},
        "options": _OPTIONS[panel.kind],
        **({"transformations": _TABLE} if panel.kind == "table" else {}),
        **({"links": [_link(panel.ahead)]} if panel.ahead else {}),
    }


def _target(panel: Panel, number: int, query: Query) -> Json:
    instant = panel.kind in {"stat", "table"}
    return {
        "refId": "ABCDEFGH"[number],
        "datasource": DATASOURCE,
        "expr": query.full,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
        "format": {"heatmap": "heatmap", "table": "table"}.get(panel.kind, "time_series"),
    }


def _defaults(panel: Panel) -> Json:
    steps = panel.thresholds or ((None, GREEN),)
    return {
        "unit": panel.unit,
        **({"min": 0} if panel.kind == "timeseries" and not (panel.logarithmic or panel.signed) else {}),
        **({} if panel.maximum is None else {"max": panel.maximum}),
        **({} if panel.decimals is None else {"decimals": panel.decimals}),
        "noValue": panel.nothing,
        "color": {"mode": "thresholds" if panel.kind in {"stat", "state-timeline"} else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]},
        **({"custom": _drawing(panel)} if panel.kind == "timeseries" else {}),
    }


def _drawing(panel: Panel) -> Json:
    return {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1 if panel.stacked else 2,
        "fillOpacity": 60 if panel.stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"},
        "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
    }


def _colors(panel: Panel) -> list[Json]:
    if panel.kind != "timeseries":
        return []
    legends = {query.legend for query in panel.queries}
    words = {word: color for word, color in COLORS[""].items() if word in legends}
    for label in COLORS:
        words |= COLORS[label] if f"{{{{{label}}}}}" in legends else {}
    return [
        {
            "matcher": {"id": "byName", "options": word},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for word, color in words.items()
    ]


def _hiding(panel: Panel) -> list[Json]:
    """Words that do not occur are left out of the legend: most outcomes never do."""
    if panel.kind != "timeseries" or not any("{{" in query.legend for query in panel.queries) or panel.signed:
        return []
    return [
        {
            "matcher": {"id": "byValue", "options": {"reducer": "max", "op": "lte", "value": 0}},
            "properties": [
                {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": False}},
            ],
        }
    ]


def _link(name: str) -> Json:
    return {
        "title": f"More: {name.replace('-', ' ')}",
        "url": f"/d/webhookd-{name}?${{__url_time_range}}&${{__all_variables}}",
        "targetBlank": False,
    }


_OPTIONS: Mapping[Kind, Json] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "center",
        "textMode": "auto",
        "wideLayout": True,
    },
    "state-timeline": {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "le"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    },
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
}
_TABLE = [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True, "__name__": True}}}]
