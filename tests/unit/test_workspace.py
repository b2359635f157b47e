"""Chapter 1, "Batch rules" 1, 2 and 5: membership, i.e. what concerns a job and a batch at once."""

from dataclasses import replace
from itertools import permutations

import pytest

from service.domain.jobs import EventOutcome, Phase
from service.domain.workspace import Workspace
from tests.support.topic import (
    NOW,
    SECOND,
    SETTLING,
    TENANT,
    BatchRef,
    Topic,
    canceled,
    completed,
    deleted,
    event,
    queued,
    read,
    removed,
    sealed,
    started,
)

FIRST, OTHER = BatchRef("b", "one"), BatchRef("b", "two")


def told(*events):
    topic = Topic()
    topic.tell(*events)
    return topic


def outcomes(applied):
    return [one.outcome for one in applied]


# --- rule 1: members ---


def test_rule_1_the_batch_named_first_stays_and_another_name_is_a_counted_conflict():
    topic = Topic()
    applied = topic.tell(queued("A", "b"), queued("A", "c"), started("A", "c"), completed("A", "b"))
    assert [one.anomalies for one in applied] == [(), ("batch_conflict",), ("batch_conflict",), ()]
    assert outcomes(applied) == [
        EventOutcome.APPLIED,
        EventOutcome.CONFLICT,
        EventOutcome.APPLIED,
        EventOutcome.APPLIED,
    ]
    assert [batch.name for batch in topic.batches.values()] == ["b"]


def test_rule_1_a_conflict_still_tells_of_a_known_batch():
    topic = told(queued("A", "b"), queued("B", "c"), queued("A", BatchRef("c", total=7)))
    assert (topic.batch("c").declared_total, topic.batch("c").entered) == (7, 1)


def test_rule_1_events_without_a_batch_move_nothing():
    topic = told(queued("A"), started("A", None), completed("A", None, generation=2))
    assert (topic.batch().members, topic.batch().succeeded) == (1, 1)


def test_rule_1_a_job_without_a_batch_may_get_one_at_any_time():
    for late in (queued("A"), started("A"), completed("A"), queued("A", generation=2)):
        topic = told(completed("A", None), late)
        assert topic.batch().members == 1


def test_rule_1_the_highest_generation_that_names_a_batch_decides():
    topic = told(queued("A", "b"), queued("A", "c", generation=2))
    assert [(batch.name, batch.members) for batch in topic.batches.values()] == [("b", 0), ("c", 1)]
    topic.tell(completed("A", "b", generation=1))
    assert topic.batch("c").members == 1
    topic.tell(queued("A", None, generation=3), queued("A", "d", generation=2))
    assert topic.batch("c").members == 1


def test_rule_1_a_lower_generation_names_the_batch_when_no_higher_one_does():
    topic = told(completed("A", None, generation=3), queued("A", "b", generation=1))
    assert (topic.batch().members, topic.batch().succeeded) == (1, 1)
    topic.tell(queued("A", "c", generation=2), queued("A", "d", generation=1))
    assert (topic.batch("b").members, topic.batch("c").members) == (0, 1)


def test_rule_1_the_old_batch_loses_a_job_that_moves_and_may_be_complete_by_that():
    topic = told(completed("A"), queued("B"), queued("B", "c", generation=2))
    topic.wait()
    assert [(one.name, set(one.runs)) for one in topic.told] == [("b", {"A"})]


def test_rule_1_a_job_that_moves_is_new_in_the_batch_where_it_comes():
    topic = told(completed("A", "b", generation=2))
    topic.wait()
    topic.tell(queued("A", "c", generation=3), completed("A", "c", generation=3))
    topic.wait()
    assert [(one.name, one.runs) for one in topic.told] == [
        ("b", {"A": (2, "succeeded", 1)}),
        ("c", {"A": (3, "succeeded", 1)}),
    ]


def test_rule_1_a_finished_run_that_moves_is_new_in_the_batch_where_it_comes():
    topic = told(completed("A", "b"), completed("A", None, generation=3))
    topic.wait()
    topic.tell(queued("A", "c", generation=2))
    topic.wait()
    assert [(one.name, one.runs) for one in topic.told] == [(name, {"A": (3, "succeeded", 1)}) for name in "bc"]


