"""Chapter 1, "Status" and "Job rules" 1-6, on the level of one run."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations, permutations, product

import pytest

from service.domain.jobs import ENDS, FIELDS, KEPT, RESET, EventOutcome, Job, Phase, detach, merge
from tests.support.topic import NOW, SECOND, TENANT, Topic, canceled, completed, queued, read, started

MAX = 2**31 - 1
VALUES = {
    "source": ("native", "oatmilk"),
    "attempts": (1, 2),
    "created_at": (NOW, NOW + SECOND),
    "started_at": (NOW, NOW + SECOND),
    "completed_at": (NOW, NOW + SECOND),
    "metadata": ('{"a": 1}', '{"b": 2}'),
}
# Filled by every event or part of the order itself, so they need tests of their own.
PLAIN = [name for name in FIELDS if name not in ("source", "source_status", "attempts", "webhook_id", "webhook_url")]
LATE_KEPT = [name for name in PLAIN if name in KEPT]
LATE_RESET = [name for name in PLAIN if name in RESET]
DESTINATIONS = ("webhook_id", "webhook_url")


def value(name, number=0):
    return VALUES.get(name, (f"{name} 1", f"{name} 2"))[number]


def apply(job, *events):
    return [merge(job, one, read(one).status) for one in events]


def run(*events):
    job = Job(TENANT, "A")
    apply(job, *events)
    return job


def outcomes(*events):
    return [merged.outcome for merged in apply(Job(TENANT, "A"), *events)]


# --- status ---


def test_status_is_a_closed_set_of_five_words_of_which_three_are_terminal():
    assert [phase.status for phase in Phase] == [None, "queued", "processing", "succeeded", "failed", "canceled"]
    assert [phase for phase in Phase if phase.terminal] == list(ENDS.values())
    assert list(ENDS) == ["succeeded", "failed", "canceled"]


def test_state_rank_is_queued_before_processing_before_terminal():
    assert [phase.rank for phase in Phase] == [0, 1, 2, 3, 3, 3]


# --- rule 1: every event merges, ordered by (generation, rank, attempts) ---


def of_rank(rank, **said):
    kinds = (
        lambda **s: queued("A", status="pending_upload", **s),
        lambda **s: queued("A", **s),
        lambda **s: started("A", **s),
        lambda **s: completed("A", **s),
    )
    return kinds[rank](**said)


ORDERS = [{"generation": g, "rank": r, "attempts": a} for g, r, a in product((1, 2), range(4), (0, 1, MAX))]


def of_order(order, **said):
    return of_rank(order["rank"], generation=order["generation"], attempts=order["attempts"], **said)


@pytest.mark.parametrize("name", ["kind", "metadata"])
def test_rule_1_per_kept_field_the_higher_order_wins_whichever_comes_first(name):
    for low, high in combinations(ORDERS, 2):
        events = of_order(low, **{name: value(name)}), of_order(high, **{name: value(name, 1)})
        assert {getattr(run(*order), name) for order in permutations(events)} == {value(name, 1)}, (low, high)


def test_rule_1_per_kept_field_the_higher_order_wins_also_among_events_of_an_overtaken_generation():
    overtaken = queued("A", generation=3)
    for low, high in combinations(ORDERS, 2):
        events = of_order(low, kind="low"), of_order(high, kind="high"), overtaken
        assert {run(*order).kind for order in permutations(events)} == {"high"}, (low, high)


def test_rule_1_per_field_of_the_run_the_higher_order_wins_whichever_comes_first():
    for low, high in combinations(ORDERS[: len(ORDERS) // 2], 2):
        first, second = of_order(low, stage="low"), of_order(high, stage="high")
        assert {run(first, second).stage, run(second, first).stage} == {"high"}, (low, high)


@pytest.mark.parametrize("name", PLAIN)
def test_rule_1_the_first_wins_a_tie(name):
    for rank in range(4):
        job = run(of_rank(rank, **{name: value(name)}), of_rank(rank, **{name: value(name, 1)}))
        assert getattr(job, name) == value(name)


@pytest.mark.parametrize("name", PLAIN + list(DESTINATIONS))
def test_rule_1_null_never_erases(name):
    said = {name: value(name)}
    job = run(queued("A", **said), started("A"), completed("A", attempts=3))
    assert getattr(job, name) == value(name)


@pytest.mark.parametrize("name", [*LATE_KEPT, "webhook_id"])
def test_rule_1_a_higher_generation_keeps(name):
    assert getattr(run(completed("A", **{name: value(name)}), queued("A", generation=2)), name) == value(name)


@pytest.mark.parametrize("name", [*LATE_RESET, "webhook_url", "attempts"])
def test_rule_1_a_higher_generation_resets(name):
    job = run(completed("A", **{name: value(name)}), queued("A", generation=2))
    assert getattr(job, name) is None
    assert (job.generation, job.phase, job.ended_at, job.message_made) == (2, Phase.QUEUED, None, False)


def test_rule_1_a_higher_generation_resets_the_words_status_and_finish():
    job = run(started("A", status="stuck"))
    job.batch_generation, job.message_made = 4, True
    apply(job, queued("A", generation=2))
    assert (job.source_status, job.batch_generation, job.message_made) == (None, None, False)


@pytest.mark.parametrize("name", PLAIN)
def test_rule_1_a_stale_event_of_the_current_generation_fills_empty_fields(name):
    for rank in range(3):
        job = run(completed("A"), of_rank(rank, **{name: value(name)}))
        assert (getattr(job, name), job.phase) == (value(name), Phase.SUCCEEDED)


@pytest.mark.parametrize("name", PLAIN)
def test_rule_1_a_stale_event_of_a_lower_generation_fills_only_the_kept_fields(name):
    for rank in range(4):
        job = run(started("A", generation=2), of_rank(rank, generation=1, **{name: value(name)}))
        assert getattr(job, name) == (value(name) if name in KEPT else None)
        assert (job.generation, job.phase) == (2, Phase.PROCESSING)


@pytest.mark.parametrize("name", DESTINATIONS)
def test_rule_1_a_destination_learned_after_the_end_is_reported(name):
    for status, rank in product(ENDS, range(3)):
        job = run(completed("A", status=status))
        (merged,) = apply(job, of_rank(rank, **{name: "there"}))
        assert (merged.learned, merged.ended, getattr(job, name)) == ((name,), False, "there")


def test_rule_1_both_destinations_may_be_learned_at_once():
    (merged,) = apply(run(completed("A")), queued("A", webhook_id="wh_1", webhook_url="https://a.example/"))
    assert merged.learned == DESTINATIONS


@pytest.mark.parametrize("late", [canceled, completed], ids=["conflict", "duplicate"])
def test_rule_1_a_destination_is_learned_from_a_second_end_too(late):
    (merged,) = apply(run(completed("A")), late("A", webhook_id="wh_1"))
    assert merged.learned == ("webhook_id",)


@pytest.mark.parametrize("name", DESTINATIONS)
def test_rule_1_a_destination_that_a_finished_run_has_stays(name):
    job = run(completed("A", **{name: "first"}))
    for rank, attempts in product(range(4), (0, 9)):
        (merged,) = apply(job, of_rank(rank, attempts=attempts, **{name: "second"}))
        assert (merged.learned, getattr(job, name)) == ((), "first")


def test_rule_1_before_the_end_the_higher_order_names_the_destination():
    job = run(queued("A", webhook_id="wh_1"), started("A", webhook_id="wh_2"))
    assert job.webhook_id == "wh_2"
    (merged,) = apply(job, completed("A", webhook_id="wh_3"))
    assert (merged.ended, merged.learned, job.webhook_id) == (True, (), "wh_3")


def test_rule_1_a_lower_generation_teaches_a_webhook_id_but_no_one_shot_url():
    job = run(completed("A", generation=2))
    (merged,) = apply(job, completed("A", generation=1, webhook_id="wh_1", webhook_url="https://a.example/"))
    assert (merged.outcome, merged.learned) == (EventOutcome.STALE, ("webhook_id",))
    assert (job.webhook_id, job.webhook_url) == ("wh_1", None)
    (merged,) = apply(job, started("A", generation=1, webhook_id="wh_2"))
    assert (merged.learned, job.webhook_id) == ((), "wh_1")


def test_rule_1_a_lower_generation_teaches_nothing_before_the_end():
    job = run(started("A", generation=2))
    (merged,) = apply(job, queued("A", webhook_id="wh_1"))
    assert (merged.learned, job.webhook_id) == ((), "wh_1")


def test_rule_1_the_order_is_never_the_clocks():
    later = NOW + timedelta(days=1)
    job = run(completed("A", stage="end", occurred_at=NOW), started("A", stage="work", occurred_at=later))
    assert (job.phase, job.stage) == (Phase.SUCCEEDED, "end")


def test_rule_1_events_without_a_generation_mean_the_first():
    assert run(queued("A"), started("A", generation=1)).generation == 1


EVENT_TABLE = [
    (EventOutcome.APPLIED, [queued("A")]),
    (EventOutcome.DUPLICATE, [queued("A"), queued("A")]),
    (EventOutcome.APPLIED, [queued("A"), queued("A", kind="x")]),
    (EventOutcome.APPLIED, [queued("A"), started("A")]),
    (EventOutcome.STALE, [started("A"), queued("A")]),
    (EventOutcome.STALE, [started("A"), queued("A", kind="x")]),
    (EventOutcome.APPLIED, [queued("A"), completed("A")]),
    (EventOutcome.DUPLICATE, [completed("A"), completed("A")]),
    (EventOutcome.APPLIED, [completed("A"), completed("A", kind="x")]),
    (EventOutcome.APPLIED, [completed("A"), completed("A", webhook_id="x")]),
    (EventOutcome.STALE, [completed("A"), started("A")]),
    (EventOutcome.CONFLICT, [completed("A"), canceled("A")]),
    (EventOutcome.APPLIED, [completed("A"), queued("A", generation=2)]),
    (EventOutcome.STALE, [queued("A", generation=2), completed("A")]),
    (EventOutcome.REQUEUE_WITHOUT_GENERATION, [completed("A"), queued("A", attempts=1)]),
]


@pytest.mark.parametrize(("expected", "events"), EVENT_TABLE)
def test_outcomes(expected, events):
    assert outcomes(*events)[-1] is expected


# --- rule 2: the type decides the state ---


@pytest.mark.parametrize("word", [None, "succeeded", "odd", "queued"])
def test_rule_2_the_type_decides_and_the_word_only_fills_source_status(word):
    for make, phase in ((queued, Phase.QUEUED), (started, Phase.PROCESSING)):
        job = run(make("A", status=word))
        assert (job.phase, job.source_status) == (phase, word)


def test_rule_2_a_started_event_is_processing_even_with_the_word_for_none():
    assert run(started("A", status="pending_upload")).phase is Phase.PROCESSING


def test_rule_2_queued_with_none_is_stored_without_a_status_and_no_member():
    job = run(queued("A", status="pending_upload"))
    job.batch_key = 1
    assert (job.phase, job.phase.status, job.member) == (Phase.STORED, None, False)


LATER = [queued("A"), started("A"), completed("A"), canceled("A"), completed("A", status="expired")]


def test_rule_2_any_later_state_expired_included_makes_a_stored_job_a_member():
    for later in LATER:
        job = run(queued("A", status="pending_upload"), later)
        job.batch_key = 1
        assert job.member


def test_rule_2_none_ranks_below_queued():
    for later in LATER:
        job = run(later)
        before = job.phase
        (merged,) = apply(job, queued("A", status="pending_upload"))
        assert (merged.outcome, job.phase) == (EventOutcome.STALE, before)


def test_rule_2_none_at_a_higher_generation_replaces_the_run():
    job = run(completed("A"), queued("A", status="pending_upload", generation=2))
    assert (job.generation, job.phase) == (2, Phase.STORED)


def test_status_expired_is_failed():
    job = run(completed("A", status="expired"))
    assert (job.phase, job.source_status) == (Phase.FAILED, "expired")


# --- rule 3: the first end wins ---


@pytest.mark.parametrize(("first", "second"), [*permutations(ENDS, 2)])
def test_rule_3_the_first_terminal_state_wins_and_a_different_one_is_ignored(first, second):
    job = run(completed("A", status=first, error_code="kept", occurred_at=NOW))
    before = replace(job, orders=list(job.orders))
    late = completed("A", status=second, attempts=9, error_code="other", kind="other", completed_at=NOW + SECOND)
    (merged,) = apply(job, late)
    assert (merged.outcome, merged.ended, job) == (EventOutcome.CONFLICT, False, before)


# --- rule 4: reruns ---


@pytest.mark.parametrize("status", ENDS)
def test_rule_4_a_higher_generation_replaces_the_run_also_after_failed(status):
    for rank in range(4):
        job = run(completed("A", status=status), of_rank(rank, generation=2))
        assert (job.generation, job.phase) == (2, Phase(rank))


def test_rule_4_a_run_overtaken_before_its_end_was_seen_never_ends():
    merged = apply(Job(TENANT, "A"), started("A"), queued("A", generation=2), completed("A"))
    assert [one.ended for one in merged] == [False, False, False]


@pytest.mark.parametrize("status", ENDS)
def test_rule_4_a_late_copy_of_queued_is_stale(status):
    job = run(completed("A", status=status, attempts=2, created_at=NOW))
    for late in (queued("A", attempts=2, created_at=NOW), queued("A"), queued("A", attempts=0)):
        assert apply(job, late)[0].outcome is EventOutcome.STALE


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("said", [{"attempts": 3}, {"created_at": NOW + SECOND}, {"created_at": NOW - SECOND}])
def test_rule_4_a_requeue_of_a_finished_run_is_counted_and_changes_nothing(said, status):
    job = run(completed("A", status=status, attempts=2, created_at=NOW))
    before = replace(job, orders=list(job.orders))
    (merged,) = apply(job, queued("A", **said))
    assert (merged.outcome, job) == (EventOutcome.REQUEUE_WITHOUT_GENERATION, before)


@pytest.mark.parametrize("name", [*LATE_KEPT, "stage", "result_url"])
def test_rule_4_a_requeue_is_stale_so_it_fills_empty_fields_and_replaces_none(name):
    job = run(queued("A", stage="first", created_at=NOW), completed("A"))
    apply(job, queued("A", attempts=3, created_at=NOW + SECOND, **{name: value(name)}))
    assert getattr(job, name) == ("first" if name == "stage" else value(name))
    assert (job.created_at, job.phase) == (NOW, Phase.SUCCEEDED)
    apply(job, queued("A", created_at=NOW, **{name: value(name, 1)}))
    assert getattr(job, name) == ("first" if name == "stage" else value(name, 1))


def test_rule_4_a_requeue_of_a_run_that_is_not_finished_is_none():
    assert outcomes(started("A", attempts=1), queued("A", attempts=2))[-1] is EventOutcome.STALE


def test_rule_4_a_started_event_is_no_requeue():
    assert outcomes(completed("A", attempts=1), started("A", attempts=2))[-1] is EventOutcome.STALE


def test_rule_4_a_requeue_still_teaches_a_destination():
    (merged,) = apply(run(completed("A")), queued("A", attempts=1, webhook_url="https://a.example/"))
    assert (merged.outcome, merged.learned) == (EventOutcome.REQUEUE_WITHOUT_GENERATION, ("webhook_url",))


# --- rule 5: one end a run ---


@pytest.mark.parametrize("status", ENDS)
def test_rule_5_a_run_ends_once(status):
    end = completed("A", status=status)
    merged = apply(Job(TENANT, "A"), queued("A"), end, end, started("A"), end, queued("A"))
    assert [one.ended for one in merged] == [False, True, False, False, False, False]


def test_rule_5_each_run_ends():
    assert [one.ended for one in apply(Job(TENANT, "A"), completed("A"), completed("A", generation=2))] == [True, True]


# --- rule 6: times ---


def test_rule_6_occurred_at_stands_in_for_a_missing_completed_at():
    job = run(completed("A", occurred_at=NOW + SECOND))
    assert (job.completed_at, job.finished_at) == (None, NOW + SECOND)
    apply(job, started("A", completed_at=NOW + 2 * SECOND))
    assert job.finished_at == NOW + 2 * SECOND


SPANS = [
    ((NOW, NOW, NOW), ()),
    ((NOW, None, NOW), ()),
    ((None, NOW, NOW), ()),
    ((None, None, NOW), ()),
    ((NOW + SECOND, None, NOW), ("negative_span",)),
    ((None, NOW + SECOND, NOW), ("negative_span",)),
    ((NOW + SECOND, NOW, NOW + 2 * SECOND), ("negative_span",)),
]


@pytest.mark.parametrize(("times", "expected"), SPANS)
@pytest.mark.parametrize("explicit", [True, False])
def test_rule_6_a_negative_span_is_counted_and_never_corrected(explicit, times, expected):
    created_at, started_at, ended_at = times
    said = {"completed_at": ended_at} if explicit else {"occurred_at": ended_at}
    job = run(queued("A", created_at=created_at), started("A", started_at=started_at))
    (merged,) = apply(job, completed("A", **said))
    assert merged.anomalies == expected
    assert (job.created_at, job.started_at, job.finished_at) == times


# --- traces ---


def test_trace_8_canceled_then_success_is_one_canceled_end():
    topic = Topic()
    topic.tell(queued("A"), canceled("A"), completed("A"), canceled("A"))
    assert topic.ends == [("A", 1, "canceled", ())]


def test_trace_10_failed_then_completed_make_two_ends_and_a_late_duplicate_none():
    topic = Topic()
    failed = completed("A", None, "failed", error_code="unreadable", kind="receipt")
    topic.tell(queued("A", None), failed, queued("A", None, generation=2))
    topic.tell(completed("A", None, generation=2, kind="receipt"), failed)
    assert topic.ends == [("A", 1, "failed", ()), ("A", 2, "succeeded", ())]
    assert (topic.job("A").error_code, topic.job("A").phase) == (None, Phase.SUCCEEDED)


def test_trace_10_in_one_poll_both_runs_end_as_they_were():
    topic = Topic()
    failed = completed("A", None, "failed", error_code="unreadable")
    topic.poll(queued("A", None), failed, queued("A", None, generation=2), completed("A", None, generation=2), failed)
    assert topic.ends == [("A", 1, "failed", ()), ("A", 2, "succeeded", ())]


@pytest.mark.parametrize("polls", [[2], [1, 1]])
def test_trace_16_a_late_queued_brings_the_destination_once(polls):
    topic = Topic()
    events = [
        completed("A"),
        queued("A", webhook_url="https://a.example/"),
        queued("A", webhook_url="https://a.example/"),
    ]
    topic.poll(*events[: polls[0]])
    topic.poll(*events[polls[0] :])
    topic.poll(*events)
    assert topic.ends == [("A", 1, "succeeded", ())] + [("A", 1, "succeeded", ("webhook_url",))] * (len(polls) - 1)


def test_a_job_whose_batch_was_forgotten_keeps_its_run_and_may_be_placed_anew():
    done = completed("A", kind="receipt")
    job = run(done)
    job.batch_key, job.batch_generation, job.named_generation, job.removed_generation, job.entered = 7, 2, 1, 1, True
    detach(job)
    assert job == run(done)
