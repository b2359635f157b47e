"""Chapter 1, "Which destinations get a message"."""

from itertools import product

import pytest

from service.domain.jobs import Job, Phase
from service.domain.profiles import Profile
from service.domain.routing import JobRoute, Subscriber, route_batch, route_job, route_learned
from service.domain.webhooks import Filters, Scope
from tests.support.topic import NOW, TENANT

ALL = Filters(("*",))
URL = "https://one.example/shot"
NATIVE = Profile("native", {})
SILENT = Profile("silent", {}, frozenset())
NO_EXPIRED = Profile("quiet", {}, notify_expired=False)
OATMILK = Profile("oatmilk", {}, frozenset({Scope.JOB}), types={"receipt": "receipt.processed"})


def make_job(**said):
    return Job(TENANT, "A", generation=1, phase=Phase.SUCCEEDED, ended_at=NOW, **said)


def subscriber(key, filters=Filters(), held=None):  # noqa: B008
    return Subscriber(key, f"wh_{key}", key, filters, held)


def known(*subscribers):
    return {one.webhook_id: one for one in subscribers}


BY_ID, EVERYTHING = subscriber(1), subscriber(2, ALL)
BOTH = known(BY_ID, EVERYTHING)


def route(job, profile=NATIVE, subscribers=BOTH, batch_name=None, *, expired=False):
    return route_job(job, profile, subscribers, batch_name=batch_name, expired=expired)


def keys(webhooks):
    return sorted(webhook.webhook_key for webhook in webhooks)


# --- rule 1: the named destination of a job message ---

NAMED = [
    # url, webhook_id, inherited -> url, named key, missing, two
    (None, None, None, (None, None, None, False)),
    (URL, None, None, (URL, None, None, False)),
    (None, "wh_1", None, (None, 1, None, False)),
    (URL, "wh_1", None, (URL, None, None, True)),
    (None, None, "wh_1", (None, 1, None, False)),
    (URL, None, "wh_1", (URL, None, None, False)),
    (None, "wh_9", None, (None, None, "wh_9", False)),
    (URL, "wh_9", None, (URL, None, None, True)),
    (None, None, "wh_9", (None, None, "wh_9", False)),
    (None, "wh_1", "wh_9", (None, 1, None, False)),
    (None, "wh_9", "wh_1", (None, None, "wh_9", False)),
]


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("profile", [NATIVE, SILENT, NO_EXPIRED, OATMILK])
def test_rule_1_the_one_shot_url_else_the_webhook_id_whatever_filters_scopes_and_status(profile, expired):
    for url, webhook_id, inherited, (to_url, key, missing, two) in NAMED:
        job = make_job(webhook_url=url, webhook_id=webhook_id, inherited_webhook_id=inherited)
        found = route(job, profile, known(BY_ID), expired=expired)
        assert found == JobRoute(to_url, missing, (BY_ID,) if key else (), two)
        assert found.wanted == bool(to_url or key or missing)


def test_rule_1_a_destination_that_is_named_and_subscribes_gets_one_delivery():
    assert keys(route(make_job(webhook_id="wh_2")).webhooks) == [2]


def test_rule_1_an_id_that_is_no_account_webhook_counts_as_unknown():
    assert route(make_job(webhook_id="wh_1"), subscribers={}).missing_id == "wh_1"


# --- rule 2: the batch's own webhook ---


@pytest.mark.parametrize("profile", [NATIVE, SILENT, OATMILK])
def test_rule_2_the_batchs_own_webhook_always_gets_the_batch_message(profile):
    own = subscriber(7)
    assert route_batch(profile, "b", own, []) == (own,)
    assert route_batch(profile, "b", None, []) == ()


def test_rule_2_a_job_message_does_not_go_to_the_batchs_own_webhook():
    assert keys(route(make_job(), batch_name="b").webhooks) == [2]


# --- rule 3: subscribers ---


@pytest.mark.parametrize("named", [{}, {"webhook_url": URL}, {"webhook_id": "wh_1"}, {"webhook_id": "wh_9"}])
def test_rule_3_subscribers_get_the_message_beside_the_named_destination(named):
    assert 2 in keys(route(make_job(**named)).webhooks)


def test_rule_3_no_event_types_is_reached_only_by_id_and_a_star_by_everything():
    assert keys(route(make_job()).webhooks) == [2]
    assert keys(route_batch(NATIVE, "b", None, BOTH.values())) == [2]


