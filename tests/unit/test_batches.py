"""Chapter 1, "Batch rules" 3-5 and 8, on the level of one batch: totals, all_done, status, finishes, settling."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import combinations_with_replacement, permutations, product

import pytest

from service.domain.batches import (
    Batch,
    Member,
    Settling,
    declare_total,
    end,
    enter,
    exchange,
    finish,
    member_of,
    recount,
    seal,
    settle,
    settle_window,
)
from service.domain.jobs import Job, Phase
from tests.support.topic import (
    NOW,
    SECOND,
    SETTLING,
    TENANT,
    BatchRef,
    Topic,
    canceled,
    completed,
    queued,
    removed,
    sealed,
    started,
)

Q, P, S, F, C = Phase.QUEUED, Phase.PROCESSING, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELED
COUNTERS = ("members", "started", "succeeded", "failed", "canceled", "dirty", "dirty_canceled", "fingerprint")


def make(**said):
    return Batch(1, TENANT, "b", 1, "bat_1", **said)


def member(job_id="A", phase=S, *, dirty=True, generation=1, created_at=None, started_at=None, completed_at=None):
    return Member(job_id, generation, phase, dirty, created_at, started_at, completed_at)


def filled(*phases, **said):
    batch = make(**said)
    for number, phase in enumerate(phases):
        exchange(batch, None, member(str(number), phase))
    batch.entered = batch.entered or len(phases)
    batch.sealed = said.get("sealed", False)
    return batch


def counters(batch):
    return [getattr(batch, name) for name in COUNTERS]


# --- rule 1: what a batch sees of a job ---


def test_rule_1_a_member_is_in_the_batch_has_a_status_and_was_not_removed():
    for key, phase, generation, gone in product((None, 1), Phase, (1, 2), (0, 1, 2)):
        job = Job(TENANT, "A", generation=generation, phase=phase, batch_key=key, removed_generation=gone)
        expected = key is not None and phase is not Phase.STORED and gone < generation
        assert (member_of(job) is not None) == expected == job.member


def test_a_batch_sees_the_times_of_a_run_and_its_end_only_once_it_ended():
    job = Job(TENANT, "A", generation=2, phase=P, batch_key=1, batch_generation=3, completed_at=NOW)
    job.created_at = job.started_at = NOW - SECOND
    seen = Member("A", 2, P, False, NOW - SECOND, NOW - SECOND, None)
    assert member_of(job) == seen
    job.phase, job.batch_generation = S, None
    assert member_of(job) == replace(seen, phase=S, dirty=True, completed_at=NOW)
    job.completed_at, job.ended_at = None, NOW + SECOND
    assert member_of(job).completed_at == NOW + SECOND


# --- rule 3: the declared total ---

DECLARATIONS = [(3, 0), (2, 0), (5, 1), (4, 1), (1, 2), (None, 3), (None, 0)]


def test_rule_3_the_higher_version_wins_and_equal_versions_take_the_larger_total():
    best = {0: 3, 1: 5, 2: 1}
    for said in permutations(DECLARATIONS):
        batch, heard = make(), []
        for total, version in said:
            declare_total(batch, total, version)
            heard += [version] if total is not None else []
            assert batch.declared_version == max(heard, default=-1)
        assert batch.declared_total == best[2]


@pytest.mark.parametrize(("first", "second"), [((3, 0), (2, 0)), ((2, 0), (3, 0))])
def test_rule_3_an_absent_version_is_0(first, second):
    assert BatchRef("b", None, 3).version == 0
    batch = make()
    declare_total(batch, *first)
    declare_total(batch, *second)
    assert (batch.declared_total, batch.declared_version) == (3, 0)


def test_rule_3_no_total_declares_nothing():
    batch = make()
    declare_total(batch, None, 7)
    assert (batch.declared_total, batch.declared_version, batch.changed) == (None, -1, False)


def test_rule_3_stale_events_count_too():
    topic = Topic()
    late = queued("A", BatchRef("b", total=2, version=1))
    topic.tell(queued("A", generation=2), completed("A", generation=2), late)
    assert topic.batch().declared_total == 2
    topic.wait()
    assert topic.told == []


def test_rule_3_the_total_is_compared_with_jobs_that_are_or_ever_were_members_or_were_removed():
    topic = Topic()
    topic.tell(completed("A", BatchRef("b", total=4)), queued("B"), removed("B"), removed("unknown"))
    topic.tell(queued("D", status="pending_upload"))
    assert (topic.batch().entered, topic.batch().members) == (3, 1)
    topic.tell(queued("D"), queued("D", "c", generation=2))  # it moves away
    assert (topic.batch().entered, topic.batch().members, len(topic.told)) == (4, 1, 1)


def test_rule_3_a_job_enters_once():
    batch, job = make(), Job(TENANT, "A")
    enter(batch, job)
    enter(batch, job)
    assert (batch.entered, job.entered, batch.changed) == (1, True, True)


# --- rule 4: all_done, times, status ---


def test_rule_4_all_done_is_a_member_every_member_terminal_and_the_total_reached():
    for size in range(4):
        for phases in combinations_with_replacement(list(Phase)[1:], size):
            for total in (None, 1, 2, 3):
                batch = filled(*phases, declared_total=total)
                expected = size > 0 and all(p.terminal for p in phases) and size >= (total or 0)
                assert batch.all_done == expected, (phases, total)


def test_rule_4_an_empty_batch_is_not_done_whatever_the_total():
    batch = filled()
    assert (batch.all_done, batch.status) == (False, "queued")
    batch.entered = batch.declared_total = 1
    assert not batch.all_done


def test_rule_4_status():
    for size in range(1, 4):
        for phases in combinations_with_replacement(list(Phase)[1:], size):
            kinds = Counter(phases)
            if any(not p.terminal for p in phases):
                expected = "queued" if set(phases) == {Q} else "processing"
            elif kinds[C] == size:
                expected = "canceled"
            else:
                expected = "failed" if kinds[F] and not kinds[S] else "succeeded"
            assert filled(*phases).status == expected, phases


def test_rule_4_done_but_short_of_the_total_is_processing():
    assert filled(S, declared_total=2).status == "processing"


def test_rule_4_a_queued_member_that_has_a_start_time_has_started():
    batch = make()
    exchange(batch, None, member(phase=Q, started_at=NOW))
    assert batch.status == "processing"


TIMES = (None, NOW, NOW + SECOND, NOW + 2 * SECOND)


def test_rule_4_times_are_the_earliest_creation_and_start_and_the_latest_end():
    for at in product(TIMES, repeat=3):
        known = [one for one in at if one is not None]
        batch = make()
        for number, one in enumerate(at):
            exchange(batch, None, member(str(number), created_at=one, started_at=one, completed_at=one))
        assert batch.created_at == batch.started_at == min(known, default=None)
        assert batch.completed_at == max(known, default=None)
        assert not batch.times_stale


def test_rule_4_times_stay_right_or_are_known_to_be_stale():
    for others, old, new in product(product(TIMES, repeat=2), TIMES, (*TIMES, "gone")):
        batch = make()
        members = [member(str(n), created_at=at, started_at=at, completed_at=at) for n, at in enumerate(others)]
        was = member("x", created_at=old, started_at=old, completed_at=old)
        now = None if new == "gone" else member("x", created_at=new, started_at=new, completed_at=new)
        for one in (*members, was):
            exchange(batch, None, one)
        exchange(batch, was, now)
        counted = recount(batch, members + ([now] if now else []), 3)
        same = all(getattr(batch, n) == getattr(counted, n) for n in ("created_at", "started_at", "completed_at"))
        assert same or batch.times_stale, (others, old, new)
        assert not counted.times_stale
        assert counters(batch) == counters(counted)


def test_counters_and_fingerprint_do_not_depend_on_the_order_of_members():
    members = [member("A", S), member("B", F, dirty=False), member("C", C, generation=3), member("D", Q)]
    seen = set()
    for order in permutations(members):
        batch = make()
        for one in order:
            exchange(batch, None, one)
        seen.add(tuple(counters(batch)))
    assert seen == {(4, 3, 1, 1, 1, 3, 1, sum(one.weight for one in members) % 2**128)}


def test_the_fingerprint_is_of_job_generation_and_status_only():
    one = member("A", S)
    assert replace(one, dirty=False, created_at=NOW, started_at=NOW, completed_at=NOW).weight == one.weight
    others = [member("B", S), member("A", S, generation=2), member("A", F), member("A:1", S), member("1:A", S)]
    assert len({one.weight, *(other.weight for other in others)}) == 6


def test_exchange_there_and_back_leaves_nothing():
    batch = filled(S)
    before = counters(batch)
    for phase, dirty, at in product(list(Phase)[1:], (True, False), (None, NOW)):
        one = member("x", phase, dirty=dirty, started_at=at)
        exchange(batch, None, one)
        exchange(batch, one, None)
        assert counters(batch) == before


def test_exchange_of_equals_changes_nothing():
    batch = filled(S)
    before = replace(batch, changed=False)
    batch.changed = False
    exchange(batch, member("0"), member("0"))
    exchange(batch, None, None)
    assert batch == before


def test_a_recount_keeps_what_is_no_counter():
    batch = filled(S, Q, sealed=True, declared_total=3, finish=2)
    batch.grew = False
    counted = recount(batch, [member("0", S), member("1", Q)], 2)
    assert replace(counted, changed=batch.changed) == batch


# --- rule 5: finishes ---


def test_rule_5_generation_is_the_last_finish_plus_one_while_dirty_or_never_finished():
    for finishes, dirty in product((0, 1, 5), (0, 1, 2)):
        expected = finishes + 1 if dirty or finishes == 0 else finishes
        assert make(finish=finishes, dirty=dirty).generation == expected


def test_rule_5_a_batch_that_is_all_done_and_dirty_makes_a_finish():
    no_wait = Settling(0 * SECOND, 0 * SECOND)
    for phases in combinations_with_replacement((Q, P, S, F, C), 2):
        for dirty, ended, total in product((True, False), (True, False), (None, 2, 3)):
            batch = make(declared_total=total, entered=2, ended_by="evt" if ended else None)
            for number, phase in enumerate(phases):
                exchange(batch, None, member(str(number), phase, dirty=dirty))
            expected = all(p.terminal for p in phases) and dirty and not ended and total != 3
            assert settle(batch, NOW, no_wait) == expected
            assert batch.settle_due_at is None


def test_rule_5_a_finish_is_numbered_and_leaves_nothing_dirty():
    batch = filled(S, C, loud=True, settle_due_at=NOW)
    assert finish(batch, "msg_1") == 1
    assert (batch.dirty, batch.dirty_canceled, batch.settle_due_at, batch.loud) == (0, 0, None, False)
    assert (batch.finish, batch.finish_message_id, batch.generation) == (1, "msg_1", 1)
    assert not settle(batch, NOW, SETTLING)
    assert finish(batch, "msg_2") == 2


def test_rule_5_a_raised_total_alone_only_makes_all_done_false():
    topic = Topic()
    topic.tell(completed("A", BatchRef("b", total=1)), queued("A", BatchRef("b", total=2, version=1)))
    batch = topic.batch()
    assert (batch.all_done, batch.status, batch.generation, len(topic.told)) == (False, "processing", 1, 1)
    topic.tell(removed("B"))
    topic.wait()
    assert (topic.batch().all_done, topic.batch().generation, len(topic.told)) == (True, 1, 1)


def test_rule_5_reprocessing_and_adding_notify_again():
    topic = Topic()
    topic.tell(completed("A"))
    topic.wait()
    topic.tell(completed("A", generation=2))
    topic.wait()
    topic.tell(completed("B"))
    topic.wait()
    assert [(told.generation, told.new) for told in topic.told] == [(1, {"A"}), (2, {"A"}), (3, {"B"})]


# --- rule 8: settling ---

WINDOWS = [
    ({}, 2),
    ({"declared_total": 1}, 0),
    ({"settle_seconds": 0}, 0),
    ({"settle_seconds": 60}, 60),
    ({"settle_seconds": 60, "declared_total": 1}, 60),
    ({"settle_seconds": 60, "sealed": True}, 0),
    ({"sealed": True}, 0),
    ({"sealed": True, "declared_total": 1}, 0),
]


@pytest.mark.parametrize(("said", "seconds"), WINDOWS)
def test_rule_8_window(said, seconds):
    assert settle_window(make(**said), SETTLING) == seconds * SECOND
    assert settle_window(make(**said, dirty_canceled=1), SETTLING) == max(seconds, 5) * SECOND


@pytest.mark.parametrize(("said", "seconds"), WINDOWS)
def test_rule_8_a_batch_stays_all_done_that_long(said, seconds):
    batch = filled(S, **said)
    assert settle(batch, NOW, SETTLING) == (seconds == 0)
    assert batch.settle_due_at == (NOW + seconds * SECOND if seconds else None)
    batch.grew = False
    assert settle(batch, NOW + (seconds - 1) * SECOND, SETTLING) == (seconds == 0)
    assert settle(batch, NOW + seconds * SECOND, SETTLING)


def test_rule_8_the_due_time_is_kept_while_nothing_is_added_and_restarts_when_the_set_grows():
    batch = filled(S)
    settle(batch, NOW, SETTLING)
    batch.grew = False
    settle(batch, NOW + SECOND, SETTLING)
    assert batch.settle_due_at == NOW + 2 * SECOND
    exchange(batch, None, member("new", S))
    settle(batch, NOW + SECOND, SETTLING)
    assert batch.settle_due_at == NOW + 3 * SECOND


def test_rule_8_the_due_time_goes_when_the_batch_is_no_longer_done_or_dirty_or_alive():
    for undo in (
        lambda batch: exchange(batch, member("0", S), member("0", P, generation=2)),
        lambda batch: exchange(batch, member("0", S), None),
        lambda batch: declare_total(batch, 2, 0),
        lambda batch: end(batch, "evt", NOW),
        lambda batch: exchange(batch, member("0", S), member("0", S, dirty=False)),
    ):
        batch = filled(S)
        settle(batch, NOW, SETTLING)
        batch.grew = False
        undo(batch)
        assert not settle(batch, NOW + 9 * SECOND, SETTLING)
        assert batch.settle_due_at is None


def test_rule_8_a_total_or_a_seal_in_the_window_ends_the_wait():
    for hurry in (lambda batch: declare_total(batch, 1, 0), lambda batch: seal(batch, "evt")):
        batch = filled(S)
        settle(batch, NOW, SETTLING)
        batch.grew = False
        hurry(batch)
        assert settle(batch, NOW + SECOND, SETTLING)


def test_rule_8_sealed_is_cleared_by_a_new_entry_and_by_nothing_else():
    batch = filled(S)
    seal(batch, "evt_1")
    exchange(batch, member("0", S), member("0", S, generation=2))
    assert batch.sealed
    exchange(batch, member("0", S, generation=2), None)
    assert batch.sealed
    exchange(batch, None, member("1", S))
    assert not batch.sealed


def test_rule_8_sealed_never_skips_a_declared_total():
    batch = filled(S, declared_total=2)
    seal(batch, "evt_1")
    assert not settle(batch, NOW, SETTLING)


def test_rule_2_a_repeat_of_the_seal_does_nothing():
    topic, seals = Topic(), [sealed(), sealed()]
    topic.tell(seals[0], queued("A"), seals[0])
    assert not topic.batch().sealed
    topic.tell(seals[1])
    assert topic.batch().sealed


@pytest.mark.parametrize("in_a_hurry", [{}, {"sealed": True}, {"declared_total": 1}, {"settle_seconds": 0}])
def test_rule_8_a_canceled_member_waits_at_least_the_grace(in_a_hurry):
    batch = filled(C, **in_a_hurry)
    assert not settle(batch, NOW, SETTLING)
    batch.grew = batch.just_canceled = False
    assert not settle(batch, NOW + timedelta(seconds=4.9), SETTLING)
    assert settle(batch, NOW + 5 * SECOND, SETTLING)


def test_rule_8_a_member_canceled_while_the_window_runs_waits_the_whole_grace():
    topic = Topic()
    topic.tell(completed("A"), completed("B"))
    topic.wait(1.9)
    topic.tell(canceled("A", generation=2))
    topic.wait(4.9)
    assert topic.told == []
    topic.wait(0.1)
    assert [told.status for told in topic.told] == ["succeeded"]


def test_rule_8_a_cancellation_shortens_no_longer_window():
    topic = Topic()
    topic.tell(completed("A"))
    topic.batch().settle_seconds = 60
    topic.tell(completed("B"))
    topic.wait(30)
    topic.tell(canceled("A", generation=2))
    topic.wait(29)
    assert topic.told == []
    topic.wait(1)
    assert len(topic.told) == 1


def test_rule_8_a_cancellation_of_before_the_last_finish_makes_nobody_wait():
    topic = Topic()
    topic.tell(canceled("A"))
    topic.wait()
    topic.tell(completed("B", BatchRef("b", total=2)))
    assert [told.status for told in topic.told] == ["canceled", "succeeded"]


# --- traces ---


def test_trace_1():
    topic = Topic()
    topic.tell(queued("A"), queued("B"), completed("A", completed_at=NOW), started("B"))
    assert topic.batch().status == "processing"
    topic.tell(completed("B", status="failed", completed_at=NOW + SECOND))
    topic.wait()
    (told,) = topic.told
    assert (told.generation, told.status, told.new) == (1, "succeeded", {"A", "B"})
    assert (topic.batch().succeeded, topic.batch().failed) == (1, 1)
    assert topic.batch().completed_at == NOW + SECOND


@pytest.mark.parametrize("how", ["two polls", "one poll", "reverse", "only completed"])
def test_trace_3(how):
    topic = Topic()
    topic.tell(completed("A"), completed("B", status="failed"))
    topic.wait()
    q, c = queued("C"), completed("C")
    if how == "two polls":
        topic.poll(q)
        assert (topic.batch().all_done, topic.batch().generation, topic.batch().status) == (False, 2, "processing")
        topic.poll(c)
    else:
        topic.poll(*{"one poll": (q, c), "reverse": (c, q), "only completed": (c,)}[how])
    topic.wait()
    first, second = topic.told
    assert (second.generation, second.runs.keys(), second.new) == (2, {"A", "B", "C"}, {"C"})
    assert first.message_id != second.message_id


def test_trace_15_an_empty_batch_then_one_job_canceled():
    topic = Topic()
    topic.tell(sealed())
    topic.wait()
    assert topic.told == []
    topic.tell(queued("A"), canceled("A"))
    topic.wait()
    assert [(told.status, told.runs) for told in topic.told] == [("canceled", {"A": (1, "canceled", 1)})]
