import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.deliveries import State
from service.domain.registrations import (
    BatchFacts,
    KeyPairChange,
    Newest,
    PutRefused,
    PutResult,
    Registered,
    WebhookRequest,
    Why,
    plan_patch,
    plan_put,
)
from service.domain.signing import Secret
from service.domain.webhooks import (
    ENABLED,
    FAILING,
    GONE,
    OPERATIONAL_TYPES,
    PAUSED,
    WEBHOOK_TABLE,
    Filters,
    Scope,
    Signing,
    WebhookDefaults,
    WebhookEvent,
    WebhookSettings,
    WebhookState,
    build_webhook_diagram,
    describe_standing,
    fill_defaults,
    find_move,
    find_setting_problems,
    matches,
    matches_glob,
)

NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
DEFAULTS = WebhookDefaults(retry_schedule=(5, 300), timeout_seconds=15, max_in_flight=10)
ONE = WebhookSettings(url="https://a.example/hook")
TWO = replace(ONE, url="https://b.example/hook")
KEY = b"k" * 32
STORED = Registered(ONE, ENABLED, (Secret(KEY, NOW - timedelta(days=1)),))
UNDELIVERED = BatchFacts(finished=True)
DELIVERED = BatchFacts(finished=True, delivered=True)


def put(settings=ONE, existing=None, batch=BatchFacts(), secret=None):  # noqa: B008
    return plan_put(existing, WebhookRequest(settings, secret), batch, DEFAULTS, NOW)


# --- the registration rules of chapter 1, row by row ---


def test_put_before_the_finish_registers():
    plan = put()
    assert (plan.result, plan.standing, plan.newest, plan.why) == (
        PutResult.CREATED,
        ENABLED,
        Newest.NOTHING,
        Why.NO_FINISH,
    )
    assert plan.new_revision
    assert not plan.delivery_queued


def test_put_after_an_undelivered_finish_queues_it_once():
    plan = put(batch=UNDELIVERED)
    assert (plan.newest, plan.why) == (Newest.CREATE, Why.UNDELIVERED_FINISH)
    assert plan.delivery_queued


def test_put_after_a_finish_that_a_past_registration_delivered_queues_nothing():
    assert put(batch=DELIVERED).why is Why.ALREADY_DELIVERED
    assert not put(batch=DELIVERED).delivery_queued


def test_notify_if_done_false_opts_out():
    plan = put(replace(ONE, notify_if_done=False), batch=UNDELIVERED)
    assert (plan.newest, plan.why) == (Newest.NOTHING, Why.OPTED_OUT)
    later = put(ONE, Registered(plan.settings), UNDELIVERED)
    assert (later.result, later.newest) == (PutResult.UPDATED, Newest.CREATE)


def test_trace_5_the_same_put_again_does_nothing():
    for batch in (BatchFacts(), UNDELIVERED, DELIVERED, replace(UNDELIVERED, newest_state=State.PENDING)):
        for secret in (None, KEY):
            plan = put(ONE, STORED, batch, secret)
            assert plan.result is PutResult.UNCHANGED
            assert plan.why is Why.NOTHING_CHANGED
            assert not any([plan.new_revision, plan.clear_health, plan.restart_waiting, plan.release])


def test_puts_are_compared_after_defaults():
    spelled = replace(ONE, timeout_seconds=15, max_in_flight=10, retry_schedule=(5, 300))
    plan = put(spelled, STORED)
    assert plan.result is PutResult.UNCHANGED
    assert plan.settings is STORED.settings
    assert put(replace(spelled, timeout_seconds=16), STORED).result is PutResult.UPDATED
    first = replace(ONE, custom_headers=(("A", "1"), ("B", "2")))
    assert put(replace(first, custom_headers=(("B", "2"), ("A", "1"))), Registered(first)).result is PutResult.UNCHANGED


@pytest.mark.parametrize("existing", [Registered(ONE), STORED])
def test_a_secret_that_is_not_live_is_refused(existing):
    assert put(ONE, existing, secret=b"x" * 32) is PutRefused.SECRET_NOT_LIVE
    assert plan_patch(existing, WebhookRequest(TWO, b"x" * 32), DEFAULTS, NOW) is PutRefused.SECRET_NOT_LIVE


def test_a_batch_that_ended_takes_no_put():
    assert put(batch=BatchFacts(ended=True)) is PutRefused.BATCH_ENDED
    assert put(ONE, STORED, BatchFacts(ended=True)) is PutRefused.BATCH_ENDED


@pytest.mark.parametrize("state", [*State, None])
def test_another_setting_restarts_nothing(state):
    plan = put(replace(ONE, description="new"), STORED, replace(UNDELIVERED, newest_state=state))
    assert plan.result is PutResult.UPDATED
    assert plan.new_revision
    assert not any([plan.clear_health, plan.restart_waiting, plan.release])
    assert plan.newest is (Newest.CREATE if state is None else Newest.NOTHING)


