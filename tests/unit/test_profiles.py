import copy

import pytest

from service.domain.events import EventType
from service.domain.profiles import LINK_FIELDS, build_profile_set, parse_profile
from service.domain.webhooks import Scope
from service.profiles import load_profiles

SHIPPED = load_profiles()
GOOD = {
    "name": "acme",
    "scopes": ["job"],
    "rerun": "subject",
    "notify_expired": False,
    "default_type": "acme.done",
    "cloudevents_sources": ["https://acme.example/jobs"],
    "status": {"waiting": "queued", "done": "succeeded", "expired": "failed", "draft": "none"},
    "event_types": {"acme.finished": "job.completed"},
    "types": {"receipt": "receipt.processed"},
    "links": {
        "job": "https://acme.example/{tenant_id}/{job_id}",
        "batch": "https://acme.example/b/{batch_name}?g={generation}",
    },
}
TABLE = {
    "native": {word: word for word in ("queued", "processing", "succeeded", "failed", "canceled")},
    "imagetotable": {word: word for word in ("queued", "processing", "succeeded", "failed", "canceled")},
    "oatmilk": {"queued": "queued", "processing": "processing", "completed": "succeeded", "failed": "failed"},
    "datadistillers": {
        "pending_upload": "none",
        "queued_for_processing": "queued",
        "running": "processing",
        "success": "succeeded",
        "failed": "failed",
        "expired": "failed",
        "cancelled": "canceled",
    },
}


def changed(**changes) -> dict:
    return {**copy.deepcopy(GOOD), **changes}


@pytest.mark.parametrize("name", TABLE)
def test_shipped_profiles_map_the_words_of_chapter_1(name):
    profile = SHIPPED.find(name)
    assert dict(profile.status) == TABLE[name]
    assert profile.find_status("no such word") is None
    assert profile.find_status(None) is None
    assert profile.default_type == "extraction.completed"
    assert profile.notify_expired


def test_shipped_profiles_emit_and_inherit_as_chapter_2_says():
    assert {name: {scope.value for scope in SHIPPED.find(name).scopes} for name in TABLE} == {
        "native": {"job", "batch"},
        "imagetotable": {"batch"},
        "oatmilk": {"job"},
        "datadistillers": {"job"},
    }
    assert [name for name in TABLE if SHIPPED.find(name).rerun_by_subject] == ["datadistillers"]
    assert SHIPPED.find("imagetotable").emits(Scope.BATCH)
    assert not SHIPPED.find("imagetotable").emits(Scope.JOB)


def test_oatmilk_is_the_example_of_chapter_2():
    oatmilk = SHIPPED.find("https://oatmilk.example/jobs")
    assert oatmilk is SHIPPED.find("oatmilk")
    assert oatmilk.find_event_type("job.finished") is EventType.JOB_COMPLETED
    assert oatmilk.find_event_type("job.queued") is EventType.JOB_QUEUED
    assert oatmilk.find_event_type("job.vanished") is None
    assert oatmilk.find_message_type(Scope.JOB, "receipt") == "receipt.processed"
    assert oatmilk.find_message_type(Scope.JOB, "invoice") == "extraction.completed"
    assert oatmilk.find_message_type(Scope.JOB, None) == "extraction.completed"
    assert oatmilk.find_message_type(Scope.BATCH, "receipt") == "extraction.completed"
    assert oatmilk.find_link(Scope.JOB, {"job_id": "a/b ü"}) == "https://app.oatmilk.example/jobs/a%2Fb%20%C3%BC"
    assert oatmilk.find_link(Scope.BATCH, {"batch_name": "x"}) is None
    assert SHIPPED.find("nobody") is None


def test_expired_and_quarantined_fill_an_empty_error_code():
    profile = SHIPPED.find("datadistillers")
    assert profile.find_error_code("expired", None) == "expired"
    assert profile.find_error_code("expired", "quarantined") == "expired"
    assert profile.find_error_code("failed", "quarantined") == "quarantined"
    assert profile.find_error_code("failed", "ready") is None
    assert SHIPPED.find("native").find_error_code("expired", None) is None


def test_a_profile_needs_only_a_name_and_words():
    profile = parse_profile({"name": "tiny", "status": {"done": "succeeded"}})
    assert profile.scopes == frozenset(Scope)
    assert not profile.rerun_by_subject
    assert profile.links == {}


def test_f50_a_missing_value_leaves_the_link_out_and_values_are_encoded():
    profile = parse_profile(GOOD)
    fields = {"batch_name": "a&b=../c", "generation": 2}
    assert profile.find_link(Scope.BATCH, fields) == "https://acme.example/b/a%26b%3D..%2Fc?g=2"
    for missing in ({}, {"tenant_id": "t", "job_id": None}, {"tenant_id": "t", "job_id": ""}):
        assert profile.find_link(Scope.JOB, missing) is None


