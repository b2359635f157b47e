"""The bill of materials names exactly what the image runs, with the hashes that are locked."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.require import require_program

LOCK = ROOT / "requirements" / "image.txt"


@pytest.fixture(scope="module", name="sbom")
def _sbom(tmp_path_factory):
    make, file = require_program("make"), tmp_path_factory.mktemp("sbom") / "sbom.json"
    command = [
        make,
        "-o",
        ".venv/.installed",
        "sbom",
        "SBOM_ARGS=--no-validate",
        f"SBOM={file}",
        f"BIN={Path(sys.executable).parent}",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(file.read_text())


def read_lock() -> dict[str, tuple[str, set[str]]]:
    """Version and SHA-256 hashes by name."""
    locked = {}
    for entry in re.split(r"\n(?=[a-z0-9])", LOCK.read_text()):
        name, version = re.match(r"([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", entry).groups()
        locked[name] = version, set(re.findall(r"sha256:([0-9a-f]{64})", entry))
    return locked


def test_it_has_every_locked_package_and_no_other(sbom):
    locked = read_lock()
    assert len(locked) > 30
    assert {each["name"]: each["version"] for each in sbom["components"]} == {
        name: version for name, (version, _) in locked.items()
    }


def test_each_package_can_be_looked_up_and_checked(sbom):
    locked = read_lock()
    for component in sbom["components"]:
        name = component["name"]
        assert component["purl"].startswith(f"pkg:pypi/{name}@{component['version']}")
        references = json.dumps(component.get("externalReferences", [])) + json.dumps(component.get("hashes", []))
        assert locked[name][1] <= set(re.findall(r"[0-9a-f]{64}", references)), name


def test_it_says_what_it_is_the_bill_of(sbom):
    assert sbom["bomFormat"] == "CycloneDX"
    about = sbom["metadata"]["component"]
    assert (about["name"], about["type"]) == ("webhookd", "application")
    assert "version" in about
    assert not re.search(r"/home/|/root/|/tmp/", json.dumps(sbom))
