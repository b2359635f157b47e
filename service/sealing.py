"""Encryption at rest: AES-256-GCM with the key's id in the ciphertext, bound to the row it was made for.

Belongs here: the envelope and the choice of key. Does not belong here: where keys come from (``service.config``) and
which columns are sealed (``service.store``).

Envelope: one byte of version, one byte of length, the key id, 12 bytes of nonce, ciphertext and 16 bytes of tag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = 1
_NONCE_BYTES = 12  # NIST SP 800-38D, 8.2.2: random, hence at most 2**32 seals a key
_TAG_BYTES = 16
_PREFIX_BYTES = 2


class Undecryptable(Exception):
    """Sealed bytes that no configured key opens for this row. Costs that row only; the message holds no content."""


class Sealer:
    """Seals with the first key and opens with all of them."""

    def __init__(self, keys: Sequence[tuple[str, bytes]], entropy: Callable[[int], bytes] = os.urandom) -> None:
        """``keys`` are ``(key id, 32 bytes)``, the encrypting one first; ``entropy(n)`` gives n random bytes.

        Raises:
            ValueError: no key, or a key or an id of the wrong length.
        """
        self._entropy = entropy
        self.rekey(keys)

    def rekey(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """Use other keys from now on, after their file changed.

        Raises:
            ValueError: as the constructor; the old keys stay.
        """
        if not keys:
            raise ValueError("at least one encryption key is needed")
        ciphers = {_checked_id(key_id): AESGCM(_checked_material(material)) for key_id, material in keys}
        self._ciphers = ciphers
        self._first = keys[0][0].encode()

    def seal(self, plaintext: bytes, *, tenant_id: str, purpose: str) -> bytes:
        """``plaintext`` in an envelope that opens only for the same ``tenant_id`` and ``purpose``.

        ``purpose`` names what is sealed and the row's id, such as ``url:whk_7f31``.
        """
        head = bytes((_VERSION, len(self._first))) + self._first
        nonce = self._entropy(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, plaintext, _bound_to(head, tenant_id, purpose))
        return head + nonce + sealed

    def unseal(self, sealed: bytes, *, tenant_id: str, purpose: str) -> bytes:
        """What was sealed for this ``tenant_id`` and ``purpose``.

        Raises:
            Undecryptable: not an envelope, a key that is not configured, changed bytes, or another row's.
        """
        key_id = _key_id_of(sealed)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise Undecryptable("sealed with a key that is not configured")
        head, rest = sealed[: _PREFIX_BYTES + len(key_id)], sealed[_PREFIX_BYTES + len(key_id) :]
        try:
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _bound_to(head, tenant_id, purpose))
        except InvalidTag:
            raise Undecryptable("changed, or sealed for another row or tenant") from None

    def needs_reseal(self, sealed: bytes) -> bool:
        """True when another key than the first one sealed it.

        Raises:
            Undecryptable: not an envelope.
        """
        return _key_id_of(sealed) != self._first


def _checked_id(key_id: str) -> bytes:
    encoded = key_id.encode()
    if not 1 <= len(encoded) <= 255:  # noqa: PLR2004 - its length is one byte of the envelope
        raise ValueError("a key id has 1 to 255 bytes")
    return encoded


def _checked_material(material: bytes) -> bytes:
    if len(material) != 32:  # noqa: PLR2004 - AES-256
        raise ValueError("an encryption key has 32 bytes")
    return material


def _key_id_of(sealed: bytes) -> bytes:
    if len(sealed) <= _PREFIX_BYTES or sealed[0] != _VERSION:
        raise Undecryptable("not a sealed value")
    end = _PREFIX_BYTES + sealed[1]
    if len(sealed) < end + _NONCE_BYTES + _TAG_BYTES:
        raise Undecryptable("not a sealed value")
    return sealed[_PREFIX_BYTES:end]


def _bound_to(head: bytes, tenant_id: str, purpose: str) -> bytes:
    """Associated data. Lengths come first, so that no two (tenant, purpose) pairs read the same."""
    tenant, row = tenant_id.encode(), purpose.encode()
    return b"".join((head, len(tenant).to_bytes(4), tenant, len(row).to_bytes(4), row))