def test_rule_1_a_job_that_comes_back_is_counted_once():
    topic = told(queued("A"), queued("A", "c", generation=2), queued("A", "b", generation=3))
    assert (topic.batch("b").entered, topic.batch("b").members) == (1, 1)
    assert (topic.batch("c").entered, topic.batch("c").members) == (1, 0)


MOVES = [
    [queued("A", "b"), queued("A", "c", generation=2), queued("B", BatchRef("b", total=2))],
    [queued("A", "b"), queued("A", None, generation=2), queued("A", "c", generation=3)],
    [queued("A", "b"), queued("A", status="pending_upload", generation=2)],
    [queued("A", "b", status="pending_upload"), queued("A", "c", generation=2)],
    [queued("A", BatchRef("b", total=3)), queued("A", "c", generation=2), completed("B"), completed("C")],
    [queued("A", FIRST), queued("A", "c", generation=2), queued("B", FIRST)],
]


@pytest.mark.parametrize("events", MOVES)
def test_rule_3_whoever_was_ever_a_member_is_counted_in_every_order_of_events(events):
    seen = set()
    for order in permutations(events):
        topic = told(*order)
        seen.add(tuple(sorted((b.name, b.entered, b.members, b.declared_total) for b in topic.batches.values())))
    assert len(seen) == 1, seen


def test_rule_3_an_overtaken_event_counts_the_job_once():
    past = [queued("A", "b"), started("A", "b")]
    topic = told(queued("A", "c", generation=2), *past, *past)
    assert (topic.batch("b").entered, topic.batch("b").members, topic.batch("c").members) == (1, 0, 1)


def test_rule_9_an_overtaken_event_says_nothing_of_a_name_that_has_ended_since():
    topic = told(queued("B", "b"), deleted("b"), queued("A", "c", generation=2))
    before = topic.facts()
    topic.tell(queued("A", "b"))
    assert topic.facts() == before
    topic.tell(queued("D", "b"))
    before = topic.batch("b")
    topic.tell(started("A", BatchRef("b", total=5)))
    assert topic.batch("b") == before


def test_rule_9_an_overtaken_event_reaches_an_ended_incarnation_by_id_and_changes_nothing():
    topic = told(queued("B", FIRST), deleted(FIRST), queued("A", "c", generation=2))
    before = topic.facts()
    topic.tell(queued("A", FIRST))
    assert topic.facts() == before


def test_rule_1_a_job_that_moves_out_of_an_ended_incarnation_leaves_it_alone():
    topic = told(queued("A", "b"), deleted("b"))
    before = topic.batch("b")
    topic.tell(queued("A", "c", generation=2))
    assert (topic.batch("c").members, topic.batch("b").members, before.members) == (1, 1, 1)


def test_rule_1_a_job_that_moves_into_an_ended_incarnation_is_in_none():
    topic = told(queued("A", "c"), queued("B", FIRST), deleted(FIRST), completed("A", FIRST, generation=2))
    topic.wait()
    assert (topic.batch("c").members, topic.batch("b").members, topic.told) == (0, 1, [])


def test_rule_1_no_job_of_another_tenant():
    workspace = Workspace()
    for tenant_id in (TENANT, "acct_43"):
        one = queued("A")
        object.__setattr__(one, "tenant_id", tenant_id)
        workspace.apply(one, read(one))
    assert [(b.tenant_id, b.members) for b in workspace.batches.values()] == [(TENANT, 1), ("acct_43", 1)]


# --- rule 2 of the jobs: stored jobs are no members ---


def test_a_stored_job_is_no_member_until_a_later_state_and_leaves_again_with_a_stored_rerun():
    topic = told(queued("A", status="pending_upload"))
    assert (topic.batch().members, topic.batch().entered, topic.batch().status) == (0, 0, "queued")
    topic.tell(completed("A", status="expired"))
    assert (topic.batch().members, topic.batch().failed) == (1, 1)
    topic.tell(queued("A", status="pending_upload", generation=2))
    assert (topic.batch().members, topic.batch().failed, topic.batch().entered) == (0, 0, 1)
    assert not topic.batch().all_done


def test_a_stored_rerun_is_no_member_so_it_keeps_no_batch_open():
    topic = told(completed("A"), completed("B"), queued("B", status="pending_upload", generation=2))
    topic.wait()
    topic.tell(queued("B", generation=2), completed("B", generation=2))
    topic.wait()
    assert [(set(one.runs), one.new) for one in topic.told] == [({"A"}, {"A"}), ({"A", "B"}, {"B"})]


