"""Debian's Prometheus as a process, and what a test has to know of its language.

Belongs here: starting it, asking it, reading expressions, dashboards and rules. Does not belong here: what is expected.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout
from prometheus_client.parser import text_string_to_metric_families

from service.tools.embedded import LAUNCHER
from tests.support.ports import find_free_port
from tests.support.require import require_program
from tests.support.service import eventually

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
RULES = sorted((ROOT / "grafana" / "alerts").glob("*.yaml"))
RULE_TESTS = sorted((ROOT / "grafana" / "alerts" / "tests").glob("*.yaml"))

TARGET_LABELS = frozenset({"namespace", "job", "instance"})
OURS = re.compile(r"^(?:webhookd_|process_|python_)")

Sample = tuple[dict[str, str], float]


# --- Dashboards and rules -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """An expression, where it stands, and the name that a series of it gets."""

    place: str
    expr: str
    legend: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.expr}"


def load_dashboards() -> dict[str, Any]:
    return {path.stem: orjson.loads(path.read_bytes()) for path in DASHBOARDS}


def list_panels(dashboard: Mapping[str, Any]) -> list[Any]:
    """Panels that show something, rows left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def list_shown() -> list[Shown]:
    """Every expression of every panel."""
    return [
        Shown(f"{name} / {panel['title']}", target["expr"], target["legendFormat"])
        for name, dashboard in load_dashboards().items()
        for panel in list_panels(dashboard)
        for target in panel.get("targets", ())
    ]


def load_rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def name_of(rule: Mapping[str, Any]) -> str:
    return rule.get("alert") or rule["record"]


def fill_in(expr: str, window: str, **variables: str) -> str:
    """The expression as Grafana sends it."""
    values = {"namespace": ".*", "job": ".+", **variables, "__rate_interval": window, "__range": window}
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr, expr
    return expr


# --- PromQL -------------------------------------------------------------------------------------------------------