@pytest.mark.parametrize("scope", list(Scope))
def test_f50_every_known_field_is_accepted(scope):
    template = "https://a.example/" + "/".join(f"{{{name}}}" for name in sorted(LINK_FIELDS[scope]))
    profile = parse_profile(changed(links={scope.value: template}))
    assert profile.find_link(scope, dict.fromkeys(LINK_FIELDS[scope], 1)) == "https://a.example/" + "/".join(
        ["1"] * len(LINK_FIELDS[scope])
    )


@pytest.mark.parametrize(
    "template",
    ["https://a.example/{nope}", "https://a.example/{}", "https://a.example/{0}", "https://a.example/{job_id.x}",
     "https://a.example/{job_id[0]}", "https://a.example/{job_id!r}", "https://a.example/{job_id:>9}",
     "https://a.example/{job_id", "https://a.example/job_id}", "https://{tenant_id}.example/", "javascript:alert(1)",
     "https://a.example", "", 5, "https://a.example/" + "x" * 2_048, "https://a@b.example/"],
)  # fmt: skip
def test_f50_bad_templates_are_refused_at_load(template):
    with pytest.raises(ValueError, match=r"links\.job"):
        parse_profile(changed(links={"job": template}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nmae": "x"}, "unknown key 'nmae'"),
        ({"name": None}, "name"),
        ({"name": "Ä"}, "name"),
        ({"status": {}}, "status: needed"),
        ({"status": {"a": "queued"}}, "status: needed"),
        ({"status": []}, "status: a table"),
        ({"status": {"done": "succeeded", "x": "succeded"}}, "status.x: 'succeded' is not one of"),
        ({"status": {"done": "succeeded", "x": ["failed"]}}, "status.x"),
        ({"status": {"done": "succeeded", "": "failed"}}, "status: keys"),
        ({"scopes": ["jobs"]}, "scopes: 'jobs' is not one of job, batch"),
        ({"scopes": "job"}, "scopes: a list"),
        ({"scopes": [1]}, "scopes: each"),
        ({"cloudevents_sources": [""]}, "cloudevents_sources: each"),
        ({"rerun": "job"}, "rerun"),
        ({"notify_expired": "no"}, "notify_expired"),
        ({"default_type": "a..b"}, "default_type"),
        ({"default_type": 5}, "default_type"),
        ({"default_type": "webhook.test"}, "own messages"),
        ({"types": {"a": "webhook.disabled"}}, "types.a"),
        ({"event_types": {"a": "job.exploded"}}, "event_types.a"),
        ({"links": {"page": "https://a.example/"}}, "links: 'page'"),
    ],
)
def test_bad_profiles_are_refused_with_a_clear_line(changes, line):
    with pytest.raises(ValueError, match=line) as refused:
        parse_profile(changed(**changes))
    assert len(str(refused.value).splitlines()) == 1


def test_every_problem_gets_its_line():
    with pytest.raises(ValueError, match="name") as refused:
        parse_profile(changed(name="", rerun="x", default_type=""))
    assert len(str(refused.value).splitlines()) == 3


def test_an_operators_directory_adds_and_overrides(tmp_path):
    (tmp_path / "oatmilk.toml").write_text('name = "oatmilk"\n[status]\nready = "succeeded"\n')
    (tmp_path / "acme.toml").write_text('name = "acme"\n[status]\ndone = "succeeded"\n')
    (tmp_path / "readme.txt").write_text("not a profile")
    profiles = load_profiles([tmp_path])
    assert profiles.find("oatmilk").status == {"ready": "succeeded"}
    assert profiles.find("https://oatmilk.example/jobs") is None
    assert profiles.find("acme") is not None
    assert set(profiles.by_name) == {*TABLE, "acme"}


def test_bad_files_are_all_named(tmp_path):
    (tmp_path / "a.toml").write_text("name = ")
    (tmp_path / "b.toml").write_bytes(b'name = "\xff"')
    (tmp_path / "c.toml").write_text('name = "c"\nx = 1\n')
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(ValueError, match=r"a\.toml") as refused:
        load_profiles([tmp_path])
    assert all(f"{name}.toml: " in str(refused.value) for name in "abcd")


def test_two_profiles_cannot_claim_one_source():
    one = parse_profile(GOOD)
    with pytest.raises(ValueError, match="both claim"):
        build_profile_set([one, parse_profile(changed(name="other"))])