@pytest.mark.parametrize("state", [*State, None])
def test_trace_6_another_url_clears_health_and_moves_what_waits(state):
    plan = put(TWO, STORED, replace(UNDELIVERED, newest_state=state))
    assert plan.result is PutResult.URL_CHANGED
    assert plan.new_revision
    assert plan.clear_health
    assert plan.restart_waiting
    assert plan.settings is TWO
    expected = {None: Newest.CREATE, State.FAILED: Newest.REQUEUE}.get(state, Newest.NOTHING)
    assert plan.newest is expected


def test_another_url_after_delivery_sends_nothing():
    assert put(TWO, STORED, replace(DELIVERED, newest_state=State.DELIVERED)).why is Why.ALREADY_DELIVERED
    assert put(replace(TWO, notify_if_done=False), STORED, UNDELIVERED).why is Why.OPTED_OUT


@pytest.mark.parametrize("standing", [GONE, FAILING])
@pytest.mark.parametrize("settings", [ONE, TWO, replace(ONE, description="new")])
def test_any_put_enables_a_disabled_webhook_with_a_trial(standing, settings):
    plan = put(settings, replace(STORED, standing=standing))
    assert plan.standing == ENABLED
    assert plan.release
    assert plan.clear_health
    assert plan.new_revision


def test_a_put_leaves_a_pause_alone():
    plan = put(TWO, replace(STORED, standing=PAUSED))
    assert plan.standing == PAUSED
    assert not plan.release


@pytest.mark.parametrize("standing", [ENABLED, PAUSED, GONE, FAILING])
def test_patch_has_the_same_url_rules_but_enables_nothing(standing):
    existing = replace(STORED, standing=standing)
    moved = plan_patch(existing, WebhookRequest(TWO, KEY), DEFAULTS, NOW)
    assert (moved.result, moved.newest, moved.standing) == (PutResult.URL_CHANGED, Newest.REQUEUE, standing)
    assert moved.clear_health
    assert moved.restart_waiting
    assert not moved.release
    updated = plan_patch(existing, WebhookRequest(replace(ONE, filters=Filters(("*",)))), DEFAULTS, NOW)
    assert (updated.result, updated.newest) == (PutResult.UPDATED, Newest.NOTHING)
    same = plan_patch(existing, WebhookRequest(ONE), DEFAULTS, NOW)
    assert (same.result, same.new_revision) == (PutResult.UNCHANGED, False)


def test_switching_the_signature_adds_or_drops_the_pair():
    both = replace(ONE, signing=Signing.ED25519)
    assert put(ONE).key_pair is KeyPairChange.KEEP
    assert put(both).key_pair is KeyPairChange.ADD
    assert put(both, STORED).key_pair is KeyPairChange.ADD
    assert put(both, Registered(both)).key_pair is KeyPairChange.KEEP
    assert put(ONE, Registered(both)).key_pair is KeyPairChange.DROP


# --- states ---


@pytest.mark.parametrize(("standing", "event"), [*product([ENABLED, PAUSED, GONE, FAILING], WebhookEvent)])
def test_every_event_in_every_state(standing, event):
    move = find_move(standing, event)
    expected = {
        ("enabled", "pause"): PAUSED,
        ("enabled", "gone"): GONE,
        ("enabled", "failing"): FAILING,
        ("paused", "enable"): ENABLED,
        ("disabled", "enable"): ENABLED,
        ("disabled", "put"): ENABLED,
        ("disabled", "pause"): PAUSED,
    }.get((standing.state, event))
    assert (None if move is None else move.to) == expected
    if move:
        assert move.trial == (move.to == ENABLED)
        assert (move.to.reason is not None) == (move.to.state is WebhookState.DISABLED)


def test_every_standing_has_a_sentence():
    for standing in (ENABLED, PAUSED, GONE, FAILING):
        assert describe_standing(standing, NOW).endswith("Since 2026-11-30T09:00:00Z.")
    assert "410" in describe_standing(GONE, NOW)


def test_the_diagram_shows_the_table():
    diagram = build_webhook_diagram()
    assert diagram.startswith("stateDiagram-v2\n")
    assert diagram.count("-->") == len(WEBHOOK_TABLE) + 1


# --- bounds of chapter 4 ---

GOOD = replace(
    ONE,
    url="https://a.example/" + "x" * 2_030,
    description="é" * 2_048,
    custom_headers=tuple((f"X-{number}", "v") for number in range(20)),
    settle_seconds=3_600,
    retry_schedule=(1,) * 30,
    timeout_seconds=30,
    max_in_flight=100,
    rate_limit=10_000,
    filters=Filters(("*",) * 20, frozenset(Scope), ("x" * 255,)),
)


