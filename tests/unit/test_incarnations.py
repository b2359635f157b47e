"""Chapter 1, "Batch rules" 9: which incarnation of a name a reference means, and when a new one opens."""

from itertools import permutations

import pytest

from service.domain.batches import Batch, end
from service.domain.events import BatchRef
from service.domain.identity import incarnation_id
from service.domain.incarnations import find_incarnation, open_incarnation
from service.domain.jobs import EventOutcome
from tests.support.topic import (
    NOW,
    TENANT,
    Topic,
    canceled,
    completed,
    deleted,
    queued,
    removed,
    sealed,
    started,
)

FIRST, SECOND = BatchRef("b", "one"), BatchRef("b", "two")
NAMELESS = BatchRef("b")


def make(seq=1, id_="bat_1", *, adopted=False, ended=False):
    batch = Batch(seq, TENANT, "b", seq, id_, adopted=adopted)
    if ended:
        end(batch, f"evt_{seq}", NOW)
    batch.changed = False
    return batch


# --- what a reference means ---


def test_nothing_is_found_among_nothing():
    assert find_incarnation([], NAMELESS) is None
    assert find_incarnation([], FIRST) is None


def test_a_reference_without_an_id_means_the_newest_while_it_lives():
    assert find_incarnation([make(1, ended=True), make(2)], NAMELESS).seq == 2
    assert find_incarnation([make(1, "one", adopted=True), make(2, "two", adopted=True)], NAMELESS).seq == 2
    assert find_incarnation([make(1), make(2, ended=True)], NAMELESS) is None


def test_an_id_means_the_incarnation_that_has_it_ended_or_not():
    known = [make(1, "one", adopted=True, ended=True), make(2, "two", adopted=True)]
    assert find_incarnation(known, FIRST) is known[0]
    assert find_incarnation(known, SECOND) is known[1]
    assert not any(batch.changed for batch in known)


def test_our_own_id_is_as_good_as_the_producers():
    batch = make()
    assert find_incarnation([batch], BatchRef("b", "bat_1")) is batch
    assert (batch.incarnation_id, batch.adopted) == ("bat_1", False)


def test_a_live_incarnation_without_a_producer_id_adopts_the_first_one_sent():
    batch = make()
    assert find_incarnation([make(0, "zero", ended=True), batch], FIRST) is batch
    assert (batch.incarnation_id, batch.adopted, batch.changed) == ("one", True, True)
    assert find_incarnation([batch], SECOND) is None


@pytest.mark.parametrize("newest", [make(ended=True), make(1, "zero", adopted=True), make(1, "zero", ended=True)])
def test_a_different_id_opens_a_new_incarnation(newest):
    assert find_incarnation([newest], FIRST) is None
    opened = open_incarnation([newest], TENANT, FIRST, -1)
    assert (opened.seq, opened.incarnation_id, opened.adopted, opened.changed) == (2, "one", True, True)


def test_the_id_is_the_producers_else_a_hash_of_tenant_name_and_the_deletion_before_it():
    first = open_incarnation([], TENANT, NAMELESS, -1)
    assert (first.seq, first.incarnation_id, first.adopted) == (1, incarnation_id(TENANT, "b", ""), False)
    end(first, "evt_9", NOW)
    second = open_incarnation([first], TENANT, NAMELESS, -2)
    assert (second.seq, second.incarnation_id) == (2, incarnation_id(TENANT, "b", "evt_9"))


# --- batch.deleted ---


def test_deleted_ends_the_incarnation_without_a_message():
    topic = Topic()
    topic.tell(completed("A"), deleted())
    topic.wait()
    batch = topic.batch()
    assert (batch.ended, batch.settle_due_at, topic.told) == (True, None, [])


def test_deleted_in_the_same_poll_as_the_last_completion_makes_no_message():
    topic = Topic()
    topic.poll(completed("A", BatchRef("b", total=1)), deleted())
    topic.wait()
    assert topic.told == []


def test_deleted_invents_no_outcome_for_the_jobs():
    topic = Topic()
    topic.tell(queued("A"), started("B"), deleted())
    assert [topic.job(job_id).phase.status for job_id in "AB"] == ["queued", "processing"]


def test_deleted_of_nothing_known_is_stale():
    topic = Topic()
    assert [one.outcome for one in topic.tell(deleted(), sealed(), deleted(), deleted())] == [
        EventOutcome.STALE,
        EventOutcome.APPLIED,
        EventOutcome.APPLIED,
        EventOutcome.STALE,
    ]


def test_deleted_before_anything_is_known_of_an_id_holds_against_what_comes_late():
    topic = Topic()
    topic.tell(deleted(FIRST), queued("A", FIRST), completed("A", FIRST))
    topic.wait()
    assert (topic.told, topic.batch().ended, topic.batch().members) == ([], True, 0)


@pytest.mark.parametrize("ref", [NAMELESS, FIRST])
def test_a_repeat_of_deleted_does_nothing(ref):
    topic = Topic()
    ending = deleted(ref)
    topic.tell(queued("A", ref), ending, queued("B", SECOND if ref.id else ref))
    before = topic.facts()
    assert topic.poll(ending)[0].outcome is EventOutcome.DUPLICATE
    assert topic.facts() == before


def test_a_repeat_of_sealed_does_nothing_also_after_the_deletion():
    topic = Topic()
    seal, end_ = sealed(), deleted()
    topic.tell(queued("A"), seal, end_)
    before = topic.facts()
    assert [one.outcome for one in topic.tell(seal, end_)] == [EventOutcome.DUPLICATE] * 2
    assert topic.facts() == before