def test_expired_fills_an_empty_error_code_and_quarantined_too():
    topic = told(
        completed("A", status="expired"),
        completed("B", status="expired", error_code="E1"),
        completed("C", subject_status="quarantined"),
    )
    assert [topic.job(job_id).error_code for job_id in "ABC"] == ["expired", "E1", "quarantined"]
    assert topic.job("C").subject_status == "quarantined"


@pytest.mark.parametrize("late", [{"kind": "receipt"}, {"subject_id": "s"}, {"previous_job_id": "Z"}, {"batch": "b"}])
def test_a_run_that_nobody_heard_of_ends_anew_with_what_comes_after_its_end(late):
    topic = told(completed("A", None))
    late = {"batch": None, **late}
    topic.tell(queued("A", **late), started("A", **late))
    assert topic.ends == [("A", 1, "succeeded", ())] * 2


def test_a_run_that_somebody_heard_of_tells_the_job_before_it_once_that_is_known():
    topic = told(completed("A", None))
    topic.job("A").message_made = True
    topic.tell(queued("A", None, kind="receipt"), queued("A", None, subject_id="s", previous_job_id="Z"))
    assert topic.ends[1:] == [("A", 1, "succeeded", ("subject_id", "previous_job_id"))]
    topic.job("A").inherited_webhook_id = "wh_1"
    topic.tell(started("A", None, subject_id="t"))
    assert len(topic.ends) == 2


def test_what_comes_after_the_end_in_one_transaction_makes_one_ending():
    topic = Topic()
    topic.poll(completed("A", None), queued("A", None, kind="receipt"), started("A", "b"))
    assert topic.ends == [("A", 1, "succeeded", ())]
    topic.poll(queued("A", None, webhook_id="wh_1"), queued("A", None, subject_id="s"))
    assert topic.ends[1:] == [("A", 1, "succeeded", ())]


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([started("A", error_code="E1"), completed("A", status="expired")], "E1"),
        ([queued("A", error_code="E1"), started("A", subject_status="quarantined")], "E1"),
        ([started("A", subject_status="quarantined"), completed("A", subject_status="processed")], None),
        ([started("A", subject_status="quarantined"), completed("A", status="expired")], "expired"),
        ([queued("A", status="expired"), started("A")], None),
    ],
    ids=["given before", "given before, quarantined", "released", "both", "not over"],
)
def test_words_fill_a_code_that_no_event_gave_in_whatever_order_they_come(events, code):
    for order in permutations(events):
        topic = Topic()
        topic.tell(*order)
        assert topic.job("A").error_code == code
        topic.tell(completed("A", generation=2))
        assert topic.job("A").error_code is None


# --- rule 2: job.removed ---


@pytest.mark.parametrize("said", [{}, {"generation": 1}], ids=["absent", "1"])
@pytest.mark.parametrize("make", [queued, started, completed])
def test_rule_2_removal_holds_against_events_of_its_generation_earlier_or_later(make, said):
    for order in permutations([make("A"), removed("A", **said)]):
        topic = told(queued("B"), *order, queued("A"))
        assert (topic.batch().members, topic.batch().entered) == (1, 2)


def test_rule_2_removal_without_a_generation_means_the_highest_known():
    topic = told(queued("A", generation=3), removed("A"))
    assert topic.job("A").removed_generation == 3
    topic.tell(completed("A", generation=3))
    assert topic.batch().members == 0
    topic.tell(queued("A", generation=4))
    assert topic.batch().members == 1


def test_rule_2_removal_of_a_lower_generation_is_counted_and_removes_nothing():
    topic = told(queued("A", generation=2), removed("A", generation=1))
    assert (topic.batch().members, topic.batch().entered) == (1, 1)
    assert topic.poll(queued("A", generation=1))[0].outcome is EventOutcome.STALE


def test_rule_2_removal_ahead_of_the_generation_holds_until_a_higher_one():
    topic = told(removed("A", generation=2), queued("A"), queued("A", generation=2))
    assert (topic.batch().members, topic.batch().entered) == (0, 1)
    topic.tell(queued("A", generation=3))
    assert (topic.batch().members, topic.batch().entered) == (1, 1)


