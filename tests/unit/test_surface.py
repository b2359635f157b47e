"""What clients of the admin API rely on stays: paths, parameters, fields, types, words, statuses, problem codes."""

import copy
import json

import pytest

from service.api.operations import OPERATIONS
from tests.support.surface import FILE, build_surface, find_breaks

PUT = "PUT /v1/batches/{batch_name}/webhook"
LIST = "GET /v1/deliveries"
TODAY = build_surface()


def test_nothing_that_clients_rely_on_has_gone():
    breaks = find_breaks(json.loads(FILE.read_text()), TODAY)
    assert breaks == [], "if this is meant: a line in the changelog, then python -m tests.support.surface"


def test_the_description_is_about_everything():
    assert len(TODAY["calls"]) == len(OPERATIONS)
    put, listed = TODAY["calls"][PUT], TODAY["calls"][LIST]
    assert put["request"]["url"] == {"types": ["string"], "required": True}
    assert put["request"]["retry_schedule"]["types"] == ["array", "null"]
    assert put["answers"]["201"]["secret"]["types"] == ["null", "string"]
    assert "delivered" in listed["answers"]["200"]["data[].state"]["words"]
    assert listed["parameters"]["query state"]["types"] == ["string"]
    assert TODAY["calls"]["GET /v1/batches/{batch_name}"]["answers"]["200"]["counts.total"]["types"] == ["integer"]
    assert {"no_finish", "not_found", "url_missing", "in_flight", "rate_limited"} <= set(TODAY["codes"])


def change(*path, to=None):
    """Today's description with one place changed, or removed."""
    changed = copy.deepcopy(TODAY)
    *way, last = path
    place = changed
    for step in way:
        place = place[step]
    if to is None:
        del place[last]
    else:
        place[last] = to
    return changed


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (change("calls", PUT), f"{PUT}: gone"),
        (change("codes", TODAY["codes"].index("no_finish")), "problem code no_finish: gone"),
        (change("calls", PUT, "request", "settle_seconds"), f"{PUT}: request field settle_seconds: gone"),
        (change("calls", PUT, "request", "batch_id", "required", to=True), f"{PUT}: request field batch_id: is required"),
        (
            change("calls", PUT, "request", "new", to={"types": ["string"], "required": True}),
            f"{PUT}: request field new: is required",
        ),
        (
            change("calls", PUT, "request", "description", "types", to=["string"]),
            f"{PUT}: request field description: null is not taken",
        ),
        (
            change("calls", PUT, "request", "signing", "words", to=["hmac"]),
            f"{PUT}: request field signing: 'ed25519' is not taken",
        ),
        (change("calls", LIST, "parameters", "query job"), f"{LIST}: parameter query job: gone"),
        (change("calls", LIST, "answers", "200", "data[].state"), f"{LIST}: 200, field data[].state: gone"),
        (
            change("calls", LIST, "answers", "200", "data[].generation", "types", to=["string"]),
            f"{LIST}: 200, field data[].generation: was ['integer'], is ['string']",
        ),
        (
            change("calls", LIST, "answers", "200", "data[].generation", "types", to=["integer", "null"]),
            f"{LIST}: 200, field data[].generation: was ['integer'], is ['integer', 'null']",
        ),
        (
            change("calls", LIST, "answers", "200", "data[].created_at", "required", to=False),
            f"{LIST}: 200, field data[].created_at: may be absent",
        ),
        (change("calls", PUT, "answers", "200"), f"{PUT}: status 200: gone"),
        (change("calls", PUT, "media", to=["text/plain"]), f"{PUT}: media type application/json: gone"),
    ],
)  # fmt: skip
def test_what_breaks_clients_is_told(changed, told):
    assert find_breaks(TODAY, changed) == [told]


def test_growing_breaks_nothing():
    grown = copy.deepcopy(TODAY)
    grown["codes"].append("another")
    grown["calls"]["GET /v1/more"] = grown["calls"][LIST]
    put = grown["calls"][PUT]
    put["request"]["more"] = {"types": ["string", "null"]}
    put["request"]["url"]["types"] = ["object", "string"]
    put["request"]["signing"]["words"] = ["ed25519", "hmac", "more"]
    put["answers"]["201"]["more"] = {"types": ["string"], "required": True}
    put["answers"]["201"]["state"]["words"].append("more")
    put["answers"]["202"] = {}
    assert find_breaks(TODAY, grown) == []