def test_bounds_are_inclusive():
    assert find_setting_problems(GOOD) == ()
    assert find_setting_problems(ONE) == ()
    low = replace(ONE, settle_seconds=0, retry_schedule=(1,), timeout_seconds=1, max_in_flight=1, rate_limit=1)
    assert find_setting_problems(low) == ()


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"url": "https://a.example/" + "x" * 2_031}, "url"),
        ({"url": "https://a.example/\0"}, "url"),
        ({"description": "é" * 2_049}, "description"),
        ({"description": "\ud800"}, "description"),
        ({"custom_headers": tuple((f"X-{number}", "v") for number in range(21))}, "custom_headers"),
        ({"custom_headers": (("X-A", "1"), ("X-A", "2"))}, "custom_headers"),
        ({"custom_headers": (("Host", "x"),)}, "custom_headers.Host"),
        ({"settle_seconds": -1}, "settle_seconds"),
        ({"settle_seconds": 3_601}, "settle_seconds"),
        ({"retry_schedule": ()}, "retry_schedule"),
        ({"retry_schedule": (0,)}, "retry_schedule"),
        ({"retry_schedule": (1,) * 31}, "retry_schedule"),
        ({"retry_schedule": (2_592_001,)}, "retry_schedule"),
        ({"timeout_seconds": 0.5}, "timeout_seconds"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"timeout_seconds": 31}, "timeout_seconds"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": 101}, "max_in_flight"),
        ({"rate_limit": 10_001}, "rate_limit"),
        ({"filters": Filters(("*",) * 21)}, "event_types"),
        ({"filters": Filters(("",))}, "event_types[0]"),
        ({"filters": Filters(batch_names=("*", "x" * 256))}, "batch_names[1]"),
    ],
)
def test_a_broken_bound_names_its_field(changes, path):
    (problem,) = find_setting_problems(replace(ONE, **changes))
    assert problem.path == path
    assert problem.reason


def test_defaults_fill_only_what_was_left_out():
    assert fill_defaults(ONE, DEFAULTS) == replace(ONE, retry_schedule=(5, 300), timeout_seconds=15, max_in_flight=10)
    assert fill_defaults(GOOD, DEFAULTS) == GOOD


# --- which destinations get a message ---

globs = st.text("ab*/", max_size=8)


@given(globs, st.text("ab/\n", max_size=12))
def test_globs_agree_with_a_regular_expression(glob, text):
    pattern = ".*".join(re.escape(piece) for piece in glob.split("*"))
    assert matches_glob(glob, text) == (re.fullmatch(pattern, text, re.DOTALL) is not None)


def test_globs_take_slashes_and_know_no_other_wildcard():
    assert matches_glob("invoices*", "invoices/2026/nov")
    assert not matches_glob("invoice?", "invoices")
    assert not matches_glob("[a-z]", "a")
    assert not matches_glob("Invoices", "invoices")


@pytest.mark.timeout(60)  # with backtracking it would not end
def test_globs_are_linear():
    assert not matches_glob("*a" * 120 + "*b", "a" * 100_000)


@pytest.mark.parametrize(
    ("filters", "event_type", "scope", "batch", "expected"),
    [
        (Filters(), "extraction.completed", Scope.JOB, None, False),
        (Filters(("*",)), "extraction.completed", Scope.JOB, None, True),
        (Filters(("*",)), "extraction.completed", Scope.BATCH, "b", True),
        (Filters(("extraction.*",)), "extraction.completed", Scope.JOB, None, True),
        (Filters(("extraction.*",)), "receipt.processed", Scope.JOB, None, False),
        (Filters(("receipt.processed", "x")), "receipt.processed", Scope.JOB, None, True),
        (Filters(("*",), frozenset({Scope.BATCH})), "extraction.completed", Scope.JOB, None, False),
        (Filters(("*",), frozenset({Scope.BATCH})), "extraction.completed", Scope.BATCH, "b", True),
        (Filters(("*",), batch_names=("*",)), "extraction.completed", Scope.JOB, None, False),
        (Filters(("*",), batch_names=("*",)), "extraction.completed", Scope.JOB, "", True),
        (Filters(("*",), batch_names=("a/*", "b*")), "extraction.completed", Scope.BATCH, "a/1/2", True),
        (Filters(("*",), batch_names=("a/*", "b*")), "extraction.completed", Scope.BATCH, "c", False),
        (Filters(("webhook.*", "*")), "webhook.disabled", None, None, False),
        (Filters(("webhook.disabled",)), "webhook.disabled", None, None, True),
        (Filters(("delivery.exhausted",), frozenset({Scope.JOB})), "delivery.exhausted", None, None, True),
        (Filters(("delivery.exhausted",)), "webhook.disabled", None, None, False),
    ],
)
def test_filters(filters, event_type, scope, batch, expected):
    assert matches(filters, event_type, scope, batch) is expected


@given(st.lists(globs, max_size=4))
def test_no_glob_reaches_an_operational_type(event_types):
    assert not any(matches(Filters(tuple(event_types)), event_type, None, None) for event_type in OPERATIONAL_TYPES)