def test_rule_2_removal_may_complete_a_batch():
    topic = told(completed("A"), queued("B"), removed("B"))
    topic.wait()
    assert [set(one.runs) for one in topic.told] == [{"A"}]


def test_rule_2_removal_of_an_unknown_job_may_complete_a_batch():
    topic = told(completed("A", BatchRef("b", total=2)), removed("B"))
    assert [set(one.runs) for one in topic.told] == [{"A"}]


def test_rule_2_removal_never_makes_a_batch_dirty():
    topic = told(completed("A"), completed("B"))
    topic.wait()
    topic.tell(queued("C"), removed("C"), removed("B"))
    topic.wait()
    assert (len(topic.told), topic.batch().all_done, topic.batch().generation) == (1, True, 1)


def test_rule_2_removal_leaves_job_messages_alone():
    topic = told(queued("A"), removed("A"), completed("A"))
    assert topic.ends == [("A", 1, "succeeded", ())]


def test_rule_2_removal_of_the_last_member_leaves_an_empty_batch():
    topic = told(completed("A"), removed("A"))
    topic.wait()
    assert (topic.told, topic.batch().all_done, topic.batch().status) == ([], False, "queued")


def test_rule_2_removal_from_a_batch_that_the_job_is_not_in():
    topic = told(queued("A", "b"), removed("A", "c"), removed("A", "c"))
    assert (topic.batch("b").members, topic.batch("c").entered) == (1, 1)
    topic.tell(queued("A", "c", generation=2))
    assert (topic.batch("c").members, topic.batch("c").entered) == (1, 1)


def test_rule_2_removal_after_the_job_has_moved_away():
    topic = told(queued("A", "b"), queued("A", "c", generation=2), removed("A", "b"))
    assert (topic.batch("b").entered, topic.batch("c").members) == (1, 1)
    topic.tell(queued("A", "b", generation=3))
    assert topic.batch("b").members == 1


def test_rule_2_a_removal_is_remembered_where_it_was_while_the_job_is_elsewhere():
    topic = told(queued("A", "b"), removed("A", "b", generation=3), queued("A", "c", generation=2))
    assert topic.batch("c").members == 1
    topic.tell(queued("A", "b", generation=3))
    assert (topic.batch("b").members, topic.batch("c").members) == (0, 0)
    topic.tell(queued("A", "b", generation=4))
    assert topic.batch("b").members == 1


@pytest.mark.parametrize("known", [True, False])
def test_rule_2_a_repeat_of_a_stored_event_does_nothing(known):
    removal = removed("A")
    topic = told(*([queued("A")] if known else []), removal, queued("A", generation=2))
    before = topic.facts()
    assert topic.poll(removal)[0].outcome is EventOutcome.DUPLICATE
    assert topic.facts() == before


def test_rule_2_a_repeat_does_nothing_also_after_the_job_has_moved_away():
    removal = removed("A")
    topic = told(queued("A"), removal, queued("A", generation=2), queued("A", "c", generation=3))
    before = topic.facts()
    topic.tell(removal)
    assert topic.facts() == before


def test_rule_2_another_removal_of_the_same_generation_is_stale():
    topic = told(queued("A"), removed("A"))
    before = topic.facts()
    assert outcomes(topic.tell(removed("A", generation=1))) == [EventOutcome.STALE]
    assert topic.facts() == before


def test_rule_2_removal_of_a_job_of_an_ended_incarnation_is_stale():
    topic = told(queued("A"), deleted())
    before = topic.facts()
    assert topic.poll(removed("A", generation=1))[0].outcome is EventOutcome.STALE
    assert topic.facts() == before


@pytest.mark.parametrize(
    "before",
    [
        [queued("A"), removed("A"), queued("A", generation=2), removed("A")],
        [queued("A"), removed("A"), removed("A")],
        [queued("A"), removed("A"), deleted()],
        [queued("A"), deleted(), removed("A")],
    ],
    ids=["twice removed", "the second was stale", "of another life", "after the end"],
)
def test_rule_2_a_removal_that_comes_again_takes_no_later_run_away(before):
    """One without a generation meant the highest that was known when it first came."""
    topic = told(*before, completed("A", generation=3))
    members = topic.living()
    assert members == {topic.batch().key: {("A", 3, Phase.SUCCEEDED)}}
    for removal in (one for one in before if one.type == "job.removed"):
        topic.tell(removal)
        assert topic.living() == members


# --- rule 5: finishes do not depend on polls ---


