from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.attempts import Outcome, OutcomeClass
from service.domain.deliveries import (
    FINISHED,
    LIFECYCLE,
    WAITING,
    CallRefused,
    Event,
    Reason,
    Recall,
    State,
    combine_recalls,
    find_cancel_refusal,
    find_change,
    find_redeliver_refusal,
)
from service.domain.outcomes import (
    RULES,
    TABLE,
    AttemptKind,
    DeliveryFacts,
    Purpose,
    Verdict,
    build_delivery_diagram,
    decide,
    judge,
    withhold,
)
from service.domain.schedule import Schedule
from service.domain.webhooks import DisableReason, WebhookState

NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
SCHEDULE = Schedule((timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30)))
FACTS = DeliveryFacts(SCHEDULE)
OK = Outcome(OutcomeClass.DELIVERED, 204)
ERROR = Outcome(OutcomeClass.HTTP_ERROR, 500)
GONE = Outcome(OutcomeClass.GONE, 410)
REFUSED = Outcome(OutcomeClass.URL_REFUSED)
FAILURES = [Outcome(kind) for kind in OutcomeClass if kind is not OutcomeClass.DELIVERED]
ORDINARY = [outcome for outcome in FAILURES if outcome.kind not in {OutcomeClass.GONE, OutcomeClass.URL_REFUSED}]
RECALLED = {
    Recall.CANCELED: (State.CANCELED, Reason.BATCH_DELETED),
    Recall.SUPERSEDED: (State.SUPERSEDED, None),
    Recall.PAUSED: (State.HELD, Reason.PAUSED),
    Recall.DISABLED: (State.HELD, Reason.DISABLED),
    Recall.RESTART: (State.PENDING, None),
}


def after(outcome, facts=FACTS, jitter=0.5, **changes):
    return decide(facts._replace(**changes), outcome, NOW, jitter)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


# --- the whole table, against the rules written out once more ---


def expected(kind: AttemptKind, recall: Recall | None, verdict: Verdict) -> tuple[State | None, Reason | None]:
    if verdict is Verdict.ACCEPTED:
        return State.DELIVERED, None
    if kind is AttemptKind.RESEND:
        return None, None
    if recall is Recall.CANCELED:
        return State.CANCELED, None
    if kind is AttemptKind.TEST:
        return (None, None) if verdict is Verdict.LOST else (State.FAILED, Reason.TEST_FAILED)
    if recall is not None:
        return RECALLED[recall]
    if verdict is Verdict.GONE:
        return State.HELD, Reason.DISABLED
    if kind is AttemptKind.EXTRA or verdict is Verdict.LOST:
        return None, None
    return {
        Verdict.RETRYABLE: (State.RETRYING, None),
        Verdict.EXHAUSTED: (State.FAILED, Reason.EXHAUSTED),
        Verdict.UNSENDABLE: (State.FAILED, Reason.URL_REFUSED),
        Verdict.GONE_ALONE: (State.FAILED, Reason.GONE),
        Verdict.BROKEN: (State.HELD, Reason.INTERNAL_ERROR),
        Verdict.UNDECRYPTABLE: (State.HELD, Reason.UNDECRYPTABLE),
        Verdict.UNSIGNABLE: (State.HELD, Reason.NO_SIGNING_KEY),
    }[verdict]


@pytest.mark.parametrize(("kind", "recall", "verdict"), [*product(AttemptKind, [None, *Recall], Verdict)])
def test_every_row_of_the_table(kind, recall, verdict):
    ending = TABLE[kind, recall, verdict]
    assert (ending.state, ending.reason) == expected(kind, recall, verdict)
    assert ending.state is not State.IN_FLIGHT
    assert not ending.again or (verdict is Verdict.LOST and kind in {AttemptKind.EXTRA, AttemptKind.RESEND})


def test_the_table_is_complete_and_every_rule_is_used():
    assert len(TABLE) == len(AttemptKind) * (len(Recall) + 1) * len(Verdict)
    assert {id(rule.ending) for rule in RULES} == {id(ending) for ending in TABLE.values()}


# --- outcomes ---


