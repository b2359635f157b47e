"""Chapter 3, "Body": what a message says, and what is cut when it does not fit."""

from datetime import timedelta, timezone

import orjson
import pytest

from service.domain.batches import Batch, exchange, finish, member_of
from service.domain.jobs import Job, Phase
from service.domain.messages import batch_view, build_batch_body, build_job_body, counts_view, format_instant
from service.ingest.announcing import SMALLEST_VIEW
from service.ingest.bodies import encode_json
from tests.support.topic import NOW, SECOND, TENANT

RAW = '{ "customer_ref" : "A-17", "n": 1.0e2 }'
STAMP = "2026-11-30T09:00:00.000000Z"
AFTER = "2026-11-30T09:00:01.000000Z"


def make_job(job_id="doc_7f31", **said):
    fields = {"generation": 1, "phase": Phase.SUCCEEDED, "ended_at": NOW, "batch_key": 1, "batch_generation": 1}
    return Job(TENANT, job_id, **{**fields, **said})


def make_batch(jobs, finishes=1):
    batch = Batch(1, TENANT, "invoices-nov", 1, "bat_1")
    for job in jobs:
        exchange(batch, None, member_of(job))
    for _ in range(finishes):
        finish(batch, "msg_1")
    return batch


def job_body(job, batch=None, link=None):
    return orjson.loads(build_job_body(job, batch, message_type="receipt.processed", link=link, encode=encode_json))


def batch_bytes(batch, jobs, *, cap=256_000, link=None):
    return build_batch_body(batch, jobs, message_type="extraction.completed", link=link, cap=cap, encode=encode_json)


FULL = make_job(
    source="oatmilk",
    kind="receipt",
    attempts=2,
    stage="extract",
    source_status="completed",
    subject_id="art_1",
    subject_status="quarantined",
    error_code="E1",
    error_message="broken",
    created_at=NOW - SECOND,
    started_at=NOW,
    completed_at=NOW + SECOND,
    previous_job_id="doc_0",
    result_url="https://api.example/1",
    metadata=RAW,
)
SHARED = {
    "job_id": "doc_7f31",
    "subject_id": "art_1",
    "generation": 1,
    "status": "succeeded",
    "source_status": "completed",
    "error_code": "E1",
    "created_at": "2026-11-30T08:59:59.000000Z",
    "started_at": STAMP,
    "completed_at": AFTER,
    "result_url": "https://api.example/1",
    "metadata": {"customer_ref": "A-17", "n": 100.0},
}


def test_times_are_utc_with_microseconds_and_z():
    assert format_instant(None) is None
    east = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    for at in (NOW, east):
        assert format_instant(at) == STAMP
    assert format_instant(NOW.replace(microsecond=7)) == "2026-11-30T09:00:00.000007Z"
    assert format_instant(NOW.replace(year=1, microsecond=999_999)) == "0001-11-30T09:00:00.999999Z"


def test_a_job_body():
    body = job_body(FULL, make_batch([FULL]), "https://app.example/1")
    assert body == {
        "type": "receipt.processed",
        "timestamp": AFTER,
        "data": {
            "scope": "job",
            "tenant_id": TENANT,
            "job": SHARED
            | {
                "kind": "receipt",
                "attempts": 2,
                "stage": "extract",
                "error_message": "broken",
                "previous_job_id": "doc_0",
                "subject_status": "quarantined",
            },
            "batch": {"name": "invoices-nov", "id": "bat_1"},
            "links": {"self": "https://app.example/1"},
        },
    }
    assert "batch_generation" not in body["data"]["job"]


def test_a_bare_job_body():
    data = job_body(make_job())["data"]
    assert (data["batch"], data["links"], data["job"]["attempts"], data["job"]["metadata"]) == (None, {}, 0, {})
    assert (data["job"]["completed_at"], job_body(make_job())["timestamp"]) == (STAMP, STAMP)


def test_a_batch_body():
    second = make_job("doc_2", phase=Phase.FAILED, batch_generation=2)
    batch = make_batch([FULL, second], finishes=2)
    assert orjson.loads(batch_bytes(batch, [second, FULL], link="https://app.example/b")) == {
        "type": "extraction.completed",
        "timestamp": AFTER,
        "data": {
            "scope": "batch",
            "tenant_id": TENANT,
            "batch": {
                "name": "invoices-nov",
                "id": "bat_1",
                "generation": 2,
                "status": "succeeded",
                "all_done": True,
                "created_at": "2026-11-30T08:59:59.000000Z",
                "started_at": STAMP,
                "completed_at": AFTER,
            },
            "counts": {"total": 2, "succeeded": 1, "failed": 1, "canceled": 0},
            "jobs": [
                {
                    "job_id": "doc_2",
                    "subject_id": None,
                    "generation": 1,
                    "status": "failed",
                    "source_status": None,
                    "error_code": None,
                    "created_at": None,
                    "started_at": None,
                    "completed_at": STAMP,
                    "result_url": None,
                    "metadata": {},
                    "batch_generation": 2,
                },
                SHARED | {"batch_generation": 1},
            ],
            "jobs_truncated": False,
            "links": {"self": "https://app.example/b"},
        },
    }


