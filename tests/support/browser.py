"""A real browser without a window: Chromium, driven over WebDriver.

Belongs here: starting it so that it talks to loopback only, and what it noticed. Does not belong here: any page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.require import require_program

PATIENCE = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@dataclass(frozen=True)
class Browser:
    """One window, and what went on in it."""

    driver: Chrome

    def open(self, url: str) -> None:
        self.driver.get(url)

    def find(self, selector: str) -> WebElement:
        """The first element, as soon as there is one."""
        found = WebDriverWait(self.driver, PATIENCE).until(
            lambda driver: driver.find_elements(By.CSS_SELECTOR, selector)
        )
        return found[0]

    def list(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns; WebDriver injects it from outside the page's policy."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> None:
        """Until a piece of JavaScript returns something true."""
        WebDriverWait(self.driver, PATIENCE).until(lambda driver: driver.execute_script(script))

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Until a condition holds."""
        WebDriverWait(self.driver, PATIENCE).until(lambda _: condition())

    def list_messages(self) -> list[str]:
        """What the console was told since the last call: errors and warnings, of the browser and of scripts."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def list_requests(self) -> list[str]:
        """The URLs that a network was asked for since the last call; the browser's own pages are no network."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = (event["params"] for event in events if event["method"] == "Network.requestWillBeSent")
        urls = (request["request"]["url"] for request in sent)
        return [url for url in urls if not url.startswith(("chrome:", "chrome-untrusted:", "about:", "data:"))]


@contextmanager
def browse(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty ``profile`` folder; skipped where there is none."""
    options = ChromeOptions()
    options.binary_location = require_program("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(require_program("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
