"""Ids that come out the same whenever the same work finishes, on any machine, before and after a restore.

Belongs here: hashes over domain values. Ids that are random are drawn at the edge.
"""

from __future__ import annotations

from hashlib import blake2b

ID_BYTES = 16


def digest(kind: str, *parts: str) -> str:
    """Return 32 hexadecimal characters (128 bits of BLAKE2b) over length-prefixed parts."""
    content = "".join([f"{len(part)}:{part}" for part in (kind, *parts)])
    return blake2b(content.encode(), digest_size=ID_BYTES).hexdigest()


def job_message_id(tenant_id: str, job_id: str, generation: int) -> str:
    """Return the message id of one run of a job."""
    return "msg_" + digest("job", tenant_id, job_id, str(generation))


def batch_message_id(tenant_id: str, incarnation_id: str, fingerprint: int) -> str:
    """Return the message id of a finish: of (tenant, incarnation, the members' runs in any order)."""
    return "msg_" + digest("batch", tenant_id, incarnation_id, f"{fingerprint:x}")


def incarnation_id(tenant_id: str, name: str, ended_by: str) -> str:
    """Return the id of an incarnation to which the producer gave none.

    ``ended_by`` is the event id of the deletion before it, empty for the first incarnation.
    """
    return "bat_" + digest("incarnation", tenant_id, name, ended_by)


def job_group(tenant_id: str, job_id: str) -> int:
    """Return the key under which a job's deliveries supersede each other: negative, so never a batch's row key."""
    content = f"{len(tenant_id)}:{tenant_id}:{job_id}".encode("utf-8", "surrogatepass")
    return -1 - (int.from_bytes(blake2b(content, digest_size=8).digest(), "big") >> 1)