def test_metadata_passes_through_as_the_bytes_it_came_in():
    assert RAW.encode() in batch_bytes(make_batch([FULL]), [FULL])
    assert RAW.encode() in build_job_body(FULL, None, message_type="t", link=None, encode=encode_json)


def test_a_batch_that_is_not_done_has_no_completion_time():
    batch = make_batch([make_job(), make_job("B", phase=Phase.PROCESSING)], finishes=0)
    view = batch_view(batch)
    assert (view["all_done"], view["status"], view["completed_at"], batch.completed_at) == (
        False,
        "processing",
        None,
        NOW,
    )
    assert counts_view(batch) == {"total": 2, "succeeded": 1, "failed": 0, "canceled": 0}


def test_the_status_of_every_end_is_its_public_word():
    for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELED):
        assert job_body(make_job(phase=phase))["data"]["job"]["status"] == phase.status


# --- the cap ---


def varied(count):
    """Jobs of uneven size, the newest finish first."""
    return [
        make_job(f"job_{n}", batch_generation=count - n, metadata='{"é": "%s"}' % ("x" * (n * 37 % 90)))
        for n in range(count)
    ]


def test_at_every_cap_the_body_fits_and_says_whether_it_was_cut():
    jobs = varied(5)
    batch = make_batch(jobs, finishes=5)
    whole, bare = len(batch_bytes(batch, jobs)), len(batch_bytes(batch, [], cap=0))
    kept = []
    for cap in range(bare, whole + 3):
        body = batch_bytes(batch, jobs, cap=cap)
        data = orjson.loads(body)["data"]
        names = [job["job_id"] for job in data["jobs"]]
        assert len(body) <= cap
        assert names == [job.job_id for job in jobs[: len(names)]]  # newest generation first
        assert data["jobs_truncated"] == (len(names) < 5)
        assert data["counts"] == {"total": 5, "succeeded": 5, "failed": 0, "canceled": 0}
        kept.append(len(names))
    assert kept == sorted(kept)
    assert (kept[0], kept[-1], kept[whole + 1 - bare]) == (0, 5, 5)


def test_no_room_is_wasted():
    jobs = varied(40)
    batch = make_batch(jobs)
    body = batch_bytes(batch, jobs, cap=6_000)
    left = jobs[len(orjson.loads(body)["data"]["jobs"])]
    more = len(batch_bytes(batch, [left])) - len(batch_bytes(batch, []))
    assert 6_000 - len(body) < more + 3


def test_a_body_is_flagged_as_cut_when_not_all_members_were_handed_in():
    jobs = varied(3)
    data = orjson.loads(batch_bytes(make_batch(jobs), jobs[:2]))["data"]
    assert (data["jobs_truncated"], len(data["jobs"]), data["counts"]["total"]) == (True, 2, 3)


@pytest.mark.parametrize("phase", list(Phase)[3:])
def test_the_smallest_view_of_a_job_is_bigger_than_the_announcer_reckons(phase):
    job = make_job("j", phase=phase)
    assert len(batch_bytes(make_batch([job]), [job])) - len(batch_bytes(make_batch([job]), [], cap=0)) > SMALLEST_VIEW


def test_trace_14_ten_thousand_jobs():
    cap = 256_000
    jobs = [make_job(f"job_{n:05}", batch_generation=2 if n < 100 else 1) for n in range(10_000)]
    batch = make_batch(jobs, finishes=2)
    body = batch_bytes(batch, jobs[: cap // SMALLEST_VIEW + 1], cap=cap)
    data = orjson.loads(body)["data"]
    assert cap - 1_000 < len(body) <= cap
    assert (data["counts"]["total"], data["jobs_truncated"]) == (10_000, True)
    assert [job["batch_generation"] for job in data["jobs"][:101]] == [2] * 100 + [1]


def test_the_body_is_the_same_bytes_every_time():
    batch = make_batch([FULL])
    assert batch_bytes(batch, [FULL]) == batch_bytes(batch, [FULL])