@pytest.mark.parametrize("known", [True, False])
def test_a_repeat_of_removed_does_nothing_also_after_the_deletion(known):
    topic = Topic()
    first = [queued("A")] if known else [queued("B")]
    removal = removed("A")
    topic.tell(*first, removal, deleted())
    before = topic.facts()
    topic.tell(removal)
    assert topic.facts() == before


def test_sealed_and_removed_with_the_id_of_an_ended_incarnation_are_stale():
    topic = Topic()
    topic.tell(queued("A", FIRST), deleted(FIRST))
    before = topic.facts()
    applied = topic.tell(sealed(FIRST), removed("A", FIRST, generation=1), removed("B", FIRST, generation=1))
    assert {one.outcome for one in applied} == {EventOutcome.STALE}
    assert topic.facts() == before


def test_a_seal_that_comes_again_seals_no_later_incarnation():
    seal, topic = sealed(), Topic()
    topic.tell(queued("A"), seal, deleted(), queued("B"))
    assert topic.poll(seal)[0].outcome is EventOutcome.DUPLICATE
    assert not topic.batch().sealed


# --- jobs of an ended incarnation ---


def test_without_ids_a_late_event_of_the_old_incarnation_does_nothing():
    for late in (started("A"), completed("A", BatchRef("b", total=9)), queued("A"), canceled("A"), removed("A")):
        topic = Topic()
        topic.tell(queued("A"), deleted(), queued("B"))
        batch = topic.batch()
        topic.tell(late)
        topic.wait()
        assert (topic.told, topic.batch()) == ([], batch)


def test_without_ids_a_job_joins_the_next_incarnation_only_with_a_higher_generation():
    topic = Topic()
    topic.tell(queued("A"), deleted(), completed("A"))
    assert len(topic.batches) == 1
    topic.tell(queued("A", generation=2))
    assert (topic.batch().seq, topic.batch().members, topic.batch("b", 1).members) == (2, 1, 1)


def test_without_ids_a_late_event_of_the_old_incarnation_does_not_touch_the_next_ones_total():
    topic = Topic()
    late = queued("A", BatchRef("b", total=9, version=9))
    topic.tell(late, deleted(), queued("A", generation=2), completed("A", generation=2), late)
    topic.wait()
    assert topic.batch().declared_total is None
    assert [told.runs for told in topic.told] == [{"A": (2, "succeeded", 1)}]


def test_with_ids_events_with_the_old_id_still_reach_the_old_incarnation():
    topic = Topic()
    topic.tell(queued("A", FIRST), queued("B", SECOND))
    topic.tell(completed("A", FIRST), completed("B", SECOND), queued("C", FIRST))
    assert [topic.batch("b", seq).members for seq in (1, 2)] == [2, 1]


def test_with_ids_a_job_of_an_ended_incarnation_joins_the_next_one_at_the_same_generation():
    topic = Topic()
    topic.tell(queued("A", FIRST), completed("A", FIRST), deleted(FIRST), completed("A", SECOND))
    topic.wait()
    assert [(told.incarnation_id, told.runs) for told in topic.told] == [("two", {"A": (1, "succeeded", 1)})]


def test_with_ids_a_late_event_with_the_old_id_leaves_the_job_where_it_is():
    topic = Topic()
    topic.tell(queued("A", FIRST), deleted(FIRST), queued("A", SECOND), deleted(SECOND))
    before = topic.facts()
    topic.tell(queued("A", FIRST), queued("A", SECOND))
    assert topic.facts() == before


def test_with_ids_a_job_of_a_live_incarnation_stays_and_the_other_id_is_a_conflict():
    topic = Topic()
    (_, applied) = topic.tell(queued("A", FIRST), queued("A", SECOND))
    assert applied.anomalies == ("batch_conflict",)
    assert topic.batch().incarnation_id == "one"


def test_a_job_that_says_its_batchs_id_later_is_no_conflict():
    topic = Topic()
    (_, applied) = topic.tell(queued("A"), completed("A", FIRST))
    assert applied.anomalies == ()
    assert (topic.batch().incarnation_id, len(topic.batches)) == ("one", 1)


def test_a_job_that_leaves_the_id_out_later_is_no_conflict():
    topic = Topic()
    applied = topic.tell(queued("A", FIRST), queued("B", SECOND), completed("A", BatchRef("b", total=1)))
    assert applied[2].anomalies == ()
    assert [told.incarnation_id for told in topic.told] == ["one"]


# --- trace 7 ---


def ending(ref, order, cut):
    topic = Topic()
    events = [canceled("A", ref), canceled("B", ref), deleted(ref)]
    topic.tell(queued("A", ref), queued("B", ref), completed("C", ref))
    before = [events[index] for index in order]
    topic.poll(*before[:cut])
    topic.wait(1)
    topic.poll(*before[cut:])
    return topic


@pytest.mark.parametrize("ref", [NAMELESS, FIRST], ids=["no id", "id"])
@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_trace_7_cancellations_and_deletion_in_every_order(order, cut, ref):
    topic = ending(ref, order, cut)
    topic.wait()
    assert topic.told == []
    old = topic.batch()
    assert old.ended
    again = SECOND if ref.id else NAMELESS
    topic.tell(queued("D", again))
    assert topic.batch().incarnation_id != old.incarnation_id
    topic.tell(canceled("A", ref), completed("B", ref), completed("D", again))
    topic.wait()
    assert [told.runs for told in topic.told] == [{"D": (1, "succeeded", 1)}]