@pytest.mark.parametrize("recall", [None, *Recall])
@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("before", [State.PENDING, State.RETRYING, State.FAILED])
@pytest.mark.parametrize("stale", [False, True])
def test_2xx_always_delivers(recall, purpose, before, stale):
    decision = after(OK, recall=recall, purpose=purpose, before=before, stale=stale)
    assert (decision.state, decision.reason, decision.next_attempt_at) == (State.DELIVERED, None, None)
    assert decision.finished
    assert decision.observed == (not stale and purpose is not Purpose.TEST)
    assert decision.attempts == (0 if purpose is Purpose.REDELIVER else 1)


@pytest.mark.parametrize("outcome", ORDINARY)
def test_f41_failures_follow_the_schedule_and_end_after_its_last_step(outcome):
    for attempts, step in enumerate(SCHEDULE.steps):
        decision = after(outcome, attempts=attempts)
        assert (decision.state, decision.next_attempt_at) == (State.RETRYING, NOW + step)
        assert decision.attempts == attempts + 1
        assert decision.observed
        assert not decision.finished
    decision = after(outcome, attempts=3)
    assert (decision.state, decision.reason, decision.next_attempt_at) == (State.FAILED, Reason.EXHAUSTED, None)
    assert decision.finished
    assert decision.attempts == 4


def test_a_url_refused_for_its_form_fails_at_once():
    decision = after(REFUSED)
    assert (decision.state, decision.reason) == (State.FAILED, Reason.URL_REFUSED)


def test_gone_disables_the_webhook_and_holds_the_delivery():
    decision = after(GONE)
    assert (decision.state, decision.reason, decision.disable) == (State.HELD, Reason.DISABLED, DisableReason.GONE)


def test_gone_fails_only_the_delivery_of_a_one_shot():
    decision = after(GONE, one_shot=True)
    assert (decision.state, decision.reason, decision.disable) == (State.FAILED, Reason.GONE, None)


def test_trace_6_a_late_410_from_the_old_url_changes_nothing_and_costs_no_retry():
    moved = after(GONE, attempts=2, stale=True, recall=Recall.RESTART)
    assert (moved.state, moved.next_attempt_at, moved.attempts) == (State.PENDING, NOW, 0)
    assert moved.restarted
    assert (moved.disable, moved.observed) == (None, False)
    other_setting = after(GONE, stale=True)
    assert (other_setting.state, other_setting.disable) == (State.RETRYING, None)


def test_gone_under_a_superseded_delivery_still_disables():
    decision = after(GONE, recall=Recall.SUPERSEDED)
    assert (decision.state, decision.disable) == (State.SUPERSEDED, DisableReason.GONE)


@pytest.mark.parametrize(("recall", "outcome"), [*product(Recall, FAILURES)])
def test_a_recalled_delivery_becomes_what_it_was_recalled_for(recall, outcome):
    decision = after(outcome, recall=recall, recall_reason=Reason.BATCH_DELETED, stale=recall is not Recall.SUPERSEDED)
    assert (decision.state, decision.reason) == RECALLED[recall]
    lost = withhold(FACTS._replace(recall=recall, recall_reason=Reason.BATCH_DELETED), Verdict.LOST, NOW)
    assert (lost.state, lost.reason) == RECALLED[recall]


@pytest.mark.parametrize("before", [*sorted(WAITING), State.FAILED, State.SUPERSEDED, State.DELIVERED])
def test_a_failed_redeliver_leaves_state_and_schedule(before):
    due = NOW + seconds(77)
    facts = FACTS._replace(purpose=Purpose.REDELIVER, before=before, next_attempt_at=due, attempts=2)
    facts = facts._replace(before_reason=Reason.EXHAUSTED)
    for outcome in [*ORDINARY, REFUSED]:
        decision = after(outcome, facts)
        assert (decision.state, decision.reason, decision.next_attempt_at) == (before, Reason.EXHAUSTED, due)
        assert decision.attempts == 2
        assert decision.observed
    owed = withhold(facts, Verdict.LOST, NOW)
    assert (owed.state, owed.again, owed.finished, owed.attempts) == (before, True, False, 2)


def test_a_failed_delivery_stays_failed_when_a_newer_finish_came_during_its_redeliver():
    facts = FACTS._replace(purpose=Purpose.REDELIVER, before=State.FAILED, before_reason=Reason.EXHAUSTED)
    assert after(ERROR, facts, recall=Recall.SUPERSEDED).state is State.FAILED
    assert after(ERROR, facts, before=State.RETRYING, recall=Recall.SUPERSEDED).state is State.SUPERSEDED


