"""Draws a dashboard from a real Prometheus' answers, roughly as Grafana would, for people to look at before it ships.

`python -m tests.support.render overview /tmp/overview.svg` starts PostgreSQL, a broker, the service and Prometheus, lets a
few minutes of good and bad happen, and draws. `rsvg-convert` (Debian: librsvg2-bin) turns the SVG into a PNG.
Belongs here: drawing and that scenario. Does not belong here: anything that CI needs.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from html import escape
from pathlib import Path
from typing import Any

from service.tools.embedded import embedded_broker, embedded_postgres
from tests.e2e.story import LATER, Tenant, completed, create_topic, new_tenant, opened_topic
from tests.support.postgres import create_database, migrate
from tests.support.prometheus import RULES, Prometheus, fill_in, load_dashboards
from tests.support.receiving import Answer, Receiver
from tests.support.service import Service, build_settings

COLUMN, LINE, GAP = 60, 38, 6
PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a")
COLORS = {
    "green": "#73bf69",
    "orange": "#ff9830",
    "red": "#f2495c",
    "yellow": "#fade2a",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "transparent": "none",
}
Points = Sequence[tuple[float, float]]


def color(name: str) -> str:
    shade, _, plain = name.rpartition("-")
    return COLORS.get(name) or _mix(COLORS.get(plain, name), shade)


def _mix(code: str, shade: str) -> str:
    """`dark-red` and the like."""
    parts = [int(code[at : at + 2], 16) for at in (1, 3, 5)] if code.startswith("#") else [128, 128, 128]
    share, towards = {"dark": (0.55, 0), "light": (0.6, 255)}.get(shade, (1.0, 0))
    return "#" + "".join(f"{round(part * share + towards * (1 - share)):02x}" for part in parts)


# --- Numbers as Grafana writes them -------------------------------------------------------------------------------


def show(value: float, unit: str, decimals: int | None = None) -> str:
    if math.isnan(value):
        return "NaN"
    if unit == "percentunit":
        return f"{value * 100:.{2 if decimals is None else decimals}f}%".replace(".00%", "%")
    if unit == "s":
        return _seconds(value)
    scaled, mark = next(
        ((value / size, m) for size, m in ((1e9, "G"), (1e6, "M"), (1e3, "K")) if abs(value) >= size), (value, "")
    )
    number = f"{scaled:.{decimals}f}" if decimals is not None else f"{scaled:.3g}"
    return (
        number + (f" {mark}" if mark else "") + unit.removeprefix("suffix:")
        if unit.startswith("suffix:")
        else number + mark
    )


def _seconds(value: float) -> str:
    for size, mark in ((86_400, "day"), (3600, "hour"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3g} {mark}"
    return "0 s" if value == 0 else f"{value * 1e6:.3g} µs"


# --- Shapes -------------------------------------------------------------------------------------------------------


def text(
    x: float, y: float, words: str, size: int = 12, fill: str = "#ccccdc", anchor: str = "start", **more: str
) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}"/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{dashed}/>'


def path(points: Iterable[tuple[float, float]], stroke: str, fill: str = "none") -> str:
    corners = " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<path d="M{corners}" stroke="{stroke}" stroke-width="1.6" fill="{fill}" fill-opacity="0.6"/>'
        if corners
        else ""
    )


# --- Panels -------------------------------------------------------------------------------------------------------


class Canvas:
    """One dashboard, drawn from the last `seconds`."""

    def __init__(self, prometheus: Prometheus, seconds: float, window: str) -> None:
        self._prometheus = prometheus
        self._seconds = seconds
        self._window = window
        self._step = max(1.0, seconds / 300)

    async def draw(self, dashboard: Mapping[str, Any]) -> str:
        panels = dashboard["panels"]
        height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * LINE + 50
        parts = [box(0, 0, 24 * COLUMN, height, "#111217"), text(12, 28, dashboard["title"], 18, "#ffffff")]
        for panel in panels:
            place = panel["gridPos"]
            x, y = place["x"] * COLUMN + GAP / 2, place["y"] * LINE + 44
            parts.append(await self._panel(panel, x, y, place["w"] * COLUMN - GAP, place["h"] * LINE - GAP))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * COLUMN}" height="{height}" '
            f'font-family="DejaVu Sans, Inter, sans-serif">{"".join(parts)}</svg>'
        )

    async def _panel(self, panel: Mapping[str, Any], x: float, y: float, width: float, height: float) -> str:
        if panel["type"] == "row":
            return text(x + 4, y + 22, f"▾ {panel['title']}", 15, "#ffffff")
        frame = box(x, y, width, height, "#181b1f")
        title = text(x + 10, y + 20, panel["title"], 13, "#ffffff", font_weight="bold")
        if panel["type"] == "stat":
            return await self._stat(panel, x, y, width, height)
        if panel["type"] == "state-timeline":
            return frame + title + await self._timeline(panel, x, y, width)
        if panel["type"] == "timeseries":
            return frame + title + await self._graph(panel, x, y, width, height)
        return frame + title + text(x + width / 2, y + height / 2, f"({panel['type']})", 12, "#777", "middle")

    def _expr(self, target: Mapping[str, Any]) -> str:
        return fill_in(target["expr"], self._window)

    async def _stat(self, panel: Mapping[str, Any], x: float, y: float, width: float, height: float) -> str:
        defaults = panel["fieldConfig"]["defaults"]
        samples = await self._prometheus.ask(self._expr(panel["targets"][0]))
        value = samples[0][1] if samples else math.nan
        steps = defaults["thresholds"]["steps"]
        shade = next((s["color"] for s in reversed(steps) if s["value"] is None or value >= s["value"]), "transparent")
        words = defaults["noValue"] if math.isnan(value) else show(value, defaults["unit"], defaults.get("decimals"))
        fill = "#2b2e33" if math.isnan(value) else color(shade)
        return (
            box(x, y, width, height, fill)
            + text(
                x + 10, y + 20, panel["title"], 13, "#000000" if not math.isnan(value) else "#fff", font_weight="bold"
            )
            + text(
                x + width / 2, y + height / 2 + 22, words, 38, "#000000" if not math.isnan(value) else "#ccc", "middle"
            )
        )

    async def _timeline(self, panel: Mapping[str, Any], x: float, y: float, width: float) -> str:
        end = (await self._prometheus.ask("time()"))[0][1]
        parts, left, scale = [], x + 290, (width - 300) / self._seconds
        for row, (name, points, _) in enumerate(await self._series(panel)):
            top = y + 34 + row * 24
            parts.append(text(left - 8, top + 14, name, 12, anchor="end"))
            parts += [
                box(left + (at - end + self._seconds) * scale, top, self._step * scale + 1, 18, "#f2495c")
                for at, _ in points
            ]
        return "".join(parts) or text(x + width / 2, y + 60, panel["fieldConfig"]["defaults"]["noValue"], 14, "#888")

    async def _graph(self, panel: Mapping[str, Any], x: float, y: float, width: float, height: float) -> str:
        defaults = panel["fieldConfig"]["defaults"]
        found = await self._series(panel)
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        plot = Plot(found, defaults, stacked=stacked, area=(x + 64, y + 34, width - 80, height - 90))
        end = (await self._prometheus.ask("time()"))[0][1]
        plot.times = (end - self._seconds, end)
        hides = any(each["matcher"]["id"] == "byValue" for each in panel["fieldConfig"]["overrides"])
        names = [(name, shade) for name, points, shade in found if not hides or any(value for _, value in points)]
        return plot.draw() + legend(names, x + 12, y + height - 30, width - 20)

    async def _series(self, panel: Mapping[str, Any]) -> list[tuple[str, Points, str]]:
        fixed = {
            override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
            for override in panel["fieldConfig"]["overrides"]
            if override["matcher"]["id"] == "byName"
        }
        found: list[tuple[str, Points, str]] = []
        for target in panel["targets"]:
            for labels, points in await self._prometheus.ask_range(self._expr(target), self._seconds, self._step):
                name = target["legendFormat"]
                for label, value in labels.items():
                    name = name.replace(f"{{{{{label}}}}}", value)
                shade = color(fixed.get(name, PALETTE[len(found) % len(PALETTE)]))
                found.append((name, [(at, v) for at, v in points if math.isfinite(v)], shade))
        return found


class Plot:
    """Axes and lines of one graph."""

    def __init__(
        self,
        series: Sequence[tuple[str, Points, str]],
        defaults: Mapping[str, Any],
        *,
        stacked: bool,
        area: tuple[float, float, float, float],
    ) -> None:
        self._series = series
        self._defaults = defaults
        self._stacked = stacked
        self._x, self._y, self._width, self._height = area
        self._log = defaults["custom"]["scaleDistribution"]["type"] == "log"
        self.times = (0.0, 1.0)
        self._low, self._high = self._range()

    def _range(self) -> tuple[float, float]:
        if self._stacked:
            sums: dict[float, float] = {}
            for _, points, _ in self._series:
                for at, value in points:
                    sums[at] = sums.get(at, 0.0) + value
            values = list(sums.values())
        else:
            values = [value for _, points, _ in self._series for _, value in points]
        if self._log:
            positive = [value for value in values if value > 0] or [1.0]
            return 10 ** math.floor(math.log10(min(positive))), 10 ** math.ceil(math.log10(max(positive)) + 1e-9)
        high = self._defaults.get("max") or max(values, default=1.0) * 1.1 or 1.0
        return self._defaults.get("min", min(0.0, *values) if values else 0.0), high

    def _place(self, at: float, value: float) -> tuple[float, float]:
        start, end = self.times
        share = (
            (math.log10(max(value, self._low)) - math.log10(self._low))
            / (math.log10(self._high) - math.log10(self._low))
            if self._log
            else (value - self._low) / (self._high - self._low or 1.0)
        )
        return self._x + self._width * (at - start) / (end - start), self._y + self._height * (1 - min(1.0, share))

    def draw(self) -> str:
        parts = [self._axis(tick) for tick in self._ticks()]
        if not any(points for _, points, _ in self._series):
            words = self._defaults["noValue"]
            return "".join(parts) + text(
                self._x + self._width / 2, self._y + self._height / 2, words, 14, "#888", "middle"
            )
        for step in self._defaults["thresholds"]["steps"][1:]:
            if self._low < step["value"] <= self._high:
                _, y = self._place(self.times[0], step["value"])
                parts.append(line(self._x, y, self._x + self._width, y, color(step["color"]), "6 4"))
        below: dict[float, float] = {}
        for _, points, shade in self._series:
            if not self._stacked:
                parts.append(path([self._place(at, value) for at, value in points], shade))
                continue
            lower = [self._place(at, below.get(at, 0.0)) for at, _ in points]
            below |= {at: below.get(at, 0.0) + value for at, value in points}
            parts.append(path([*(self._place(at, below[at]) for at, _ in points), *reversed(lower)], shade, shade))
        return "".join(parts)

    def _ticks(self) -> list[float]:
        if self._log:
            low, high = round(math.log10(self._low)), round(math.log10(self._high))
            return [10.0**power for power in range(low, high + 1)]
        return [self._low + (self._high - self._low) * share / 4 for share in range(5)]

    def _axis(self, value: float) -> str:
        _, y = self._place(self.times[0], value)
        words = show(value, self._defaults["unit"])
        return line(self._x, y, self._x + self._width, y, "#2c3235") + text(
            self._x - 6, y + 4, words, 11, "#9fa7b3", "end"
        )


def legend(names: Sequence[tuple[str, str]], x: float, y: float, width: float) -> str:
    parts, left, top = [], x, y
    for name, shade in names:
        if left + 30 + 7 * len(name) > x + width:
            left, top = x, top + 18
        parts.append(box(left, top - 8, 12, 4, shade) + text(left + 17, top, name, 11))
        left += 34 + 7 * len(name)
    return "".join(parts)


# --- A few minutes of a service's life ----------------------------------------------------------------------------


async def live(tenant: Tenant, seconds: float, broken: Receiver) -> None:
    """Steady jobs for receivers that are well, slow, flaky and, in the middle third, down."""
    async with AsyncExitStack() as stack:
        well, slow, flaky = [await stack.enter_async_context(Receiver()) for _ in range(3)]
        slow.otherwise = Answer(200, delay=0.4)
        hooks = [
            (await tenant.register(receiver, retry_schedule=schedule))["webhook_id"]
            for receiver, schedule in ((well, [5]), (slow, [5]), (flaky, [2, 4, 8]), (broken, [3, 5]))
        ]
        for second in range(round(seconds)):
            broken.otherwise = 503 if seconds / 3 < second < 2 * seconds / 3 else 200
            flaky.answer(*([500] if second % 3 == 0 else []))
            await tenant.produce(
                *(completed(f"job-{second}-{n}", webhook_id=hooks[n % 4]) for n in range(12 + second % 9)),
                completed(f"batch-{second}", batch={"name": f"b-{second // 7}"}),
            )
            await asyncio.sleep(1)


async def main(name: str, target: Path, seconds: float) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = await stack.enter_async_context(embedded_postgres())
        broker = await stack.enter_async_context(embedded_broker())
        database = await create_database(postgres, "render")
        await migrate(database)
        await create_topic(broker, "render", 2)
        settings = build_settings(
            database, kafka_bootstrap_servers=broker, kafka_topics="render", kafka_group_id="render"
        )
        service = await stack.enter_async_context(Service(settings, directory / "service.log"))
        prometheus = Prometheus(directory, {"webhookd": service.ops_url.removeprefix("http://")}, RULES, every="1s")
        stack.callback(prometheus.launch().end)
        await prometheus.wait_until_ready()
        topic = await stack.enter_async_context(opened_topic(broker, "render", 2))
        tenant = await stack.enter_async_context(new_tenant(service, topic))
        broken = await stack.enter_async_context(Receiver())
        paused = await tenant.register(broken, retry_schedule=LATER)
        await tenant.api.post(f"/v1/webhooks/{paused['webhook_id']}/pause")
        await tenant.produce(*(completed(f"held-{n}", webhook_id=paused["webhook_id"]) for n in range(7)))
        await live(tenant, seconds, broken)
        await tenant.topic._producer.send_and_wait(tenant.topic.name, b"{")
        await asyncio.sleep(6)
        canvas = Canvas(prometheus, seconds, "15s")
        for each in load_dashboards() if name == "all" else [name]:
            path = target.with_name(f"{each}.svg") if name == "all" else target
            path.write_text(await canvas.draw(load_dashboards()[each]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float((sys.argv[3:] or ["150"])[0])))