def test_rule_3_scopes_of_profile_and_webhook():
    choices = [frozenset(), frozenset({Scope.JOB}), frozenset({Scope.BATCH}), frozenset(Scope)]
    for emitted, wanted in product(choices, repeat=2):
        profile = Profile("p", {}, emitted)
        one = known(subscriber(1, Filters(("*",), wanted)))
        for scope, got in (
            (Scope.JOB, route(make_job(), profile, one).webhooks),
            (Scope.BATCH, route_batch(profile, "b", None, one.values())),
        ):
            assert bool(got) == (scope in emitted and (not wanted or scope in wanted))


@pytest.mark.parametrize(("globs", "name", "expected"), [((), None, True), ((), "b", True), (("*",), None, False)])
def test_rule_3_a_message_without_a_batch_matches_only_an_absent_glob(globs, name, expected):
    one = known(subscriber(1, Filters(("*",), batch_names=globs)))
    assert bool(route(make_job(), subscribers=one, batch_name=name).webhooks) == expected


@pytest.mark.parametrize(("name", "expected"), [("invoices/nov", True), ("invoices", False), ("x", False)])
def test_rule_3_batch_name_globs_and_their_star_matches_a_slash(name, expected):
    one = subscriber(1, Filters(("*",), batch_names=("invoices*nov", "other")))
    assert bool(route(make_job(), subscribers=known(one), batch_name=name).webhooks) == expected
    assert bool(route_batch(NATIVE, name, None, [one])) == expected


TYPES = [
    ("receipt.processed", "receipt", True),
    ("receipt.*", "receipt", True),
    ("extraction.completed", "receipt", False),
    ("extraction.completed", "invoice", True),
    ("extraction.completed", None, True),
    ("receipt.processed", None, False),
]


@pytest.mark.parametrize(("glob", "kind", "expected"), TYPES)
def test_rule_3_the_type_is_by_the_jobs_kind(glob, kind, expected):
    one = known(subscriber(1, Filters((glob,))))
    assert bool(route(make_job(kind=kind), OATMILK, one).webhooks) == expected


def test_rule_3_batches_have_the_default_type():
    profile = Profile("p", {}, types={"receipt": "receipt.processed"}, default_type="work.done")
    one, other = subscriber(1, Filters(("work.done",))), subscriber(2, Filters(("receipt.processed",)))
    assert keys(route_batch(profile, "b", None, [one, other])) == [1]


def test_rule_3_expired_runs_make_no_message_for_subscribers_unless_the_profile_says_so():
    for profile, expired in product((NATIVE, NO_EXPIRED), (True, False)):
        assert route(make_job(), profile, expired=expired).wanted == (profile is NATIVE or not expired)


def test_paused_and_disabled_webhooks_match_too_and_a_message_has_one_delivery_per_webhook():
    paused = subscriber(3, ALL, "paused")
    assert route(make_job(webhook_id="wh_3"), subscribers=known(paused)).webhooks == (paused,)
    assert route_batch(NATIVE, "b", paused, [paused]) == (paused,)


# --- destinations that are learned after the end ---

LEARNED = [
    (("webhook_url",), {"webhook_url": URL}, JobRoute(URL)),
    (("webhook_url",), {"webhook_url": URL, "webhook_id": "wh_1"}, JobRoute(URL, two_destinations=True)),
    (("webhook_id", "webhook_url"), {"webhook_url": URL, "webhook_id": "wh_1"}, JobRoute(URL, two_destinations=True)),
    (("webhook_id",), {"webhook_id": "wh_1"}, JobRoute(webhooks=(BY_ID,))),
    (("webhook_id",), {"webhook_id": "wh_9"}, JobRoute(missing_id="wh_9")),
    (("webhook_id",), {"webhook_url": URL, "webhook_id": "wh_1"}, JobRoute(two_destinations=True)),
]


@pytest.mark.parametrize(("learned", "said", "expected"), LEARNED)
def test_a_destination_learned_after_the_end_is_the_only_one_that_gets_the_message_then(learned, said, expected):
    assert route_learned(make_job(**said), learned, BOTH) == expected


# --- trace 9 ---


def test_trace_9_a_rerun_inherits_the_webhook_id_and_never_the_one_shot_url():
    first = make_job(webhook_id="wh_1", webhook_url=URL)
    rerun = make_job(inherited_webhook_id=first.webhook_id)
    assert route(first).one_shot_url == URL
    assert (route(rerun).one_shot_url, keys(route(rerun, subscribers=known(BY_ID)).webhooks)) == (None, [1])