def test_gone_on_a_redeliver_disables_too():
    facts = FACTS._replace(purpose=Purpose.REDELIVER, before=State.RETRYING)
    assert after(GONE, facts).state is State.HELD
    failed = after(GONE, facts, before=State.FAILED, before_reason=Reason.EXHAUSTED)
    assert (failed.state, failed.disable) == (State.FAILED, DisableReason.GONE)


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_test_is_not_repeated_and_touches_no_state(outcome):
    decision = after(replace(outcome, status=429, retry_after=("60",)), purpose=Purpose.TEST)
    assert (decision.state, decision.reason, decision.next_attempt_at) == (State.FAILED, Reason.TEST_FAILED, None)
    assert (decision.disable, decision.hold_until, decision.observed) == (None, None, False)
    for recall in (Recall.PAUSED, Recall.DISABLED):
        assert after(outcome, purpose=Purpose.TEST, recall=recall).state is State.FAILED
    assert after(OK, purpose=Purpose.TEST).state is State.DELIVERED


@pytest.mark.parametrize("before", [State.PENDING, State.RETRYING])
@pytest.mark.parametrize("purpose", [Purpose.SCHEDULED, Purpose.TEST])
def test_f40_a_lost_or_handed_back_attempt_spends_no_retry(before, purpose):
    facts = FACTS._replace(attempts=1, before=before, purpose=purpose)
    for _ in range(50):
        decision = withhold(facts, Verdict.LOST, NOW)
        assert (decision.state, decision.next_attempt_at, decision.attempts) == (before, NOW, 1)
        assert not decision.observed


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.BROKEN, Reason.INTERNAL_ERROR),
        (Verdict.UNDECRYPTABLE, Reason.UNDECRYPTABLE),
        (Verdict.UNSIGNABLE, Reason.NO_SIGNING_KEY),
    ],
)
def test_what_cannot_be_sent_is_held(verdict, reason):
    decision = withhold(FACTS._replace(attempts=1), verdict, NOW)
    assert (decision.state, decision.reason, decision.attempts, decision.observed) == (State.HELD, reason, 1, False)
    assert withhold(FACTS._replace(purpose=Purpose.TEST), verdict, NOW).state is State.FAILED


# --- Retry-After ---


def test_f37_f38_retry_after_moves_the_next_attempt_but_never_forward():
    assert after(replace(ERROR, retry_after=("100",)), jitter=0.0).next_attempt_at == NOW + seconds(100)
    assert after(replace(ERROR, retry_after=("100",))).next_attempt_at == NOW + seconds(110)
    assert after(replace(ERROR, retry_after=("1",))).next_attempt_at == NOW + seconds(5)
    assert after(replace(ERROR, retry_after=("-5",))).next_attempt_at == NOW + seconds(5)
    assert after(replace(ERROR, retry_after=("9" * 5_000,)), jitter=0.0).next_attempt_at == NOW + timedelta(days=1)
    assert after(replace(ERROR, retry_after=("9" * 5_000,))).clamped
    assert not after(replace(ERROR, retry_after=("100",))).clamped


@pytest.mark.parametrize(
    ("kind", "status", "holds"),
    [
        (OutcomeClass.DELIVERED, 200, False),
        (OutcomeClass.REDIRECT, 301, False),
        (OutcomeClass.HTTP_ERROR, 429, True),
        (OutcomeClass.HTTP_ERROR, 503, True),
        (OutcomeClass.HTTP_ERROR, 500, False),
    ],
)
def test_f39_retry_after_by_status(kind, status, holds):
    outcome = Outcome(kind, status, retry_after=("7200",))
    decision = after(outcome)
    assert decision.hold_until == (NOW + timedelta(hours=1) if holds else None)
    assert (decision.next_attempt_at is None) == outcome.delivered
    assert after(outcome, stale=True).hold_until is None


def test_f39_the_last_attempt_holds_the_others_too():
    decision = after(Outcome(OutcomeClass.HTTP_ERROR, 429, retry_after=("60",)), attempts=3)
    assert (decision.state, decision.hold_until) == (State.FAILED, NOW + seconds(60))


