"""Write every dashboard; with ``--check`` write none and fail when a file differs."""

from __future__ import annotations

import sys
from pathlib import Path

from grafana.build.dashboards import DASHBOARDS
from grafana.build.model import render

DIRECTORY = Path(__file__).parents[1] / "dashboards"


def main(arguments: list[str]) -> int:
    """0, or 1 when ``--check`` found a difference."""
    stale: list[str] = []
    for dashboard in DASHBOARDS:
        path, text = DIRECTORY / f"{dashboard.name}.json", render(dashboard)
        if path.exists() and path.read_bytes() == text:
            continue
        stale.append(path.name)
        if "--check" not in arguments:
            path.write_bytes(text)
    sys.stdout.writelines(f"{name}\n" for name in stale)
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