def test_rule_5_a_run_overtaken_within_a_poll_is_in_the_message_as_it_is_at_the_end():
    topic = Topic()
    topic.poll(completed("A"), queued("A", generation=2), completed("A", generation=2, status="failed"))
    topic.wait()
    assert [one.runs for one in topic.told] == [{"A": (2, "failed", 1)}]


def test_rule_5_late_decorations_of_a_finished_batch_are_no_finish():
    topic = told(completed("A"))
    topic.wait()
    topic.tell(queued("A", created_at=NOW), started("A", started_at=NOW), completed("A", completed_at=NOW))
    topic.wait()
    assert (len(topic.told), topic.batch().created_at, topic.batch().started_at) == (1, NOW, NOW)


def test_finishes_come_in_key_order_and_only_of_changed_batches():
    workspace = Workspace()
    for one in (completed("A", BatchRef("z", total=1)), completed("B", BatchRef("a", total=1)), queued("C", "q")):
        workspace.apply(one, read(one))
    assert [batch.key for batch in workspace.settle(NOW, SETTLING)] == [-2, -1]
    for batch in workspace.batches.values():
        batch.changed = False
    assert workspace.settle(NOW, SETTLING) == []


# --- what is announced ---


def endings(*events):
    workspace = Workspace()
    for one in events:
        workspace.apply(one, read(one))
    return [(e.job.generation, e.job.phase, e.learned, e.silent) for e in workspace.endings]


URL = {"webhook_url": "https://a.example/"}
NAMED = {"webhook_id": "wh_1"}
S = Phase.SUCCEEDED


def test_a_run_has_one_ending_in_a_transaction_whatever_it_learns():
    assert endings(completed("A"), queued("A", **URL), queued("A", **NAMED)) == [(1, S, (), False)]


def test_destinations_learned_in_one_transaction_are_one_ending():
    topic = told(completed("A"))
    topic.poll(queued("A", **NAMED), started("A", **URL))
    assert topic.ends[1:] == [("A", 1, "succeeded", ("webhook_id", "webhook_url"))]


def test_a_silent_end_does_not_swallow_what_is_learned_aloud():
    events = completed("A", silent=True), queued("A", **URL)
    assert endings(*events) == [(1, S, (), True), (1, S, ("webhook_url",), False)]
    loud = completed("A"), queued("A", silent=True, **URL)
    assert endings(*loud) == [(1, S, (), False)]


def test_a_run_that_was_overtaken_in_the_transaction_in_which_it_ended_is_announced_as_it_was():
    first = completed("A", status="failed", error_code="E1", **URL)
    workspace = Workspace()
    for one in (first, queued("B"), queued("A", generation=2), completed("A", generation=2)):
        workspace.apply(one, read(one))
    was, now = (ending.job for ending in workspace.endings)
    assert (was.generation, was.phase, was.error_code, was.webhook_url) == (1, Phase.FAILED, "E1", URL["webhook_url"])
    assert (now.generation, now.phase, now.error_code, now.webhook_url) == (2, S, None, None)
    assert now is workspace.jobs[TENANT, "A"]


@pytest.mark.parametrize("ending", [completed("A"), removed("B"), removed("unknown")])
def test_a_batch_is_loud_once_an_event_that_changes_its_members_is_recent(ending):
    topic = told(completed("A", silent=True, generation=1), queued("B", silent=True), completed("C", silent=True))
    assert not topic.batch().loud
    if ending.job_id == "A":
        ending = completed("A", generation=2)
    topic.tell(ending)
    assert topic.batch().loud


def test_a_silent_event_or_a_repeat_makes_no_batch_loud():
    end = completed("A", silent=True)
    topic = told(end, removed("B", silent=True), removed("A", silent=True), queued("C", silent=True))
    assert not topic.batch().loud
    topic = told(completed("A"))
    topic.wait()
    assert not topic.batch().loud
    topic.poll(completed("A"), queued("A"), completed("C", silent=True))
    assert not topic.batch().loud


def test_deletions_are_announced_once_with_their_time():
    workspace = Workspace()
    ending = deleted(occurred_at=NOW)
    for one in (queued("A"), ending, ending):
        workspace.apply(one, read(one))
    assert workspace.deletions == [(workspace.batches[-1], NOW)]


