"""What a body says that it is about, for log lines."""

import orjson
import pytest

from service.delivery.subjects import describe_subject


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"scope": "batch", "batch": {"name": "nov", "id": "bat_1"}, "jobs": [{"job_id": "a"}]}, {"batch": "nov"}),
        ({"scope": "job", "job": {"job_id": "j", "metadata": {"a": 1}}, "batch": None}, {"job_id": "j"}),
        ({"job": {"job_id": "j"}, "batch": {"name": "nov"}}, {"batch": "nov", "job_id": "j"}),
        ({"webhook_id": "whk_1", "batch": "nov", "job_id": None}, {"batch": "nov"}),
        ({"webhook_id": "whk_1", "job_id": "j"}, {"job_id": "j"}),
        ({"job": {"job_id": 7}, "batch": {"name": ["x"]}}, {}),
        ({}, {}),
        ([], {}),
    ],
)
def test_subjects(data, said):
    assert describe_subject(orjson.dumps({"type": "t", "data": data})) == said


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"\xff", b'{"data":7}', b'{"data":{"job_id":7}}'])
def test_any_body_may_be_there(body):
    assert describe_subject(body) == {}
