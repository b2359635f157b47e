"""What a machine may lack: such tests are skipped, or fail where TEST_REQUIRE_ALL=1 says that nothing may be lacking."""

import os
import shutil
from collections.abc import Generator

import pytest


def everything_is_required() -> bool:
    return os.environ.get("TEST_REQUIRE_ALL") == "1"


def require_program(name: str) -> str:
    """The path of `name`, or a skip."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and everything_is_required():
        report.outcome = "failed"
        report.longrepr = f"TEST_REQUIRE_ALL=1, but {item.nodeid} was skipped: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and everything_is_required():
        report.outcome = "failed"
        report.longrepr = f"TEST_REQUIRE_ALL=1, but {collector.nodeid} was skipped: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> object:
    return longrepr[2] if isinstance(longrepr, tuple) else longrepr