def test_the_first_source_stays():
    topic = told(queued("A", source="oatmilk"), queued("B", source="native"))
    assert topic.batch().source == "oatmilk"
    assert told(sealed(source="oatmilk")).batch().source == "oatmilk"


def test_only_jobs_that_an_event_concerns_are_written():
    workspace = Workspace()
    for one in (removed("A"), sealed(), queued("B", None), removed("B", "c")):
        workspace.apply(one, read(one))
    assert [job_id for _, job_id in workspace.touched] == ["B"]


# --- traces ---


def test_trace_9_a_rerun_under_another_job_id_is_a_run_of_its_own():
    topic = told(
        completed("1", None, subject_id="art", **NAMED), completed("2", None, subject_id="art", previous_job_id="1")
    )
    assert topic.ends == [("1", 1, "succeeded", ()), ("2", 1, "succeeded", ())]
    assert (topic.job("2").webhook_id, topic.job("2").previous_job_id) == (None, "1")


def test_trace_14_many_jobs_keep_their_counters():
    workspace = Workspace()
    for number in range(1_000):
        one = event("job.completed", f"job_{number}", status=("succeeded", "failed", "canceled")[number % 3])
        workspace.apply(one, read(one))
    (batch,) = workspace.batches.values()
    assert (batch.members, batch.succeeded, batch.failed, batch.canceled) == (1_000, 334, 333, 333)
    assert (batch.all_done, batch.entered) == (True, 1_000)


@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_trace_16_every_order_of_queued_started_completed_ends_once_with_the_destination(order, cut):
    events = [queued("A", webhook_url="https://a.example/"), started("A"), completed("A")]
    topic = Topic()
    in_order = [events[index] for index in order]
    topic.poll(*in_order[:cut])
    topic.poll(*in_order[cut:])
    topic.poll(*in_order)
    ended_before_known = order.index(2) < order.index(0) and order.index(2) < cut <= order.index(0)
    late = [("A", 1, "succeeded", ("webhook_url",))] if ended_before_known else []
    assert topic.ends == [("A", 1, "succeeded", ()), *late]
    assert topic.job("A").webhook_url == "https://a.example/"


def test_trace_7_canceled_members_wait_for_the_deletion():
    topic = told(queued("A"), canceled("A"), sealed())
    topic.wait(4)
    assert topic.told == []
    topic.tell(deleted(occurred_at=NOW + SECOND))
    topic.wait()
    assert topic.told == []


# --- trace contexts ---


@pytest.mark.parametrize(
    ("events", "trace"),
    [
        ((completed("A", trace="a"), completed("B", trace="b")), "b"),
        ((completed("B", trace="b"), completed("A", trace="a")), "a"),
        ((completed("A", trace="a"), completed("B", trace="b"), completed("A", trace="again")), "b"),
        ((completed("A", trace="a"), completed("B")), None),
        ((queued("A", trace="a"), completed("B", trace="b"), removed("A", trace="c")), "c"),
        ((removed("Z", trace="z"), completed("A", trace="a")), "a"),
    ],
)
def test_a_finish_continues_the_event_that_last_changed_what_the_batch_sees(events, trace):
    topic = Topic()
    topic.tell(*(replace(each, batch=BatchRef("b")) for each in events))
    assert topic.batch().trace == trace
    topic.wait()
    assert topic.batch().finish == 1
    assert topic.batch().trace is None


def test_a_seal_may_be_what_finishes_a_batch():
    workspace = Workspace()
    for one in (completed("A", trace="a"), sealed(trace="s")):
        workspace.apply(one, read(one))
    assert [(batch.sealed, batch.trace) for batch in workspace.settle(NOW, SETTLING)] == [(True, "s")]


def test_an_ending_continues_the_event_that_ended_its_run_or_named_where_to_tell():
    workspace = Workspace()
    for one in (started("A", trace="s"), completed("A", trace="e"), completed("A", trace="late", webhook_id="whk_1")):
        workspace.apply(one, read(one))
    assert [(ending.learned, ending.trace) for ending in workspace.endings] == [((), "e")]
    told_later = Workspace(jobs=dict(workspace.jobs), batches=workspace.batches, incarnations=workspace.incarnations)
    one = completed("A", trace="later", webhook_url="https://receiver.example/")
    told_later.apply(one, read(one))
    assert [(ending.learned, ending.trace) for ending in told_later.endings] == [(("webhook_url",), "later")]
