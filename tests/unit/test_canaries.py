"""The search for canaries finds them, so that an empty answer means something."""

import base64
from urllib.parse import quote

import pytest

from tests.support.canaries import Canaries


@pytest.mark.parametrize("lead", ["", "a", "ab", "abc"])
def test_a_canary_is_found_in_any_spelling(lead):
    canaries = Canaries()
    text = f"{lead}{canaries['body']} and more"
    for spelled in (text, text.encode().hex(), base64.b64encode(text.encode()).decode(), quote(text), repr(text)):
        assert canaries.find(f"said: {spelled}") == ["body"]
    assert canaries.find(text, ["body"]) == []
    assert canaries.find(base64.b64encode(canaries.key("key")).decode()) == ["key"]
    assert canaries.find("nothing") == []
