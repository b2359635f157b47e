"""Trace 17 and the rules behind it as properties: jobs and batches against a model of a few lines."""

from collections import defaultdict
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.domain.batches import Member
from service.domain.jobs import ENDS, FIELDS, Job, Phase, merge
from tests.support.topic import (
    NOW,
    TENANT,
    BatchRef,
    Topic,
    completed,
    deleted,
    queued,
    read,
    removed,
    sealed,
    started,
)

quick = settings(derandomize=True, database=None, deadline=None, max_examples=30)
JOBS = ("A", "B", "C")
RANKS = range(4)


def make(rank, job_id, batch="b", *, status="succeeded", **said):
    """The event that brings a run to this rank: stored, queued, processing, ended."""
    if rank < 2:
        return queued(job_id, batch, status=("pending_upload", "queued")[rank], **said)
    return started(job_id, batch, **said) if rank == 2 else completed(job_id, batch, status, **said)


def in_polls(events, size):
    return [events[at : at + size] for at in range(0, len(events), size)]


# --- the model: what must come out, from the set of events alone ---


def phase_of(event):
    word = read(event).status
    return {"job.started": Phase.PROCESSING, "job.completed": ENDS.get(word)}.get(
        event.type, Phase.STORED if word == "none" else Phase.QUEUED
    )


class Model:
    def __init__(self, events):
        runs, homes, self.gone, self.ever, self.totals = defaultdict(list), {}, {}, defaultdict(set), {}
        for one in events:
            ref, generation, job_id = one.batch, one.generation or 1, one.job_id
            if ref and ref.total:
                self.totals[ref.name] = max(self.totals.get(ref.name, (0, 0)), (ref.version, ref.total))
            if one.type == "job.removed":
                self.gone[ref.name, job_id] = max(self.gone.get((ref.name, job_id), 0), generation)
                self.ever[ref.name].add(job_id)
            elif job_id:
                runs[job_id].append((generation, phase_of(one)))
                homes[job_id] = max(homes.get(job_id, (0, "")), (generation if ref else 0, ref.name if ref else ""))
                if ref and phase_of(one) is not Phase.STORED:
                    self.ever[ref.name].add(job_id)
        self.runs = {job_id: max(said) for job_id, said in runs.items()}
        self.homes = {job_id: home for job_id, (_, home) in homes.items()}

    def members(self, name):
        here = {job_id: self.runs[job_id] for job_id, home in self.homes.items() if home == name}
        return {j: (g, p) for j, (g, p) in here.items() if p and g > self.gone.get((name, j), 0)}

    def all_done(self, name):
        phases = [phase for _, phase in self.members(name).values()]
        total = self.totals.get(name, (0, 0))[1]
        return bool(phases) and all(p.terminal for p in phases) and len(self.ever[name]) >= total


def check_batch(topic, model, batch):
    name, members = batch.name, model.members(batch.name)
    assert {m.job_id: (m.generation, m.phase) for m in topic.members(batch)} == members
    assert batch.entered == len(model.ever[name])
    assert (batch.declared_total or 0) == model.totals.get(name, (0, 0))[1]
    assert batch.all_done == model.all_done(name)
    weights = [Member(j, g, p, False, None, None, None).weight for j, (g, p) in members.items()]
    assert batch.fingerprint == sum(weights) % 2**128
    last = next((told for told in reversed(topic.told) if told.name == name), None)
    assert batch.finish == (last.generation if last else 0)
    if batch.all_done:
        assert members.items() <= {j: (g, ENDS[s]) for j, (g, s, _) in last.runs.items()}.items()
        assert (batch.generation, batch.dirty) == (batch.finish, 0)


def check_counters(topic):
    for batch in topic.batches.values():
        assert batch.ended or topic.recounted(batch) == batch


def check_finishes(topic):
    """No finish without a new run; numbers without a gap; nothing but ended runs; equal content has equal ids."""
    by_batch, by_content = defaultdict(list), {}
    for told in topic.told:
        assert told.new
        assert all(status in ENDS for _, status, _ in told.runs.values())
        by_batch[told.key].append(told.generation)
        content = told.incarnation_id, tuple(sorted((j, g, s) for j, (g, s, _) in told.runs.items()))
        assert by_content.setdefault(content, told.message_id) == told.message_id
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_batch.values())
    assert len(set(by_content.values())) == len(by_content)
    assert len({end[:2] for end in topic.ends if not end[3]}) == len([end for end in topic.ends if not end[3]])


# --- trace 17 ---


