"""The sizing table of helm/README.md: arithmetic on measured figures, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from service.config import Settings

# CPU, in seconds. The first is the bench's (P2, from a Kafka record to its durable outcome); the others were measured
# beside it with events over HTTP, which is the dearer way in.
FINISH_CPU = 450e-6
EVENT_CPU = 145e-6
DATABASE_FINISH_CPU = 324e-6
DATABASE_EVENT_CPU = 59e-6
# Bytes in PostgreSQL, indexes and one dead version of each job included, with 280 bytes of metadata and 860 of body.
JOB, MESSAGE, DELIVERY, WEBHOOK = 1_550, 1_550, 660, 2_130
MESSAGE_ROW = 350  # of a message: what is kept with its job when the body is gone
FINISH_WAL, EVENT_WAL = 5_800, 960
# What a deployment looks like that nobody has described.
EVENTS = 3  # of each job, the finish among them
ANSWER = 0.5  # seconds that receivers take
BUSY = 0.5  # of a core: the rest is for peaks, and for what another pod leaves behind
TLS_IN_FLIGHT, IDLE_POD = 80 << 10, 90_000_000  # bytes of memory
OTHER_CONNECTIONS = 3

RATES = (1, 10, 100, 1_000, 3_000)
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Size:
    """What a mean rate of finishes a second needs, where each has one webhook."""

    rate: int

    @property
    def in_flight(self) -> float:
        return self.rate * ANSWER

    @property
    def pods(self) -> int:
        """One more than carry the load, and never fewer than two."""
        return max(2, 1 + ceil(self.rate * (FINISH_CPU + (EVENTS - 1) * EVENT_CPU) / BUSY))

    @property
    def connections(self) -> int:
        return self.pods * (_default("database_pool_size") + OTHER_CONNECTIONS)

    @property
    def database_cores(self) -> float:
        return self.rate * (DATABASE_FINISH_CPU + (EVENTS - 1) * DATABASE_EVENT_CPU) / BUSY

    @property
    def wal(self) -> float:
        """Bytes a second."""
        return self.rate * (FINISH_WAL + (EVENTS - 1) * EVENT_WAL)

    def disk(self, state_days: float) -> float:
        """Bytes, once every retention is full."""
        bodies, attempts = MESSAGE - MESSAGE_ROW, _days("retention_attempts")
        days = (JOB + MESSAGE_ROW) * state_days + bodies * _days("retention_messages") + DELIVERY * attempts
        return self.rate * DAY * days


def render_sizing() -> str:
    """The text between the markers."""
    return "\n".join((*_say_assumptions(), "", *_list_rows(), "", *_say_rest())) + "\n"


def _list_rows() -> Iterator[str]:
    kept, briefly = int(_days("retention_state")), int(_days("retention_messages"))
    yield (
        "| finishes (= webhooks sent) a second | events a second | in flight | pods of one core | connections "
        f"| PostgreSQL cores | WAL | disk, state kept {kept} d | disk, state kept {briefly} d |"
    )
    yield "| ---: " * 9 + "|"
    for size in map(Size, RATES):
        cells = (
            f"{size.rate:,}", f"{size.rate * EVENTS:,}", f"{ceil(size.in_flight):,}", str(size.pods),
            str(size.connections), f"{max(0.1, size.database_cores):.1f}", f"{_say_bytes(size.wal)}/s",
            _say_bytes(size.disk(kept)), _say_bytes(size.disk(briefly)),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _say_assumptions() -> tuple[str, ...]:
    return (
        "Arithmetic, not a promise: CPU, log and bytes per job were measured on one small machine (two cores, one local",
        f"PostgreSQL) and multiplied. Assumed: {EVENTS} events a job, one webhook a job, receivers that answer in {ANSWER:g} s,",
        f"pods and PostgreSQL {BUSY:.0%} busy, 280 bytes of metadata and bodies of 860 bytes, `split: false`, one pod more than",
        "carry the load. The rates are means over the retention for disk, and those of the busiest minute for all else.",
    )


def _say_rest() -> tuple[str, ...]:
    micro = FINISH_CPU * 1e6
    return (
        f"In the figures: {micro:.0f} µs of a core for a finish from its Kafka record to the durable outcome (the bench's upper",
        f"end; {EVENT_CPU * 1e6:.0f} µs for any other event), {DATABASE_FINISH_CPU * 1e6:.0f} µs and {DATABASE_EVENT_CPU * 1e6:.0f} µs of PostgreSQL's; on disk a job {_say_bytes(JOB)}, a message with",
        f"its body {_say_bytes(MESSAGE)}, a delivery with its attempt {_say_bytes(DELIVERY)}, a webhook {_say_bytes(WEBHOOK)} (100,000 of them are {_say_bytes(1e5 * WEBHOOK)}: not what",
        "counts). A further webhook of the same job costs another delivery, not another job or message.",
        "",
        f"* Connections: every pod opens up to `DATABASE_POOL_SIZE` ({_default('database_pool_size')}) and one to notify; a pod that delivers two more, for",
        "  notifications and the leader's lock. The table has all of them in every pod.",
        f"* Memory: about {_say_bytes(IDLE_POD)} a pod that is idle, and {TLS_IN_FLIGHT >> 10} KiB for each attempt in flight over TLS. `MAX_IN_FLIGHT` ({_default('max_in_flight'):,}) ends it:",
        f"  {_say_bytes(_default('max_in_flight') * TLS_IN_FLIGHT)}. Receivers that hang for the whole timeout hold thirty times the table's attempts; what they may",
        "  hold of the slots is bounded, so this costs memory and not the others' latency.",
        "* Disk is what runs out first, and `RETENTION_STATE` decides it: jobs, and what their messages were, are kept longest.",
        "* Kafka: at least as many partitions as pods that ingest; twice as many leave room to grow.",
        "* At a few finishes a second the CPU of each is several times the table's: nothing shares a transaction. It does not",
        "  matter there.",
        "",
        "What comes after one PostgreSQL is in [SCALING.md](SCALING.md).",
    )


def _default(name: str) -> int:
    return int(Settings.model_fields[name].default)


def _days(name: str) -> float:
    return Settings.model_fields[name].default.total_seconds() / DAY


def _say_bytes(size: float) -> str:
    """Two digits, decimal units: what disks are sold in."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.2g} {unit}" if size < 100 else f"{size:.0f} {unit}"
