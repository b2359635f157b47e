"""Each harness for a moment, from its seeds; `make fuzz` goes on from there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="there is no atheris for this platform")

ROOT = Path(__file__).parents[2]
RUNS = 1000  # each harness makes them in a second or two


@pytest.mark.parametrize("name", ["urls", "answers", "events", "bodies"])
def test_nothing_is_found_in_a_moment(name, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, "60", "-seed=1", f"-runs={RUNS}"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    executed = re.search(r"stat::number_of_executed_units: (\d+)", ended.stderr)
    assert executed
    assert int(executed[1]) >= RUNS
