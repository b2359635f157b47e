"""One attempt: look again, sign, send, decide, hand the outcome over.

Belongs here: the order of these steps and everything that can stop them. Does not belong here: whose turn it is
(``slots``), the HTTP exchange (``service.sender``), writing (``recording``), the fields of its log line
(``describing``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from service.delivery.catalog import NO_PAUSES, Catalog
from service.delivery.decisions import (
    decide_attempt,
    decide_without_attempt,
    describe_outcome,
    end_without_attempt,
)
from service.delivery.describing import describe_attempt, describe_decision, describe_delivery
from service.delivery.entries import Entry
from service.delivery.instants import DatabaseClock, Monotonic
from service.delivery.lanes import Trust
from service.delivery.observer import Observer
from service.delivery.observing import Observations
from service.delivery.ready import ReadyDelivery
from service.delivery.recording import Recorder
from service.delivery.slots import Slots
from service.delivery.spans import AttemptSpan, AttemptSpans
from service.domain.attempts import Outcome, OutcomeClass, OwnFault, TenantBusy
from service.domain.deliveries import Reason, State
from service.domain.outbound import OutboundRequest, Route
from service.domain.outcomes import Verdict
from service.domain.targets import Refusal, Target
from service.domain.traces import SPAN_BYTES, compile_trace, continue_trace
from service.domain.webhooks import OPERATIONAL_TYPES
from service.lifecycle import Rng
from service.ports import Tell

OWN_FAULT_WAIT: Final = 5.0  # seconds until the delivery that met a fault of our own is due again
COOL_OFF: Final = 1.0  # seconds in which no attempt starts after one
KEY_STORE: Final = "key_store"
_TIMEOUTS: Final = frozenset({OutcomeClass.TIMEOUT, OutcomeClass.CONNECT_TIMEOUT})
_WITHHELD: Final = {Reason.UNDECRYPTABLE: Verdict.UNDECRYPTABLE, Reason.NO_SIGNING_KEY: Verdict.UNSIGNABLE}


class Sender(Protocol):
    """Makes HTTP attempts. Deadlines are monotonic instants; ``locate`` and ``send`` may raise OwnFault."""

    def find_route(self, target: Target, tenant_id: str) -> Route | None:
        """The checked addresses of a target when they are known, without waiting."""

    async def locate(self, target: Target, tenant_id: str, deadline: float) -> Route | Outcome:
        """The checked addresses of a target, or why there are none."""

    async def send(self, request: OutboundRequest, deadline: float) -> Outcome:
        """Make one attempt, which starts no packet after ``deadline``."""


@dataclass(frozen=True, slots=True)
class AttemptRules:
    """``margin``: seconds of lease that must be left after the deadline. ``sample``: share of successes to log."""

    margin: float = 10.0
    connect_timeout: float = 5.0
    sample: float = 0.0


class Attempts:
    """Makes attempts of deliveries that hold a slot. ``run`` never raises for anything that one delivery can cause.

    After a fault of our own no attempt should start until the monotonic instant ``cool_until``.
    """

    def __init__(
        self,
        *,
        clock: Monotonic,
        instants: DatabaseClock,
        rng: Rng,
        catalog: Catalog,
        slots: Slots,
        sender: Sender,
        recorder: Recorder,
        observations: Observations,
        observer: Observer,
        tell: Tell,
        rules: AttemptRules,
        spans: AttemptSpans | None = None,
    ) -> None:
        self._clock = clock
        self._instants = instants
        self._rng = rng
        self._catalog = catalog
        self._slots = slots
        self._sender = sender
        self._recorder = recorder
        self._observations = observations
        self._observer = observer
        self._tell = tell
        self._rules = rules
        self._spans = spans
        self.cool_until = float("-inf")
        self.may_send: Callable[[], bool] = lambda: True

    async def run(self, row: ReadyDelivery) -> None:
        """Attempt a delivery that ``Slots.take`` gave out; its slot is given back."""
        entry = self._find_sendable(row)
        if entry is None:
            self._slots.done(row)
            return
        try:
            await self._attempt(row, entry)
        except OwnFault as fault:
            self._meet_own_fault(row, entry, fault)
        except asyncio.CancelledError:
            self._recorder.release(row)
            raise
        except Exception as error:  # noqa: BLE001 - a bug costs this delivery only, and alerts
            self._meet_bug(row, entry, error)
        finally:
            if row.running:
                self._slots.done(row)

    def _find_sendable(self, row: ReadyDelivery) -> Entry | None:
        """The webhook, if this delivery may go to it now; else the delivery is handed back, held or ended."""
        entry = self._catalog.find(row.webhook_key)
        if entry is None or row.revision != entry.revision:
            self._recorder.release(row)
            return None
        if row.expires - row.started < entry.timeout + self._rules.margin:
            self._recorder.release(row)
            return None
        return entry if self.admit(row, entry) else None

    def admit(self, row: ReadyDelivery, entry: Entry) -> bool:
        """Whether a delivery may be sent now; if not, it is handed back, held or ended."""
        if entry.plain and row.body is not None and self._catalog.pauses is NO_PAUSES:
            return True
        obstacle = entry.obstacle
        if obstacle is not None and not self._pass_obstacle(row, entry, obstacle):
            return False
        if row.body is None:
            self._recorder.decide(end_without_attempt(row, entry, State.CANCELED, Reason.BODY_GONE))
            return False
        if self._catalog.pauses.match(entry):
            self._recorder.release(row)
            return False
        if entry.troubled and row.scheduled:
            return self._pass_trouble(row, entry)
        return True

    def _pass_obstacle(self, row: ReadyDelivery, entry: Entry, obstacle: Reason) -> bool:
        if obstacle is Reason.WEBHOOK_DELETED:
            self._recorder.decide(end_without_attempt(row, entry, State.CANCELED, obstacle))
        elif obstacle in _WITHHELD:
            if obstacle is Reason.UNDECRYPTABLE:
                self._tell_own_fault(row, entry, KEY_STORE, "what is stored of the webhook does not open")
            verdict = _WITHHELD[obstacle]
            self._recorder.decide(decide_without_attempt(row, entry, verdict, self._instants.now()))
        elif row.test and entry.signer is not None:
            return True
        else:
            self._recorder.hold(row, obstacle)
        return False

    def _pass_trouble(self, row: ReadyDelivery, entry: Entry) -> bool:
        """Whether the health of a troubled webhook lets this attempt run; if not, the delivery goes back, for no retry.

        Never in a lane that one-shots share: the delivery moves to the webhook's own lane instead.
        """
        shared = row.lane != row.webhook_key
        if not shared and entry.find_allowance(self._instants.epoch()) != 0:
            return True
        self._recorder.release(row, aside=shared)
        return False

    async def _attempt(self, row: ReadyDelivery, entry: Entry) -> None:
        target = entry.target
        if target is None:
            self._conclude(row, entry, _refuse(entry.refusal), self._instants.epoch())
            return
        route = self._sender.find_route(target, row.tenant_id)
        if route is None:
            await self._locate(row, entry, target)
        elif self._slots.enter(row, route.address):
            await self._send(row, entry, target, route)

    async def _locate(self, row: ReadyDelivery, entry: Entry, target: Target) -> None:
        """Resolve the receiver's name without holding a slot; the delivery then waits for its turn again."""
        self._slots.step_aside(row)
        again = False
        try:
            found = await self._sender.locate(target, row.tenant_id, self._clock.monotonic() + entry.timeout)
            if isinstance(found, Outcome):
                self._conclude(row, entry, found, self._instants.epoch())
            elif self.may_send():
                again = True
            else:
                self._recorder.release(row)
        finally:
            self._slots.step_back(row, again=again)

    async def _send(self, row: ReadyDelivery, entry: Entry, target: Target, route: Route) -> None:
        epoch = self._instants.at(row.started)
        span = self._spans.begin(row, entry) if self._spans else None
        request = OutboundRequest(
            target=target,
            headers=build_headers(row, entry, int(epoch), self._find_trace(row, span)),
            body=row.body or b"",
            tenant_id=row.tenant_id,
            connect_timeout=self._rules.connect_timeout,
            route=route,
        )
        outcome = await self._sender.send(request, row.started + entry.timeout)
        self._conclude(row, entry, outcome, epoch, span)

    def _find_trace(self, row: ReadyDelivery, span: AttemptSpan | None) -> str | None:
        """The trace context to send: the span's, or the message's own with a span id drawn for this attempt."""
        if span is not None:
            return span.trace
        return continue_trace(row.trace, self._rng.token(SPAN_BYTES)) if row.trace else None

    def _conclude(
        self, row: ReadyDelivery, entry: Entry, outcome: Outcome, epoch: float, span: AttemptSpan | None = None
    ) -> None:
        """Count the attempt, decide, and hand the decision to the recorder.

        ``epoch`` is when the attempt started, in seconds since 1970.
        """
        current = self._catalog.find(row.webhook_key)
        stale = current is not None and current.revision != entry.revision
        self._count(row, outcome, epoch)
        trace = row.trace
        if self._spans:
            trace = self._spans.end(row, entry, outcome, span).trace
        if outcome.kind is OutcomeClass.DELIVERED:
            self._conclude_accepted(row, entry, outcome, epoch, trace, stale=stale)
        else:
            self._conclude_failed(row, entry, outcome, epoch, trace, stale=stale)

    def _conclude_accepted(
        self, row: ReadyDelivery, entry: Entry, outcome: Outcome, epoch: float, trace: str | None, *, stale: bool
    ) -> None:
        self._recorder.accept(row, entry.origin, outcome, epoch, stale=stale)
        if not (stale or row.test):
            self._observations.note_success(entry, epoch + outcome.duration)
        if row.running:
            self._slots.done(row, Trust.PROVEN)
        if self._rules.sample and self._rng.uniform() < self._rules.sample:
            self._tell("attempt", **describe_attempt(row, entry, outcome, trace))

    def _conclude_failed(
        self, row: ReadyDelivery, entry: Entry, outcome: Outcome, epoch: float, trace: str | None, *, stale: bool
    ) -> None:
        now = self._instants.now()
        undelivered = decide_attempt(row, entry, outcome, now, self._rng.uniform(), epoch, stale=stale)
        decision = undelivered.decision
        self._recorder.decide(undelivered)
        if decision.observed:
            self._observations.note_failure(
                entry,
                now.timestamp(),
                describe_outcome(outcome),
                operational=row.type in OPERATIONAL_TYPES,
                hold_until=decision.hold_until,
                disable=decision.disable,
            )
        if row.running:
            self._slots.done(row, Trust.SUSPECT if outcome.kind in _TIMEOUTS else None)
        self._tell("attempt_failed", **describe_attempt(row, entry, outcome, trace), **describe_decision(undelivered))

    def _count(self, row: ReadyDelivery, outcome: Outcome, epoch: float) -> None:
        first = row.spent == 0 and row.scheduled
        self._observer.attempt(
            outcome,
            slot_wait=row.started - row.ready,
            first_delay=epoch - max(row.created, row.first_due) if first and not row.waited_for_limits else None,
            latency=epoch + outcome.duration - row.created if outcome.kind is OutcomeClass.DELIVERED else None,
        )

    def _meet_own_fault(self, row: ReadyDelivery, entry: Entry, fault: OwnFault) -> None:
        """Record no attempt and use no retry; start nothing for a moment, since every attempt would lack the same.

        Where the tenant has used up its own share, only this delivery waits: one tenant must not stop the others.
        """
        self._recorder.release(row, self._instants.epoch() + OWN_FAULT_WAIT)
        if isinstance(fault, TenantBusy):
            self._tell("tenant_busy", kind=fault.kind, detail=fault.detail, **describe_delivery(row, entry))
            return
        self._tell_own_fault(row, entry, fault.kind, fault.detail)
        self.cool_until = self._clock.monotonic() + COOL_OFF

    def _tell_own_fault(self, row: ReadyDelivery, entry: Entry, kind: str, detail: str) -> None:
        self._observer.own_fault(kind)
        self._tell("own_fault", kind=kind, detail=detail, **describe_delivery(row, entry))

    def _meet_bug(self, row: ReadyDelivery, entry: Entry, error: Exception) -> None:
        self._observer.own_fault("internal_error")
        self._tell("internal_error", **describe_delivery(row, entry), exc_info=error)
        self._recorder.decide(decide_without_attempt(row, entry, Verdict.BROKEN, self._instants.now()))


def build_headers(row: ReadyDelivery, entry: Entry, timestamp: int, trace: str | None = None) -> bytes:
    """All header lines of one attempt but the sender's own, signed for ``timestamp`` in unix seconds (chapter 3)."""
    assert entry.signer is not None
    assert row.body is not None
    signature = entry.signer.sign(row.message_id, timestamp, row.body)
    own = (
        f"webhook-id: {row.message_id}\r\nwebhook-timestamp: {timestamp}\r\nwebhook-signature: {signature}\r\n"
        f"webhook-attempt: {row.number}\r\nwebhook-event-type: {_clean(row.type)}\r\n"
        f"webhook-generation: {row.generation}\r\n"
    )
    lines = entry.fixed_headers + own.encode()
    return lines + compile_trace(trace) if trace else lines


def _clean(text: str) -> str:
    """A message type, which comes from a profile, in a form that stays within its header line."""
    return text if text.isascii() and text.isprintable() else ascii(text)


def _refuse(refusal: Refusal | None) -> Outcome:
    """The outcome of a URL that was refused before any packet: for its form, or for its address (then it is retried)."""
    form = refusal is None or refusal.form
    kind = OutcomeClass.URL_REFUSED if form else OutcomeClass.BLOCKED_ADDRESS
    return Outcome(kind, detail="" if refusal is None else refusal.reason)
