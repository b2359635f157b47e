"""The page at ``/docs`` in a real browser: it opens, shows every call, and asks nobody else for anything."""

import asyncio

import pytest

from service.api.operations import OPERATIONS
from tests.support.api import running_api
from tests.support.browser import browse

VISIBLE = "return [...document.querySelectorAll('details')].filter((d) => d.checkVisibility()).map((d) => d.id)"


@pytest.fixture
async def base(database):
    async with running_api(database) as api:
        yield api.base


async def test_the_page_can_be_read_from_top_to_bottom(base, tmp_path):
    await asyncio.to_thread(read, base, tmp_path)


def read(base, profile):
    with browse(profile) as browser:
        browser.open(f"{base}/docs")
        opens_every_call(browser)
        filters_calls(browser)
        follows_links(browser, base)
        obeys_its_policy(browser, base)
        requests = browser.list_requests()
        assert {f"{base}/docs", f"{base}/openapi.json", f"{base}/docs/docs.js", f"{base}/docs/docs.css"} <= set(
            requests
        )
        assert [url for url in requests if not url.startswith(base + "/")] == []


def opens_every_call(browser):
    assert browser.find("#version").text.startswith("version ")
    browser.find("#batch_webhook_put > summary").click()
    put = browser.find("#batch_webhook_put > div").text
    assert "batch_name *" in put and '"url": "https://receiver.example/hook"' in put and "Idempotency-Key" in put
    browser.run("document.querySelectorAll('details:not([open]) > summary').forEach((each) => each.click())")
    browser.wait("return !document.querySelector('details:not(:has(> div))')")
    texts = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('details')].map((d) => [d.id, d.innerText]))"
    )
    assert set(texts) == {operation.name for operation in OPERATIONS}
    for operation in OPERATIONS:
        shown = texts[operation.name]
        assert all(str(status) in shown for status in operation.statuses), operation.name
        assert "undefined" not in shown and "[object" not in shown, operation.name
        if operation.body is not None:
            assert all(name in shown for name in operation.body.model_fields), operation.name
    assert browser.list_messages() == []


def filters_calls(browser):
    field = browser.find("#filter")
    field.send_keys("Rotate")
    shown = browser.run(VISIBLE)
    assert set(shown) == {"batch_webhook_rotate_secret", "webhook_rotate_secret", "signing_keys_rotate"}
    assert [each.text.lower() for each in browser.list("h2") if each.is_displayed()] == [
        "batches",
        "webhooks",
        "signing",
    ]
    browser.run("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", field)
    assert len(browser.run(VISIBLE)) == len(OPERATIONS)


def follows_links(browser, base):
    browser.open("about:blank")
    browser.open(f"{base}/docs#key_create")
    assert browser.find("#key_create[open] > div").is_displayed()
    assert len(browser.list("details[open]")) == 1
    browser.find("#key_create a[href='#key_create']")
    browser.run("location.hash = '#audit_list'")
    assert browser.find("#audit_list[open] > div").is_displayed()
    browser.find("a[href='openapi.json']").click()
    browser.wait("return document.contentType === 'application/json'")
    assert browser.list_messages() == []


def obeys_its_policy(browser, base):
    """What somebody might smuggle in neither runs nor loads: the browser says so."""
    browser.open(f"{base}/docs")
    browser.find("details")
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.hacked=1>')")
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    asked = "return fetch('https://elsewhere.example/').then(() => 'let out', () => 'kept in')"
    assert browser.run(asked) == "kept in"
    assert not browser.run("return window.hacked")
    told = []

    def told_of_both():
        told.extend(browser.list_messages())  # each is given once
        return all(any(policy in message for message in told) for policy in ("script-src", "connect-src"))

    browser.wait_for(told_of_both)