def three_jobs(total):
    ref = BatchRef("b", total=total)
    return [[queued(j, ref), started(j, ref), completed(j, ref, s)] for j, s in zip(JOBS, ENDS, strict=True)]


def interleavings(rows):
    """Every way to take from the rows, in their order; the first to be taken from are the first rows."""

    def extend(done, places):
        if all(place == len(row) for place, row in zip(places, rows, strict=True)):
            yield done
            return
        for index, row in enumerate(rows):
            if places[index] < len(row):
                after = [place + (number == index) for number, place in enumerate(places)]
                yield from extend([*done, row[places[index]]], after)
                if places[index] == 0:
                    break

    return extend([], [0] * len(rows))


@pytest.mark.parametrize("size", [1, 2, 9])
def test_trace_17_every_interleaving_tells_every_finished_member_once(size):
    ids = []
    for events in interleavings(three_jobs(3)):
        topic = Topic()
        for poll in in_polls(events, size):
            topic.poll(*poll)
        topic.wait()
        (told,) = topic.told
        assert told.runs == {j: (1, status, 1) for j, status in zip(JOBS, ENDS, strict=True)}
        ids.append(told.message_id)
    assert (len(ids), len(set(ids))) == (280, 1)


@quick
@given(
    st.permutations([one for row in three_jobs(None) for one in row]),
    st.sampled_from((1, 2, 9)),
    st.lists(st.sampled_from((0, 1, 3)), min_size=9, max_size=9),
)
def test_trace_17_in_any_order_and_pace_every_finished_member_is_in_the_last_message(events, size, pauses):
    topic = Topic()
    for poll, pause in zip(in_polls(events, size), pauses, strict=False):
        topic.poll(*poll)
        check_counters(topic)
        topic.wait(pause)
    topic.wait()
    check_batch(topic, Model(events), topic.batch())
    check_finishes(topic)
    assert topic.told[-1].runs.keys() == set(JOBS)
    told = list(topic.told)
    for poll in in_polls(events, 3):
        topic.poll(*poll)
        topic.wait()
    assert topic.told == told


# --- random topics: generations, attempts, removals, moves, totals, seals ---

# The batch of each job's generations: none is named in two batches, or ends in two ways.
HOMES = {"A": ("b", "b", "c"), "B": ("b", "c", "b"), "C": (None, "b", "c")}
DECLARED = [(2, 0), (3, 0), (4, 1), (2, 2)]


def of_run(job_id, generation):
    """The events of one run: in each state, with and without a declared total."""
    home, status = HOMES[job_id][generation - 1], list(ENDS)[(ord(job_id) + generation) % 3]
    said = {"status": status, "generation": generation}
    ranks = RANKS if None not in HOMES[job_id] else RANKS[1:]
    plain = [make(rank, job_id, home, attempts=rank, **said) for rank in ranks]
    if home is None:
        return plain
    total, version = DECLARED[(ord(job_id) * generation) % 4]
    return [*plain, *(replace(one, batch=BatchRef(home, None, total, version)) for one in plain)]


POOL = [one for job_id in JOBS for generation in (1, 2, 3) for one in of_run(job_id, generation)]
POOL += [removed(job_id, name, generation=g) for job_id, g in (("A", 1), ("A", 3), ("B", 2), ("D", 1)) for name in "bc"]
POOL += [sealed("b"), sealed("c")]
topics = st.lists(st.sampled_from(POOL), max_size=24)
# Removals that name no generation mean the highest that is known when they first come.
SHORT_REMOVALS = [removed(job_id, name) for job_id in "AB" for name in "bc" for _ in range(3)]


@quick
@given(topics, st.integers(1, 4), st.sampled_from((0, 1, 3)))
def test_counters_and_finishes_equal_the_model_in_every_order(events, size, pause):
    topic = Topic()
    for poll in in_polls(events, size):
        topic.poll(*poll)
        check_counters(topic)
        topic.wait(pause)
    topic.wait()
    topic.wait()
    for batch in topic.batches.values():
        check_batch(topic, Model(events), batch)
    check_finishes(topic)


@quick
@given(topics)
def test_an_event_that_comes_again_changes_nothing(events):
    topic = Topic()
    for one in events:
        topic.poll(one)
        before, ends = topic.facts(), list(topic.ends)
        topic.poll(one)
        assert (topic.facts(), topic.ends) == (before, ends)


