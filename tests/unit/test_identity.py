"""Chapter 1, "Promises": ids come out the same for the same work, and differ for everything else."""

import re
from itertools import combinations, product

from service.domain.identity import batch_message_id, digest, incarnation_id, job_group, job_message_id

TEXTS = ("", "1", "a", "a1", "1:a", "2:a1", "é", "e\u0301", "😀", "A")
JOB_ID = "msg_c78041cc30fafd1cc4fe29f36a97c2e7"
BATCH_ID = "msg_00ffca3f1b8fc04b73ed2f934c885381"
INCARNATION_ID = "bat_fe57dc3ad45ab15c39ae2fb71359c4cc"
GROUP = -4843893214361526949


def test_known_answers_so_that_a_restored_database_goes_on_with_the_ids_receivers_know():
    assert job_message_id("acct_42", "doc_7f31", 1) == JOB_ID
    assert batch_message_id("acct_42", "bat_1", 255) == BATCH_ID
    assert incarnation_id("acct_42", "invoices-nov", "") == INCARNATION_ID
    assert job_group("acct_42", "doc_7f31") == GROUP


def test_ids_have_a_prefix_and_no_dot():
    ids = [job_message_id("t.t", "j.j", 1), batch_message_id("t.t", "b.b", 1), incarnation_id("t.t", "n.n", "e.e")]
    assert [re.fullmatch(r"(msg|msg|bat)_[a-z0-9]{26,32}", one) is not None for one in ids] == [True] * 3


def test_parts_never_run_into_each_other():
    seen = {digest(*parts) for size in (1, 2, 3) for parts in product(TEXTS, repeat=size)}
    assert len(seen) == sum(len(TEXTS) ** size for size in (1, 2, 3))


def test_a_job_message_is_of_tenant_job_and_generation():
    ids = {job_message_id(*parts) for parts in product(("t", "u"), ("j", "k"), (1, 2, 11))}
    assert len(ids) == 12


def test_a_batch_message_is_of_tenant_incarnation_and_fingerprint():
    ids = {batch_message_id(*parts) for parts in product(("t", "u"), ("b", "c"), (0, 1, 16, 2**128 - 1))}
    assert len(ids) == 16


def test_an_incarnation_is_of_tenant_name_and_the_deletion_before_it():
    assert len({incarnation_id(*parts) for parts in product(("t", "u"), ("n", "m"), ("", "evt_1", "evt_2"))}) == 12


def test_kinds_of_ids_never_meet():
    ids = [job_message_id("t", "x", 1), batch_message_id("t", "x", 1), incarnation_id("t", "x", "1")]
    assert all(one[4:] != other[4:] for one, other in combinations(ids, 2))


def test_job_groups_are_negative_64_bit_and_differ():
    groups = {job_group(tenant_id, job_id) for tenant_id, job_id in product(TEXTS, repeat=2)}
    assert len(groups) == len(TEXTS) ** 2
    assert all(-(2**63) <= group < 0 for group in groups)
