"""Encryption at rest: what opens what, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.sealing import Sealer, Undecryptable

OLD, NEW = ("k1", b"\x01" * 32), ("k2", b"\x02" * 32)
HERE = {"tenant_id": "acct_42", "purpose": "webhook.url:7"}


@settings(max_examples=50)
@given(
    st.binary(max_size=256),
    st.text(max_size=40).filter(lambda t: t.isprintable()),
    st.text(max_size=40).filter(str.isprintable),
)
def test_what_is_sealed_opens_for_the_same_row(plaintext, tenant, purpose):
    sealer = Sealer([OLD])
    sealed = sealer.seal(plaintext, tenant_id=tenant, purpose=purpose)
    assert sealer.unseal(sealed, tenant_id=tenant, purpose=purpose) == plaintext
    assert len(sealed) == len(plaintext) + 2 + 2 + 12 + 16


def test_two_seals_of_one_text_differ():
    sealer = Sealer([OLD])
    assert sealer.seal(b"x", **HERE) != sealer.seal(b"x", **HERE)


def test_the_key_id_is_in_the_clear_and_the_text_is_not():
    sealed = Sealer([OLD]).seal(b"https://receiver.example/hook", **HERE)
    assert sealed[:4] == b"\x01\x02k1"
    assert b"receiver" not in sealed


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"tenant_id": "acct_43", "purpose": "webhook.url:7"},
        {"tenant_id": "acct_42", "purpose": "webhook.url:8"},
        {"tenant_id": "acct_42", "purpose": "webhook.secret:7"},
        {"tenant_id": "acct_42w", "purpose": "ebhook.url:7"},
    ],
)
def test_another_row_or_tenant_does_not_open_it(elsewhere):
    sealer = Sealer([OLD])
    with pytest.raises(Undecryptable, match="another row or tenant"):
        sealer.unseal(sealer.seal(b"x", **HERE), **elsewhere)


def test_every_changed_byte_is_noticed():
    sealer = Sealer([OLD])
    sealed = sealer.seal(b"secret", **HERE)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(Undecryptable):
            sealer.unseal(bytes(changed), **HERE)


@pytest.mark.parametrize("junk", [b"", b"\x01", b"\x01\x02k1", b"\x02\x02k1" + b"x" * 40, b"\x01\xff" + b"x" * 40])
def test_what_is_no_envelope(junk):
    sealer = Sealer([OLD])
    for call in (lambda: sealer.unseal(junk, **HERE), lambda: sealer.needs_reseal(junk)):
        with pytest.raises(Undecryptable, match="not a sealed value"):
            call()


def test_f73_keys_rotate_over_processes_that_are_restarted_one_by_one():
    before = Sealer([OLD])
    added = Sealer([OLD, NEW])
    moved = Sealer([NEW, OLD])
    of_old, of_new = before.seal(b"x", **HERE), moved.seal(b"y", **HERE)
    assert added.unseal(of_new, **HERE) == b"y"
    assert moved.unseal(of_old, **HERE) == b"x"
    assert (moved.needs_reseal(of_old), moved.needs_reseal(of_new), added.needs_reseal(of_old)) == (True, False, False)
    with pytest.raises(Undecryptable, match="not configured"):
        before.unseal(of_new, **HERE)


def test_keys_can_be_changed_in_place():
    sealer = Sealer([OLD])
    sealed = sealer.seal(b"x", **HERE)
    sealer.rekey([NEW, OLD])
    assert sealer.needs_reseal(sealed)
    assert sealer.unseal(sealed, **HERE) == b"x"
    with pytest.raises(ValueError, match="at least one"):
        sealer.rekey([])
    assert not sealer.needs_reseal(sealer.seal(b"x", **HERE))


@pytest.mark.parametrize("keys", [[], [("k", b"short")], [("", b"\x01" * 32)], [("k" * 256, b"\x01" * 32)]])
def test_keys_that_are_none(keys):
    with pytest.raises(ValueError, match=r"key"):
        Sealer(keys)


def test_entropy_comes_in_through_the_door():
    sealer = Sealer([OLD], entropy=lambda size: b"n" * size)
    assert sealer.seal(b"x", **HERE)[4:16] == b"n" * 12