_SELECTOR = re.compile(r"\b(ALERTS|up|[a-z]+[a-z0-9]*[_:][a-z0-9_:]*)\b(?!\s*\()(\{[^}]*\})?")
_MATCHER = re.compile(r"\b(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
_LABEL_LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_GROUPED = re.compile(r"\bby\s*\(([^)]*)\)")
_KEPT_BY = re.compile(r"\band\s+on\s*\(([^)]*)\)\s*\(((?:[^()]|\([^()]*\))*)\)")
_COMPARED = re.compile(r"\s(==|!=|>=|<=|>|<)\s(?!bool)")


def find_selectors(expr: str) -> dict[str, set[str]]:
    """Metric names in an expression, each with the labels that its matchers name, and the groupings that it stands in.

    Of what stands in brackets behind `and on (…)` nothing is left in the result: it is asked for the labels in `on` alone.
    """
    found: dict[str, set[str]] = {}
    for on, condition in _KEPT_BY.findall(expr):
        _note_selectors(found, condition, _split_labels(on))
    kept = _KEPT_BY.sub(" ", expr)
    _note_selectors(found, kept, set())
    for grouping in _GROUPED.finditer(kept):
        _note_selectors(found, _find_grouped(kept, grouping.end()), _split_labels(grouping[1]))
    return found


def _note_selectors(found: dict[str, set[str]], expr: str, labels: set[str]) -> None:
    for name, braces in _SELECTOR.findall(_LABEL_LISTS.sub(" ", expr)):
        found.setdefault(name, set()).update(labels, (label for label, _, _ in _MATCHER.findall(braces)))


def _split_labels(listed: str) -> set[str]:
    return {label.strip() for label in listed.split(",") if label.strip()}


def _find_grouped(expr: str, start: int) -> str:
    """What a grouping that ends at `start` groups: the brackets behind it; all of the expression if there are none."""
    depth = 0
    for place in range(start, len(expr)):
        depth += {"(": 1, ")": -1}.get(expr[place], 0)
        if depth == 0 and not expr[place].isspace():
            return expr[start : place + 1] if expr[place] == ")" else expr
    return expr


def find_matchers(expr: str, label: str) -> set[str]:
    """Values that an expression wants a label to have, or not to have."""
    return {value for name, op, value in _MATCHER.findall(expr) if name == label and op in {"=", "!="}}


def list_groupings(expr: str) -> list[set[str]]:
    """The labels of every `by`."""
    return [{label.strip() for label in found.split(",")} - {"", "le"} for found in _GROUPED.findall(expr)]


def list_sides(expr: str) -> list[str]:
    """The parts of a rule's expression that must give data although nothing is wrong.

    A comparison filters: as `bool` it tells 0 instead of nothing. Of `unless`, which is nothing when all is well, both
    sides are told.
    """
    told = _COMPARED.sub(r" \1 bool ", " ".join(expr.split()))
    return [part for side in _split(told, "or") for part in _split(side, "unless")]


def _split(expr: str, word: str) -> list[str]:
    """The operands of `word` at the outermost level, or one level down when all is in one pair of brackets."""
    parts, depth, start = [], 0, 0
    for found in re.finditer(rf"\(|\)|\b{word}\b(?:\s+on\s*\([^)]*\))?", expr):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found[0] not in {"(", ")"} and depth == 0:
            parts.append(expr[start : found.start()])
            start = found.end()
        elif found[0] not in {"(", ")"}:
            continue
    parts = [part.strip() for part in (*parts, expr[start:])]
    if len(parts) == 1 and parts[0].startswith("(") and _closes_at_end(parts[0]) and word in parts[0]:
        return _split(parts[0][1:-1].strip(), word)
    return parts


def _closes_at_end(expr: str) -> bool:
    depth = 0
    for position, character in enumerate(expr):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return position == len(expr) - 1
    return False


def speed_up(text: str, factor: int) -> str:
    """A rule file on a clock that runs `factor` times faster: every duration in it is shorter."""

    def shorten(found: re.Match[str]) -> str:
        seconds = int(found[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[3]]
        return f"{found[1]}{max(1, math.ceil(seconds * 1000 / factor))}ms"

    return re.sub(r"(\[|\bfor: |\boffset |\binterval: )(\d+)([smhd])\b", shorten, text)


# --- The process --------------------------------------------------------------------------------------------------


class Prometheus:
    """One server that scrapes `targets` (job name to host:port) and evaluates rule files; it ends with its thread."""

    def __init__(self, directory: Path, targets: Mapping[str, str], rules: Sequence[Path], *, every: str = "500ms"):
        self._program = require_program("prometheus")
        self._directory = directory
        self._config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [target], "labels": {"namespace": "test"}}]}
                for job, target in targets.items()
            ],
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{find_free_port()}"

    def launch(self) -> Self:
        """Start it, on a thread that outlives it."""
        config, data, log = (self._directory / name for name in ("prometheus.yml", "data", "prometheus.log"))
        config.write_text(yaml.safe_dump(self._config))
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), str(signal.SIGKILL.value), "0", "0")
        command = (
            *(self._program, f"--config.file={config}", f"--storage.tsdb.path={data}"),
            *(f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"),
        )
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*launcher, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return self

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    async def wait_until_ready(self) -> None:
        async def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "prometheus.log").read_text()
            with suppress(ClientError, TimeoutError):
                return bool(await self.ask("up"))
            return False

        await eventually(answers, every=0.1)

    async def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        async with (
            ClientSession(timeout=ClientTimeout(10)) as http,
            http.get(f"{self.url}/api/v1/{path}", params=query) as answer,
        ):
            document = await answer.json()
        assert document["status"] == "success", (query, document)
        return document["data"]

    async def ask(self, expr: str) -> list[Sample]:
        """What an expression is now."""
        data = await self.get("query", query=expr)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    async def ask_range(self, expr: str, seconds: float, step: float) -> list[tuple[dict[str, str], list[Any]]]:
        """What it was in the last `seconds`."""
        end = (await self.ask("time()"))[0][1]
        data = await self.get("query_range", query=expr, start=str(end - seconds), end=str(end), step=str(step))
        return [(each["metric"], [(float(at), float(v)) for at, v in each["values"]]) for each in data["result"]]

    async def list_firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = (await self.get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def real_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Those that say something."""
    return [(labels, value) for labels, value in samples if not math.isnan(value)]


def iterate_metrics(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Names and labels of an exposition, as Prometheus stores them."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels
