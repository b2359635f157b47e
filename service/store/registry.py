"""What the registration scripts share: keys to seal with, URL policy, defaults, clock and chance.

Belongs here: the parts, handed in once. Does not belong here: any statement.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from service.domain.batches import Settling
from service.domain.egress import EgressPolicy
from service.domain.signing import NEW_SECRET_BYTES, Secret
from service.domain.targets import Refusal, Target, parse_url
from service.domain.webhooks import WebhookDefaults
from service.lifecycle import Clock, Rng
from service.sealing import Sealer
from service.store.signing_keys import SEED_BYTES


class Refused(Exception):
    """A request that a rule refuses: the status of the answer, a machine code, a sentence, the field if it is one's."""

    def __init__(self, status: int, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field


@dataclass(frozen=True, slots=True)
class Registry:
    """Shared parts. ``policy`` is asked at each use, since operators may reload it; ``finished`` counts deliveries that a
    script has ended, by state; ``made`` counts messages that one has made, by scope, and whether it says again what was
    said.
    """

    sealer: Sealer
    policy: Callable[[], EgressPolicy]
    defaults: WebhookDefaults
    settling: Settling
    clock: Clock
    rng: Rng
    max_webhooks_per_tenant: int = 1000
    finished: Callable[[str, int], object] = lambda _state, _count: None
    made: Callable[[str, bool], object] = lambda _scope, _renotified: None

    def superseded(self, count: int) -> None:
        """Count deliveries that a newer one has ended."""
        self.finished("superseded", count)

    def new_id(self, prefix: str) -> str:
        """Draw an id that nobody can guess: 130 bits in base 32 after a prefix."""
        return prefix + b32encode(self.rng.token(20)).decode().lower()[:26]

    def new_secret(self, now: datetime) -> Secret:
        """Draw an HMAC secret."""
        return Secret(self.rng.token(NEW_SECRET_BYTES), now)

    def new_seed(self, now: datetime) -> Secret:
        """Draw an Ed25519 seed."""
        return Secret(self.rng.token(SEED_BYTES), now)

    def check_url(self, url: str, tenant_id: str) -> Target:
        """Return the parsed URL. Raises Refused (422) with the policy's reason."""
        target = parse_url(url, self.policy(), tenant_id)
        if isinstance(target, Refusal):
            raise Refused(422, f"url_{target.reason}", target.sentence, "url")
        return target


class Counts:
    """What a transaction counts through ``registry``, told once it has committed: one that meets a conflict runs again."""

    def __init__(self, registry: Registry) -> None:
        self._counted: list[Callable[[], object]] = []
        self.registry = replace(registry, finished=self._later(registry.finished), made=self._later(registry.made))

    def tell(self) -> None:
        """Count it."""
        for count in self._counted:
            count()

    def _later(self, count: Callable[..., object]) -> Callable[..., None]:
        return lambda *args: self._counted.append(partial(count, *args))