facts_drawn = st.builds(
    DeliveryFacts,
    st.just(SCHEDULE),
    attempts=st.integers(0, 10**6),
    purpose=st.sampled_from(Purpose),
    before=st.sampled_from(State),
    before_reason=st.sampled_from([None, *Reason]),
    next_attempt_at=st.sampled_from([None, NOW]),
    recall=st.sampled_from([None, *Recall]),
    one_shot=st.booleans(),
    stale=st.booleans(),
)
outcomes_drawn = st.builds(
    Outcome,
    st.sampled_from(OutcomeClass),
    st.sampled_from([None, 200, 301, 410, 429, 503, 999]),
    retry_after=st.lists(st.sampled_from(["5", "-5", "99999999", "x"]), max_size=2).map(tuple),
)


@given(facts_drawn, outcomes_drawn, st.floats(0, 1, exclude_max=True))
def test_whatever_happens_the_decision_is_sound(facts, outcome, jitter):
    decision = decide(facts, outcome, NOW, jitter)
    assert judge(facts, outcome) in Verdict
    assert decision.state is not State.IN_FLIGHT or facts.before is State.IN_FLIGHT
    if decision.state is State.RETRYING and facts.purpose is Purpose.SCHEDULED:
        assert decision.next_attempt_at > NOW
    if facts.stale or facts.purpose is Purpose.TEST:
        assert (decision.disable, decision.hold_until, decision.observed) == (None, None, False)
    if outcome.delivered:
        assert decision.finished


# --- between attempts ---


@pytest.mark.parametrize(("state", "event"), [*product(State, Event)])
def test_every_event_in_every_state(state, event):
    change = find_change(state, event)
    wanted = {
        Event.CLAIM: {State.PENDING, State.RETRYING},
        Event.SUPERSEDE: WAITING | {State.IN_FLIGHT},
        Event.CANCEL: WAITING | {State.IN_FLIGHT},
        Event.PAUSE: {State.PENDING, State.RETRYING, State.IN_FLIGHT},
        Event.DISABLE: {State.PENDING, State.RETRYING, State.IN_FLIGHT},
        Event.RELEASE: {State.HELD, State.IN_FLIGHT},
        Event.RESTART: {State.PENDING, State.RETRYING, State.IN_FLIGHT, State.FAILED, State.DELIVERED},
        Event.EXPIRE: {State.PENDING, State.RETRYING},
        Event.AGE_OUT: {State.HELD},
    }[event]
    assert (change is not None) == (state in wanted)
    if change is not None:
        assert (change.state is None) == (state is State.IN_FLIGHT)


def test_finished_deliveries_stay_finished_unless_sent_again():
    assert {event for (state, event) in LIFECYCLE if state in FINISHED} == {Event.RESTART}


@pytest.mark.parametrize(("old", "new"), [*product(Recall, Recall)])
def test_the_more_final_recall_stays(old, new):
    order = list(Recall)
    assert combine_recalls(old, new) is order[min(order.index(old), order.index(new))]
    assert combine_recalls(None, new) is new


@pytest.mark.parametrize("state", list(State))
def test_which_deliveries_may_be_redelivered(state):
    never = {State.IN_FLIGHT: CallRefused.IN_FLIGHT, State.CANCELED: CallRefused.CANCELED}
    unforced = {State.DELIVERED: CallRefused.DELIVERED, State.SUPERSEDED: CallRefused.SUPERSEDED} | never
    assert find_redeliver_refusal(state, WebhookState.ENABLED, force=False) == unforced.get(state)
    assert find_redeliver_refusal(state, WebhookState.ENABLED, force=True) == never.get(state)
    assert find_redeliver_refusal(state, WebhookState.PAUSED, force=True) is not None
    assert find_redeliver_refusal(state, WebhookState.DISABLED, force=True) is not None
    assert find_redeliver_refusal(state, None, force=True) is not None


@pytest.mark.parametrize("state", list(State))
def test_only_what_waits_can_be_canceled(state):
    refusal = find_cancel_refusal(state)
    assert (refusal is None) == (state in WAITING)
    assert (refusal is CallRefused.IN_FLIGHT) == (state is State.IN_FLIGHT)


def test_the_diagram_shows_every_state_and_arrow():
    diagram = build_delivery_diagram()
    assert diagram.startswith("stateDiagram-v2\n")
    assert all(state in diagram for state in State)
    assert "in_flight --> retrying: retryable, lost" in diagram
    assert "in_flight --> delivered: accepted\n" in diagram
    assert "pending --> in_flight: claim" in diagram
    assert "in_flight --> superseded: recalled (superseded)\n" in diagram
    pairs = [line.split(":")[0] for line in diagram.splitlines()]
    assert len(pairs) == len(set(pairs))