@quick
@given(
    st.lists(st.sampled_from(POOL + 4 * SHORT_REMOVALS), max_size=24),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_replaying_the_whole_topic_changes_nothing(events, size, random):
    topic = Topic()
    topic.poll(*events)
    topic.wait()
    before, ends = topic.facts(), list(topic.ends)
    again = list(events)
    random.shuffle(again)
    for replay in (events, again):
        for poll in in_polls(replay, size):
            topic.poll(*poll)
            topic.wait()
    assert (topic.facts(), topic.ends) == (before, ends)


# --- random topics with deletions and ids ---

REFS = (BatchRef("b"), BatchRef("b", "one"), BatchRef("b", "two"))


def lives(*refs):
    """Events of a name that is deleted and used again, with producers' ids, without, or some of each."""
    jobs = [make(rank, j, ref, generation=g) for rank in RANKS for j in JOBS for g in (1, 2) for ref in refs]
    others = [do(ref) for ref in refs for do in (deleted, deleted, deleted, deleted, sealed, sealed)]
    others += [removed(job_id, ref) for job_id in JOBS for ref in refs]
    return st.lists(st.sampled_from([*jobs, *others]), max_size=16)


@quick
@given(lives(*REFS), st.integers(1, 5), st.sampled_from((0, 3)))
def test_counters_stay_right_and_nothing_is_told_of_what_has_ended(events, size, pause):
    topic = Topic()
    for poll in in_polls(events, size):
        frozen = {batch.key: replace(batch) for batch in topic.batches.values() if batch.ended}
        told = len(topic.told)
        topic.poll(*poll)
        topic.wait(pause)
        check_counters(topic)
        assert {
            key: replace(topic.batches[key], has_leavers=batch.has_leavers) for key, batch in frozen.items()
        } == frozen
        ended = {batch.incarnation_id for batch in frozen.values()}
        assert not any(one.incarnation_id in ended for one in topic.told[told:])
    topic.wait()
    check_finishes(topic)
    for batch in topic.batches.values():
        assert batch.ended or not batch.all_done or not batch.dirty
    assert len({batch.incarnation_id for batch in topic.batches.values()}) == len(topic.batches)


@pytest.mark.parametrize("refs", [REFS[:1], REFS[1:]], ids=["no ids", "ids"])
def test_replaying_a_topic_with_deletions_makes_no_finish_and_no_message(refs):
    @quick
    @given(lives(*refs), st.integers(1, 20))
    def holds(events, size):
        topic = Topic()
        for one in events:
            (applied,) = topic.poll(one)
            assume("batch_conflict" not in applied.anomalies)  # which was first, a replay cannot tell
            topic.wait()
        told, ends, members = list(topic.told), list(topic.ends), topic.living()
        for poll in in_polls(events, size):
            topic.poll(*poll)
            topic.wait()
        assert (topic.told, topic.ends, topic.living()) == (told, ends, members)

    holds()


# --- the merged job ---


DECORATIONS = ("kind", "subject_id", "subject_status", "stage", "error_code", "error_message", "result_url", "metadata")
PLACES = [(generation, rank) for generation in (1, 2) for rank in RANKS]


def tell_run(generation, rank, bits):
    """An event with an order of its own, as a producer makes them: attempts grow with the state."""
    said = {name: f"{name} {generation}{rank}" for at, name in enumerate(DECORATIONS) if bits >> at & 1}
    status, attempts = list(ENDS)[generation], rank + (bits & 1)
    return make(rank, "A", status=status, generation=generation, attempts=attempts, created_at=NOW, **said)


def tell_runs(bits):
    """Events of two runs of one job; a number without the ninth bit leaves its event out."""
    return [tell_run(*place, each) for place, each in zip(PLACES, bits, strict=True) if each >> len(DECORATIONS)]


runs = st.lists(st.integers(0, 511), min_size=8, max_size=8).map(tell_runs)


def merged(events):
    job = Job(TENANT, "A")
    for one in events:
        merge(job, one, read(one).status)
    return [job.generation, job.phase, *(getattr(job, name) for name in FIELDS)]


@quick
@given(runs, st.data())
def test_the_merged_job_does_not_depend_on_the_order_of_events(events, data):
    assert merged(data.draw(st.permutations(events))) == merged(events)


@quick
@given(runs, st.data())
def test_the_merged_job_does_not_depend_on_repeats(events, data):
    repeats = data.draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
    assert merged([*events, *repeats]) == merged(events)


def test_a_small_set_of_events_merges_alike_in_every_order():
    events = [
        make(rank, "A", generation=g, kind=f"{g}{rank}", stage=f"{g}{rank}") for g in (1, 2) for rank in (1, 2, 3)
    ]
    assert len({tuple(merged(order)) for order in permutations(events)}) == 1
