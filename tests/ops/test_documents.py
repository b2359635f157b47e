"""The documents say what is so."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from standardwebhooks import Webhook

from service import __version__
from service.config import Settings, render_reference
from service.config.loading import SECRETS
from service.tools.demo_receiver import COLUMNS, Receipt
from tests.support.documents import PAGE, ROOT, render

SECURITY = ROOT / "SECURITY.md"
README = (ROOT / "README.md").read_text()
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FIELD_CASES = 75  # failures of other senders, F1 to F75
TEXT = '{"type":"extraction.completed","data":{"name":"Grüße 🧾"}}'


def test_the_architecture_page_has_every_module_and_todays_diagrams():
    assert render(PAGE.read_text()) == PAGE.read_text(), "run: python -m tests.support.documents"


def test_the_settings_reference_is_todays():
    assert (ROOT / "service" / "SETTINGS.md").read_text() == render_reference(), "run: python -m service.config"


def test_every_relative_link_leads_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", SECURITY, PAGE):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_what_the_security_page_names_exists():
    text = SECURITY.read_text()
    settings = set(re.findall(r"`(WEBHOOKD_[A-Z_0-9]+)`", text))
    known = {f"WEBHOOKD_{name.upper()}" for name in Settings.model_fields}
    assert len(settings) > 15
    assert settings <= known | {f"WEBHOOKD_{name.upper()}_FILE" for name in SECRETS}
    files = set(re.findall(r"`((?:service/)?[\w/]+\.py)`", text))
    assert files
    assert {file for file in files if not list((ROOT / "service").rglob(Path(file).name))} == set()
    assert set(re.findall(r"`make (\w+)`", text)) <= set(
        re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    values = yaml.safe_load((ROOT / "helm" / "webhookd" / "values.yaml").read_text())
    assert "enabled" in values["networkPolicy"]
    assert f"| {__version__.rpartition('.')[0]}.x | yes |" in text


def test_every_command_in_the_readme_exists():
    named = set(re.findall(r"^webhookd (\w+).* # ", README, flags=re.MULTILINE))
    shown = subprocess.run(
        [sys.executable, "-m", "service", "--help"], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert named
    assert {name for name in named if not re.search(rf"^\s+{name}\s", shown, flags=re.MULTILINE)} == set()


def test_the_readmes_demo_ends_as_the_demo_does():
    shown = README.partition("`make demo` ends like this:")[2].split("```")[1].splitlines()
    assert tuple(shown[1].split()) == COLUMNS
    receipts = [
        Receipt(
            f"msg_{first}{'0' * 24}", attempt, b"", True, answered, {"batch": {"generation": finish}, "counts": counts}
        )
        for first, attempt, finish, counts, answered in (
            ("0b6f1c8d", "1", 1, {"succeeded": 2, "failed": 1}, 503),
            ("0b6f1c8d", "2", 1, {"succeeded": 2, "failed": 1}, 200),
            ("5d7e92b1", "1", 2, {"succeeded": 3, "failed": 0}, 200),
        )
    ]
    rows = [re.split(r" {2,}", line.strip()) for line in shown if line.startswith(" msg_")]
    assert rows == [list(receipt.cells()) for receipt in receipts]
    assert f"[green]{shown[-1]}[/]" in (ROOT / "service" / "tools" / "demo.py").read_text()


def test_the_readme_is_as_long_as_a_reader_bears():
    assert 150 <= len(README.splitlines()) <= 220


@pytest.fixture(name="verify")
def _verify():
    """The ten lines of the README."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    return names["verify"]


def _headers(secret: str, at: float) -> dict[str, str]:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(int(at), UTC)
    signature = Webhook(secret).sign("msg_1", moment, TEXT)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at)), "webhook-signature": f"v1,AAAA {signature}"}


def test_the_readmes_ten_lines_accept_what_the_published_library_signs(verify):
    verify(SECRET, _headers(SECRET, time.time()), TEXT.encode())


def test_the_readmes_ten_lines_refuse_other_bytes_other_secrets_and_old_messages(verify):
    with pytest.raises(ValueError, match="not ours"):
        verify(SECRET, _headers(SECRET, time.time()), TEXT.encode() + b" ")
    with pytest.raises(ValueError, match="not ours"):
        verify("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", _headers(SECRET, time.time()), TEXT.encode())
    with pytest.raises(ValueError, match="too old"):
        verify(SECRET, _headers(SECRET, time.time() - 301), TEXT.encode())


def test_the_readmes_event_is_a_valid_one():
    from service.ingest.parsing import Parser
    from service.profiles import load_profiles

    (event,) = re.findall(r"```json\n(.*?)```", README, flags=re.DOTALL)
    read = Parser(load_profiles()).parse(event.encode())
    assert read.event_id == "evt_01JDT3QH5V0M4V4S8Q1B9W3N7K"
    assert read.anomalies == ()


def test_the_changelog_speaks_of_this_version():
    from service import __version__

    assert f"## {__version__}" in Path(ROOT / "CHANGELOG.md").read_text()


def test_every_field_case_has_a_test_that_bears_its_number():
    names = (
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    )
    numbers = {int(number) for name in names for number in re.findall(r"(?<=_f)\d\d(?=_)", name)}
    assert set(range(1, FIELD_CASES + 1)) - numbers == set()
